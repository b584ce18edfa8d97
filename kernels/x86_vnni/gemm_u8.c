/* Products of bytes: VPDPBUSD adds four of them to each sum. One broadcast of four numbers of a against each vector of
 * w. */
#include "../vec/load_weights.h"
#include "../x86/tiles.h"

typedef int32_t four_in_memory __attribute__((aligned(1), may_alias));
#define FOUR(p) _mm512_set1_epi32(*(const four_in_memory *)(p))
#define STRIDE 16

FX_INLINE __m512i whole(const float *from, int n) {
    return _mm512_cvttps_epi32(n < STRIDE ? fx_load_part(from, n) : fx_load(from));
}

/* The least of n whole numbers and of what the lanes hold. */
FX_INLINE __m512i least_of(__m512i least, const float *from, int32_t n) {
    int32_t q = 0;
    for (; q + STRIDE <= n; q += STRIDE)
        least = _mm512_min_epi32(least, whole(from + q, STRIDE));
    const __mmask16 rest = (__mmask16)((1u << (n - q)) - 1);
    return rest ? _mm512_mask_min_epi32(least, rest, least, whole(from + q, n - q)) : least;
}

/* What is stored beyond the end of a run, the next one overwrites. */
void FX_SYMBOL(rows_u8)(const fx_rows_u8 *r) {
    for (int32_t i = 0; i < r->rows; i++) {
        __m512i lanes = _mm512_set1_epi32(INT32_MAX);
        for (int32_t t = 0; t < r->taps; t++)
            lanes = least_of(lanes, r->a[t * r->rows + i] + r->a_at, r->k);
        const __m512i least = _mm512_set1_epi32(r->least[i] = _mm512_reduce_min_epi32(lanes));
        uint8_t *to = r->to + i * r->to_row;
        for (int32_t q0 = 0; q0 < r->k; q0 += r->block) {
            const int32_t n = r->k - q0 < r->block ? r->k - q0 : r->block;
            for (int32_t t = 0; t < r->taps; t++, to += n) {
                const float *from = r->a[t * r->rows + i] + r->a_at + q0;
                for (int32_t q = 0; q < n; q += STRIDE)
                    _mm_storeu_si128((__m128i *)(to + q),
                                     _mm512_cvtusepi32_epi8(_mm512_sub_epi32(whole(from + q, n - q), least)));
            }
        }
        const four_in_memory zeros = 0;
        __builtin_memcpy(to, &zeros, (size_t)(r->to + (i + 1) * r->to_row - to));
    }
}

/* The 16 columns of 4 rows as 4 numbers of each column: first the fours of a column group in a lane, then in order. */
FX_INLINE __m512i turned(__m512i rows) {
    const __m512i gather = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    const __m512i order = _mm512_broadcast_i32x4(_mm_set_epi8(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0));
    return _mm512_shuffle_epi8(_mm512_permutexvar_epi32(gather, rows), order);
}

/* Rows [q, q + 4) of `depth` of a panel, zeros beyond. */
FX_INLINE __m512i rows_at(const int8_t *from, int32_t q, int32_t depth) {
    const int left = depth - q < 4 ? depth - q : 4;
    return _mm512_maskz_loadu_epi32((__mmask16)((1u << 4 * left) - 1), from + (int64_t)q * FX_NR);
}

void FX_SYMBOL(panel_s8)(const fx_panel_s8 *p) {
    __m512i sums = _mm512_setzero_si512();
    int8_t *to = p->to;
    for (int32_t q = 0; q < p->depth; q += 4, to += 4 * FX_NR) {
        const __m512i w = turned(rows_at(p->from, q, p->depth));
        sums = _mm512_dpbusd_epi32(sums, _mm512_set1_epi8(1), w);
        _mm512_storeu_si512(to, w);
    }
    _mm512_storeu_si512(p->sums, sums);
}

