/* Products of rows that are rounded to 8 bits, for all instruction sets. A block of weights becomes bytes in registers,
 * four of a channel in a lane, for all rows of a tile. Bits are scalar/rounded.c's: multiply-adds are named where they
 * are meant, and no product is added otherwise. */
#include "dot_fours.h"
#include "load_weights.h"

FX_INLINE fx_v fused(fx_v a, fx_v b, fx_v sum) {
#if FX_ISA_AVX512
    return _mm512_fmadd_ps(a, b, sum);
#elif FX_ISA_AVX2
    return _mm256_fmadd_ps(a, b, sum);
#else
    return vfmaq_f32(sum, a, b);
#endif
}

/* ---- rows ---- */

#define ROW_VECTORS (FX_ROUNDED / FX_WIDTH)

FX_INLINE fx_vi whole_of(fx_v v) {
    return __builtin_convertvector(fx_round(v), fx_vi);
}

/* What sums of products begin with, for one of the row's integers. */
static int32_t offset_of(int32_t wtype) {
    const fx_weight_form form = fx_weight_forms[wtype];
    return form.bits == 8 ? FX_BYTE_OFFSET : form.minimum ? 0 : 8;
}

/* The bytes 0, 2, 4 and 6 of x in the lower half. */
FX_INLINE uint64_t even_bytes(uint64_t x) {
    x &= 0x00ff00ff00ff00ff;
    x = (x | x >> 8) & 0x0000ffff0000ffff;
    return (x | x >> 16) & 0x00000000ffffffff;
}

/* Of each 8 the even ones before the odd ones: the order of the bytes in a lane of weights of 4 bits. */
FX_INLINE void split_eights(int8_t *x) {
    FX_UNROLL for (int q = 0; q < FX_ROUNDED; q += 8) {
        uint64_t eight;
        __builtin_memcpy(&eight, x + q, sizeof eight);
        eight = even_bytes(eight) | even_bytes(eight >> 8) << 32;
        __builtin_memcpy(x + q, &eight, sizeof eight);
    }
}

static void round_block(const fx_rows_s8 *r, const float *x, int64_t at, int32_t offset, int is_split) {
    fx_v v[ROW_VECTORS], sizes = fx_splat(0);
    fx_vw all = {0};
    FX_UNROLL for (int j = 0; j < ROW_VECTORS; j++) {
        v[j] = fx_load(x + j * FX_WIDTH);
        const fx_vw bits = fx_bits(v[j]) & 0x7fffffffu;
        all |= (fx_vw)(bits >= 0x7f800000u);
        sizes = fx_max(sizes, fx_from_bits(bits));
    }
    uint32_t lanes[FX_WIDTH], is_odd = 0;
    __builtin_memcpy(lanes, &all, sizeof lanes);
    FX_UNROLL for (int j = 0; j < FX_WIDTH; j++) is_odd |= lanes[j];
    const float most = fx_lanes_most(sizes);
    int8_t *to = r->to + at * FX_ROUNDED;
    if (is_odd || most < 1e-30f) {
        __builtin_memset(to, 0, FX_ROUNDED);
        r->sums[at] = r->scales[at] = is_odd ? __builtin_nanf("") : 0;
        r->starts[at] = 0;
        return;
    }
    fx_vi sum = {0};
    FX_UNROLL for (int j = 0; j < ROW_VECTORS; j++) {
        const fx_vi whole = whole_of(v[j] * (127 / most));
        sum += whole;
        fx_store_bytes((uint8_t *)to + j * FX_WIDTH, __builtin_convertvector(whole, fx_v), 0);
    }
    if (is_split)
        split_eights(to);
    const float of_row = fx_lanes_sum(__builtin_convertvector(sum, fx_v)); /* exact in any order */
    r->scales[at] = most / 127;
    r->sums[at] = r->scales[at] * of_row;
    r->starts[at] = -offset * (int32_t)of_row;
}

void FX_SYMBOL(rows_s8)(const fx_rows_s8 *r) {
    const int32_t offset = offset_of(r->wtype);
    const int is_split = fx_weight_forms[r->wtype].bits == 4;
    for (int32_t i = 0; i < r->rows; i++)
        for (int32_t b = 0; b < r->blocks; b++)
            round_block(r, r->a[i] + (int64_t)b * FX_ROUNDED, (int64_t)i * r->blocks + b, offset, is_split);
}

