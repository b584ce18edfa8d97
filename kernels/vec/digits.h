/* Products of one row of floats that is cut into digits of 8 bits (byte_kernels.h): rounded.c includes it. Bits are
 * scalar/rounded.c's. */

/* Largest size among the numbers, as bits; those of a NaN or an infinity where there is one. */
FX_INLINE uint32_t largest_of(const fx_v *v) {
    fx_v sizes = fx_splat(0);
    FX_UNROLL for (int j = 0; j < ROW_VECTORS; j++) sizes =
        fx_max_nan(sizes, fx_from_bits(fx_bits(v[j]) & 0x7fffffffu));
    const float most = fx_lanes_max(sizes);
    uint32_t bits;
    __builtin_memcpy(&bits, &most, sizeof bits);
    return bits & 0x7fffffffu;
}

static int cut_block(const fx_rows_s8 *r, int32_t b, int32_t offset, int is_split) {
    fx_v v[ROW_VECTORS];
    float unit, factor;
    int32_t sums[FX_DIGITS];
    FX_UNROLL for (int j = 0; j < ROW_VECTORS; j++) v[j] = fx_load(r->a[0] + (int64_t)b * FX_ROUNDED + j * FX_WIDTH);
    if (!fx_unit_of_digits(largest_of(v), &unit, &factor))
        return 0;
    fx_vi whole[ROW_VECTORS];
    FX_UNROLL for (int j = 0; j < ROW_VECTORS; j++) whole[j] = whole_of(v[j] * factor);
    FX_UNROLL for (int i = 0; i < FX_DIGITS; i++) {
        const int64_t at = (int64_t)i * r->blocks + b;
        int8_t *to = r->to + at * FX_ROUNDED;
        fx_v sum = fx_splat(0);
        FX_UNROLL for (int j = 0; j < ROW_VECTORS; j++) {
            const fx_vi digit = (fx_vi)((fx_vw)whole[j] << 24) >> 24;
            const fx_v same = __builtin_convertvector(digit, fx_v);
            fx_store_bytes((uint8_t *)to + j * FX_WIDTH, same, 0);
            whole[j] = (whole[j] - digit) >> 8;
            sum += same;
        }
        if (is_split)
            split_eights(to);
        sums[i] = (int32_t)fx_lanes_sum(sum); /* exact in any order */
        r->starts[at] = -offset * sums[i];
    }
    r->scales[b] = unit;
    r->sums[b] = unit * (float)fx_sum_of_digits(sums);
    return 1;
}

int FX_SYMBOL(digits_s8)(const fx_rows_s8 *r) {
    const int32_t offset = offset_of(r->wtype);
    const int is_split = fx_weight_forms[r->wtype].bits == 4;
    for (int32_t b = 0; b < r->blocks; b++)
        if (!cut_block(r, b, offset, is_split))
            return 0;
    return 1;
}

/* Vectors of a panel that are multiplied side by side: what a block needs of two stays in NEON's registers, of four it
 * does not. */
#define ABREAST (VECTORS < 2 ? VECTORS : 2)

/* Fours 2 g and 2 g + 1 of a block's weights, of the vectors from j on. */
FX_INLINE void load_two_fours(fx_vi w[2][ABREAST], const unsigned char *from, const int j, const int g,
                              const int wtype) {
    if (fx_weight_forms[wtype].bits == 4) {
        FX_UNROLL for (int p = 0; p < ABREAST; p++)
            split_fours(&w[0][p], &w[1][p], from + (g * FX_NR + (j + p) * FX_WIDTH) * 4, wtype);
        return;
    }
    FX_UNROLL for (int k = 0; k < 2; k++) {
        fx_turn_vectors(w[k], from + (2 * g + k) * 4 * FX_NR, j);
        FX_UNROLL for (int p = 0; p < ABREAST; p++) w[k][p] = fx_counted(w[k][p]);
    }
}

/* Adds the products of two fours of each digit. */
#define ADD_TWO_FOURS(G)                                                                                               \
    do {                                                                                                               \
        fx_vi w[2][ABREAST];                                                                                           \
        load_two_fours(w, from, j, G, wtype);                                                                          \
        FX_UNROLL for (int i = 0; i < FX_DIGITS; i++) FX_UNROLL for (int p = 0; p < ABREAST; p++) sum[i][p] =          \
            FX_DOT_FOUR(sum[i][p], w[0][p], digits[i], 2 * (G), fx_weight_forms[wtype].bits);                          \
        FX_UNROLL for (int i = 0; i < FX_DIGITS; i++) FX_UNROLL for (int p = 0; p < ABREAST; p++) sum[i][p] =          \
            FX_DOT_FOUR(sum[i][p], w[1][p], digits[i], 2 * (G) + 1, fx_weight_forms[wtype].bits);                      \
    } while (0)