/* A tile is finished from memory: that is a small part of its time. */
static __attribute__((noinline)) void finish_tile(const fx_gemm_u8 *g, const __m512i *sum, const void *sums) {
    for (int j = 0; j < g->panels; j++) {
        const float *head = g->head + j * g->head_panel;
        const fx_v bias = fx_load(head), scale = fx_load(head + g->scales);
        const __m512i of_columns = _mm512_loadu_si512((const int32_t *)sums + j * FX_NR);
        for (int i = 0; i < g->rows; i++) {
            const __m512i least = _mm512_mullo_epi32(of_columns, _mm512_set1_epi32(g->least[i]));
            fx_v v = _mm512_cvtepi32_ps(_mm512_add_epi32(sum[i * g->panels + j], least)) * scale + bias;
            if (g->r)
                v += fx_load_below(g->r[i] + g->c_at, j * FX_NR, g->columns);
            v = fx_activate(&g->finish, v, head + FX_NR);
            fx_store_below(g->c[i] + g->c_at, j * FX_NR, g->columns, v);
        }
    }
}

#define TILE(R, P)                                                                                                     \
    static void tile_##R##x##P(const fx_gemm_u8 *g) {                                                                  \
        const int8_t *w = g->w;                                                                                        \
        const uint8_t *a[R];                                                                                           \
        const ptrdiff_t second = g->w_panel;                                                                           \
        __m512i sum[R][P], stored[R][P]; /* sum itself has no address, so that it stays in registers */                \
        FX_UNROLL for (int i = 0; i < R; i++) {                                                                        \
            a[i] = g->a + i * g->a_row;                                                                                \
            FX_UNROLL for (int j = 0; j < P; j++) sum[i][j] = _mm512_setzero_si512();                                  \
        }                                                                                                              \
        for (int64_t q = 0; q < g->depth; q += 4, w += 4 * FX_NR) {                                                    \
            __m512i b[P];                                                                                              \
            FX_UNROLL for (int j = 0; j < P; j++) b[j] = _mm512_loadu_si512(w + j * second);                           \
            FX_UNROLL for (int i = 0; i < R; i++) {                                                                    \
                const __m512i x = FOUR(a[i] + q);                                                                      \
                FX_UNROLL for (int j = 0; j < P; j++) sum[i][j] = _mm512_dpbusd_epi32(sum[i][j], x, b[j]);             \
            }                                                                                                          \
        }                                                                                                              \
        FX_UNROLL for (int i = 0; i < R; i++) FX_UNROLL for (int j = 0; j < P; j++) stored[i][j] = sum[i][j];          \
        finish_tile(g, stored[0], g->sums);                                                                            \
    }
EVERY_TILE(TILE)

/* Bytes from a weight to one that is prefetched: stored panels come from memory or L3, and panels that a step reads
 * again and again from L2. */
#define AHEAD 512
#define STORED_AHEAD 2048

/* The same of stored panels; sums of columns are those of one more row, of ones. */
#define STORED_STEP(R, P, LOADED)                                                                                      \
    __m512i b[P];                                                                                                      \
    FX_UNROLL for (int j = 0; j < P; j++) {                                                                            \
        b[j] = turned(LOADED);                                                                                         \
        sum[R][j] = _mm512_dpbusd_epi32(sum[R][j], _mm512_set1_epi8(1), b[j]);                                         \
    }                                                                                                                  \
    FX_UNROLL for (int i = 0; i < R; i++) {                                                                            \
        const __m512i x = FOUR(a[i] + q);                                                                              \
        FX_UNROLL for (int j = 0; j < P; j++) sum[i][j] = _mm512_dpbusd_epi32(sum[i][j], x, b[j]);                     \
    }
#define STORED_TILE(R, P)                                                                                              \
    static void stored_tile_##R##x##P(const fx_gemm_u8 *g) {                                                           \
        const int8_t *w = g->w;                                                                                        \
        const uint8_t *a[R];                                                                                           \
        const ptrdiff_t second = g->w_panel;                                                                           \
        __m512i sum[R + 1][P], stored[R + 1][P];                                                                       \
        FX_UNROLL for (int i = 0; i < R; i++) a[i] = g->a + i * g->a_row;                                              \
        FX_UNROLL for (int i = 0; i <= R; i++) FX_UNROLL for (int j = 0; j < P; j++) sum[i][j] =                       \
            _mm512_setzero_si512();                                                                                    \
        int32_t q = 0;                                                                                                 \
        for (; q + 4 <= g->depth; q += 4, w += 4 * FX_NR) {                                                            \
            FX_UNROLL for (int j = 0; j < P; j++) __builtin_prefetch(w + j * second + STORED_AHEAD);                   \
            STORED_STEP(R, P, _mm512_loadu_si512(w + j * second))                                                      \
        }                                                                                                              \
        if (q < g->depth) {                                                                                            \
            STORED_STEP(R, P, rows_at(g->w + j * second, q, g->depth))                                                 \
        }                                                                                                              \
        FX_UNROLL for (int i = 0; i <= R; i++) FX_UNROLL for (int j = 0; j < P; j++) stored[i][j] = sum[i][j];         \
        finish_tile(g, stored[0], stored[R]);                                                                          \
    }