/* ---- products ---- */

/* What follows is loaded later: compilers that load all vectors of a block first have no registers for them. clang
 * also puts off what is made of them, until it has no registers for that. */
#if FX_ISA_NEON
#define KEEP_ORDER() __asm__ volatile("" ::: "memory")
#else
#define KEEP_ORDER() (void)0
#endif
#if FX_ISA_NEON && defined __aarch64__ && defined __clang__
#define MADE_BEFORE(x) __asm__ volatile("" : "+w"(x) : : "memory")
#else
#define MADE_BEFORE(x) (void)0
#endif

#define BLOCK_BYTES (FX_ROUNDED * FX_NR) /* of 8 bits */

/* Weights of 8 bits as they are multiplied. */
FX_INLINE fx_vi fx_counted(fx_vi w) {
    return FX_BYTE_OFFSET ? w ^ (int32_t)0x80808080 : w;
}

/* Two fours of weights of 4 bits, which are at `from`. */
FX_INLINE void split_fours(fx_vi *first, fx_vi *second, const unsigned char *from, const int wtype) {
    fx_vw stored = (fx_vw) * (const fx_viu *)from;
    if (!fx_weight_forms[wtype].minimum) /* they count from -8 */
        stored ^= 0x88888888u;
    *first = (fx_vi)(stored & 0x0f0f0f0fu);
    *second = (fx_vi)(stored >> 4 & 0x0f0f0f0fu);
}

/* The weights of a block in lanes, vector j of the panel; `turned`: those of 8 bits, turned. */
FX_INLINE void load_fours(fx_vi *w, const unsigned char *from, const unsigned char *turned, const int j,
                          const int wtype) {
    if (fx_weight_forms[wtype].bits == 8)
        FX_UNROLL for (int f = 0; f < FX_FOURS; f++) w[f] =
            fx_counted(*(const fx_viu *)(turned + (f * FX_NR + j * FX_WIDTH) * 4));
    else
        FX_UNROLL for (int g = 0; g < FX_FOURS / 2; g++)
            split_fours(w + 2 * g, w + 2 * g + 1, from + (g * FX_NR + j * FX_WIDTH) * 4, wtype);
}

/* Most bytes from a row's weights to those that are asked for: a third of the smallest L1. */
#define AHEAD_MAX 10240

/* Prefetches what the next panel has in place of this block and its scales, once for all rows. A core's own prefetcher
 * stops at the end of a page, and sees the scales as another stream. A row alone needs it in L1 on NEON. */
FX_INLINE void ask_ahead(const unsigned char *ahead, const int bytes, const int R) {
    FX_UNROLL for (int line = 0; line < bytes; line += 64) {
        if (R == 1 && FX_ISA_NEON)
            __builtin_prefetch(ahead + line);
        else
            __builtin_prefetch(ahead + line, 0, 2);
    }
}

/* Bytes of a block's weights, scales and minima. */
FX_INLINE int bytes_of_block(const int wtype) {
    const fx_weight_form form = fx_weight_forms[wtype];
    return (int)fx_weights_bytes(wtype, BLOCK_BYTES) + (form.block ? FX_NR * (form.scales + form.minimum) : 0);
}

/* From where ask_ahead begins while R rows are multiplied by a panel. */
FX_INLINE const unsigned char *next_panel(const fx_dot_s8 *d, const float *panel, const int R) {
    const int64_t next = d->w_panel * (int64_t)sizeof(float), most = d->head * (int64_t)sizeof(float) + AHEAD_MAX;
    return (const unsigned char *)panel + (R > 1 || next < most ? next : most);
}

FX_INLINE blocks first_block(const fx_dot_s8 *d, const float *panel) {
    return (blocks){.from = (const unsigned char *)(panel + d->head),
                    .scale = (const unsigned char *)(panel + d->scales),
                    .minimum = (const unsigned char *)(panel + d->minimum)};
}

FX_INLINE void turn_block(unsigned char *turned, const unsigned char *from) {
    FX_UNROLL for (int f = 0; f < FX_FOURS; f++) fx_turn_four(turned + f * 4 * FX_NR, from + f * 4 * FX_NR);
}