/* Adds the products of block n to the totals of ABREAST vectors from j on; b: where its weights are. Scales are loaded
 * when registers are free again. */
FX_INLINE void add_block_of_digits(fx_v total[FX_DIGITS][VECTORS], const fx_dot_s8 *d, int32_t n, blocks b, const int j,
                                   const int wtype) {
    const unsigned char *from = b.from;
    const int32_t count = d->rows.blocks;
    const int8_t *digits[FX_DIGITS];
    fx_vi sum[FX_DIGITS][ABREAST];
    FX_UNROLL for (int i = 0; i < FX_DIGITS; i++) {
        const int64_t own = (int64_t)i * count + n;
        digits[i] = d->rows.to + own * FX_ROUNDED;
        FX_UNROLL for (int p = 0; p < ABREAST; p++) sum[i][p] = fx_splat_int(d->rows.starts[own]);
    }
    ADD_TWO_FOURS(0);
    ADD_TWO_FOURS(1);
    KEEP_ORDER();
    ADD_TWO_FOURS(2);
    ADD_TWO_FOURS(3);
    FX_UNROLL for (int i = 0; i < FX_DIGITS; i++) FX_UNROLL for (int p = 0; p < ABREAST; p++) MADE_BEFORE(sum[i][p]);
    KEEP_ORDER();
    if (fx_weight_forms[wtype].block)
        next_block(&b, wtype);
    FX_UNROLL for (int p = 0; p < ABREAST; p++) {
        const fx_v factor = b.scales[j + p] * d->rows.scales[n];
        FX_UNROLL for (int i = 0; i < FX_DIGITS; i++) total[i][j + p] =
            fused(__builtin_convertvector(sum[i][p], fx_v), factor, total[i][j + p]);
        if (fx_weight_forms[wtype].minimum)
            total[0][j + p] = fused(b.minima[j + p], fx_splat(d->rows.sums[n]), total[0][j + p]);
    }
    FX_UNROLL for (int i = 0; i < FX_DIGITS; i++) FX_UNROLL for (int p = 0; p < ABREAST; p++)
        MADE_BEFORE(total[i][j + p]);
    KEEP_ORDER();
}

FX_INLINE void multiply_digits(const fx_dot_s8 *d, const float *panel, int32_t column, const int wtype) {
    const fx_weight_form form = fx_weight_forms[wtype];
    const int bytes = (int)fx_weights_bytes(wtype, BLOCK_BYTES), step = bytes_of_block(wtype);
    const unsigned char *ahead = next_panel(d, panel, 1);
    blocks b = first_block(d, panel);
    fx_v total[FX_DIGITS][VECTORS];
    FX_UNROLL for (int i = 0; i < FX_DIGITS; i++) FX_UNROLL for (int j = 0; j < VECTORS; j++) total[i][j] = fx_splat(0);
    if (!form.block)
        load_scales(b.scales, b.scale, form.scales);
    for (int32_t n = 0; n < d->rows.blocks; n++, b.from += bytes, ahead += step) {
        ask_ahead(ahead, step, 1);
        FX_UNROLL for (int j = 0; j < VECTORS; j += ABREAST) add_block_of_digits(total, d, n, b, j, wtype);
        b.scale += FX_NR * (form.block ? form.scales : 0), b.minimum += FX_NR * form.minimum;
    }
    FX_UNROLL for (int j = 0; j < VECTORS; j++) {
        const fx_v lower = fused(total[1][j], fx_splat(256), total[0][j]);
        store_vector(d, panel, column, 0, j, fused(total[2][j], fx_splat(65536), lower));
    }
}

#define DOT_DIGITS(FORM)                                                                                               \
    static void dot_digits_##FORM(const fx_dot_s8 *d) {                                                                \
        const float *panel = d->w;                                                                                     \
        for (int32_t column = 0; column < d->columns; column += FX_NR, panel += d->w_panel)                            \
            multiply_digits(d, panel, column, FX_WTYPE_##FORM);                                                        \
    }
ROUNDED_FORMS(DOT_DIGITS)
DOT_DIGITS(S8)

#define DIGITS_CASE(FORM)                                                                                              \
    case FX_WTYPE_##FORM:                                                                                              \
        dot_digits_##FORM(d);                                                                                          \
        return;

void FX_SYMBOL(dot_digits_s8)(const fx_dot_s8 *d) {
    switch (d->rows.wtype) { ROUNDED_FORMS(DIGITS_CASE) DIGITS_CASE(S8) }
}