#define TWELVE(f, P) SIX(f, P) f(7, P) f(8, P) f(9, P) f(10, P) f(11, P) f(12, P)
TWELVE(STORED_TILE, 1)
TWELVE(STORED_TILE, 2)
#define STORED_NAMES(P)                                                                                                \
    {NAMES6(stored_tile, P), stored_tile_7x##P,  stored_tile_8x##P, stored_tile_9x##P,                                 \
     stored_tile_10x##P,     stored_tile_11x##P, stored_tile_12x##P}

void FX_SYMBOL(gemm_u8)(const fx_gemm_u8 *g) {
    static void (*const tiles[][MR])(const fx_gemm_u8 *) = NAMES(tile);
    static void (*const stored[][FX_STORED_ROWS])(const fx_gemm_u8 *) = {STORED_NAMES(1), STORED_NAMES(2)};
    if (g->sums)
        tiles[g->panels - 1][g->rows - 1](g);
    else
        stored[g->panels - 1][g->rows - 1](g);
}

/* P panels at once, so that no sum waits for the one before. */
FX_INLINE void multiply_few(const fx_gemv_u8 *g, const int32_t panel, const int R, const int P) {
    const int8_t *w = g->w + panel * g->w_panel;
    __m512i sum[FX_FEW_ROWS][4];
    FX_UNROLL for (int i = 0; i < R; i++) FX_UNROLL for (int j = 0; j < P; j++) sum[i][j] = _mm512_setzero_si512();
    for (int32_t q = 0; q < g->depth; q += 4, w += 4 * FX_NR) {
        __m512i b[4];
        FX_UNROLL for (int j = 0; j < P; j++) b[j] = _mm512_loadu_si512(w + j * g->w_panel);
        FX_UNROLL for (int j = 0; j < P; j++) __builtin_prefetch(w + j * g->w_panel + AHEAD);
        FX_UNROLL for (int i = 0; i < R; i++) {
            const __m512i x = FOUR(g->a + i * g->a_row + q);
            FX_UNROLL for (int j = 0; j < P; j++) sum[i][j] = _mm512_dpbusd_epi32(sum[i][j], x, b[j]);
        }
    }
    FX_UNROLL for (int j = 0; j < P; j++) {
        const int32_t at = (panel + j) * FX_NR;
        const fx_v scale = fx_load(g->scales + (panel + j) * g->scale_panel) * fx_splat(g->scale);
        const __m512i zeros = _mm512_mullo_epi32(_mm512_loadu_si512(g->sums + at), _mm512_set1_epi32(g->zero));
        FX_UNROLL for (int i = 0; i < R; i++) {
            const fx_v v = _mm512_cvtepi32_ps(_mm512_sub_epi32(sum[i][j], zeros));
            fx_store_below(g->c + i * g->c_row, at, g->columns,
                           v * scale + fx_load_below(g->x + i * g->x_row, at, g->columns));
        }
    }
}

#define FEW(R)                                                                                                         \
    static void few_##R(const fx_gemv_u8 *g) {                                                                         \
        const int32_t panels = (g->columns + FX_NR - 1) / FX_NR;                                                       \
        int32_t panel = 0;                                                                                             \
        for (; panel + 4 <= panels; panel += 4)                                                                        \
            multiply_few(g, panel, R, 4);                                                                              \
        for (; panel < panels; panel++)                                                                                \
            multiply_few(g, panel, R, 1);                                                                              \
    }
FEW(1)
FEW(2)
FEW(3)
FEW(4)
FEW(5)
FEW(6)
FEW(7)

void FX_SYMBOL(gemv_u8)(const fx_gemv_u8 *g) {
    static void (*const kernels[FX_FEW_ROWS])(const fx_gemv_u8 *) = {few_1, few_2, few_3, few_4, few_5, few_6, few_7};
    kernels[g->rows - 1](g);
}