/* Stores vector j of a panel's sums, of row i. */
FX_INLINE void store_vector(const fx_dot_s8 *d, const float *panel, int32_t column, int32_t i, const int j, fx_v sum) {
    const int to = column + j * FX_WIDTH;
    fx_v v = sum + fx_load(panel + j * FX_WIDTH);
    if (d->r)
        v += fx_load_below(d->r[i] + d->c_at, to, d->columns);
    fx_store_below(d->c[i] + d->c_at, to, d->columns, fx_activate(&d->finish, v, panel + FX_NR + j * FX_WIDTH));
}

/* Rows [first, first + R), and a panel. */
FX_INLINE void multiply_panel(const fx_dot_s8 *d, const float *panel, int32_t column, int32_t first, const int R,
                              const int wtype) {
    const fx_weight_form form = fx_weight_forms[wtype];
    const int bytes = (int)fx_weights_bytes(wtype, BLOCK_BYTES), blocks_of_row = d->rows.blocks;
    const int64_t at = (int64_t)first * blocks_of_row;
    const int8_t *rows = d->rows.to + at * FX_ROUNDED;
    const float *scales = d->rows.scales + at, *sums = d->rows.sums + at;
    const int32_t *starts = d->rows.starts + at;
    blocks b = first_block(d, panel);
    fx_v total[R][VECTORS];
    FX_UNROLL for (int i = 0; i < R; i++) FX_UNROLL for (int j = 0; j < VECTORS; j++) total[i][j] = fx_splat(0);
    const int step = bytes_of_block(wtype);
    const unsigned char *ahead = next_panel(d, panel, R);
    for (int32_t n = 0; n < blocks_of_row; n++, b.from += bytes, ahead += step) {
        unsigned char turned[BLOCK_BYTES];
        next_block(&b, wtype);
        if (first == 0)
            ask_ahead(ahead, step, R);
        if (form.bits == 8)
            turn_block(turned, b.from);
        for (int j = 0; j < VECTORS; j++) {
            fx_vi w[FX_FOURS];
            load_fours(w, b.from, turned, j, wtype);
            FX_UNROLL for (int i = 0; i < R; i++) {
                const int64_t own = (int64_t)i * blocks_of_row + n;
                const fx_vi sum = fx_dot_block(fx_splat_int(starts[own]), w, rows + own * FX_ROUNDED, form.bits);
                const fx_v factor = b.scales[j] * scales[own];
                total[i][j] = fused(__builtin_convertvector(sum, fx_v), factor, total[i][j]);
                if (form.minimum)
                    total[i][j] = fused(b.minima[j], fx_splat(sums[own]), total[i][j]);
                if (R > 1)
                    MADE_BEFORE(total[i][j]);
            }
        }
    }
    FX_UNROLL for (int i = 0; i < R; i++) for (int j = 0; j < VECTORS; j++)
        store_vector(d, panel, column, first + i, j, total[i][j]);
}

/* Rows of a tile: what the registers hold beside a block's weights. */
#define MOST_ROWS (FX_ISA_AVX512 ? 8 : 4)

/* A panel serves all rows before the next one comes. */
#define DOT(FORM)                                                                                                      \
    static void dot_##FORM(const fx_dot_s8 *d) {                                                                       \
        const float *panel = d->w;                                                                                     \
        for (int32_t column = 0; column < d->columns; column += FX_NR, panel += d->w_panel) {                          \
            int32_t i = 0;                                                                                             \
            for (; i + MOST_ROWS <= d->rows.rows; i += MOST_ROWS)                                                      \
                multiply_panel(d, panel, column, i, MOST_ROWS, FX_WTYPE_##FORM);                                       \
            for (; i + 2 <= d->rows.rows; i += 2)                                                                      \
                multiply_panel(d, panel, column, i, 2, FX_WTYPE_##FORM);                                               \
            if (i < d->rows.rows)                                                                                      \
                multiply_panel(d, panel, column, i, 1, FX_WTYPE_##FORM);                                               \
        }                                                                                                              \
    }
#define ROUNDED_FORMS(X) X(S8B) X(S8BF) X(Q4) X(Q4F) X(Q4M) X(Q4MF) X(S8MF)
ROUNDED_FORMS(DOT)

#if FX_HAS_DIGITS
#include "digits.h"
#endif

#define CASE(FORM)                                                                                                     \
    case FX_WTYPE_##FORM:                                                                                              \
        dot_##FORM(d);                                                                                                 \
        return;

void FX_SYMBOL(dot_s8)(const fx_dot_s8 *d) {
    switch (d->rows.wtype) { ROUNDED_FORMS(CASE) }
}
