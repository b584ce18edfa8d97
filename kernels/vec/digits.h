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

FX_INLINE void multiply_digits(const fx_dot_s8 *d, const float *panel, int32_t column, const int wtype) {
    const fx_weight_form form = fx_weight_forms[wtype];
    const int bytes = (int)fx_weights_bytes(wtype, BLOCK_BYTES), step = bytes_of_block(wtype);
    const int32_t count = d->rows.blocks;
    const unsigned char *ahead = next_panel(d, panel, 1);
    blocks b = first_block(d, panel);
    fx_v total[FX_DIGITS][VECTORS];
    FX_UNROLL for (int i = 0; i < FX_DIGITS; i++) FX_UNROLL for (int j = 0; j < VECTORS; j++) total[i][j] = fx_splat(0);
    if (!form.block)
        load_scales(b.scales, b.scale, form.scales);
    for (int32_t n = 0; n < count; n++, b.from += bytes, ahead += step) {
        unsigned char turned[BLOCK_BYTES];
        if (form.block)
            next_block(&b, wtype);
        ask_ahead(ahead, step, 1);
        if (form.bits == 8)
            turn_block(turned, b.from);
        FX_UNROLL for (int j = 0; j < VECTORS; j++) {
            fx_vi w[FX_FOURS];
            load_fours(w, b.from, turned, j, wtype);
            const fx_v factor = b.scales[j] * d->rows.scales[n];
            FX_UNROLL for (int i = 0; i < FX_DIGITS; i++) {
                const int64_t own = (int64_t)i * count + n;
                const int8_t *digits = d->rows.to + own * FX_ROUNDED;
                const fx_vi sum = fx_dot_block(fx_splat_int(d->rows.starts[own]), w, digits, form.bits);
                total[i][j] = fused(__builtin_convertvector(sum, fx_v), factor, total[i][j]);
            }
            if (form.minimum)
                total[0][j] = fused(b.minima[j], fx_splat(d->rows.sums[n]), total[0][j]);
        }
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
