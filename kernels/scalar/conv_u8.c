/* The definition of dot_u8 and dwconv_u8 (byte_kernels.h). */
#include "byte_finish.h"

void FX_SYMBOL(dot_u8)(const fx_dot_u8 *d) {
    const int64_t head = fx_byte_panel_head(d->finish.to);
    for (int32_t i = 0; i < d->rows; i++)
        for (int32_t j = 0; j < d->columns; j++) {
            const char *panel = d->w + j / FX_NR * d->w_panel;
            const int8_t *w = (const int8_t *)panel + head + (int64_t)(j % FX_NR) * 4;
            const float *scales = (const float *)panel + 2 * FX_NR;
            uint32_t sum = (uint32_t)(d->bias ? d->bias[j] : ((const int32_t *)panel)[j % FX_NR]);
            sum += d->more ? (uint32_t)d->more[i] : 0;
            for (int32_t t = 0; t < d->runs; t++)
                for (int32_t q = 0; q < d->run; q += 4, w += FX_FOUR_BYTES)
                    for (int32_t four = 0; four < 4; four++)
                        sum += (uint32_t)(d->a[t * d->rows + i][q + four] * w[four]);
            const uint8_t *r = d->r ? d->r[i] + d->c_at + j : NULL;
            const float offset = d->finish.to == FX_DTYPE_F32 ? scales[FX_NR + j % FX_NR] : 0;
            fx_store_scalar(&d->finish, (int32_t)sum, d->scales ? d->scales[j] : scales[j % FX_NR], offset, r, d->c[i],
                            d->c_at + j);
        }
}

void FX_SYMBOL(dwconv_u8)(const fx_dw_u8 *d) {
    const int64_t head = fx_byte_panel_head(d->finish.to);
    const int32_t fours = (d->kh + 3) / 4;
    for (int32_t i = 0; i < d->pixels; i++)
        for (int32_t j = 0; j < d->channels; j++) {
            const char *panel = d->w + j / FX_NR * d->w_panel;
            const int8_t *w = (const int8_t *)panel + head + (int64_t)(j % FX_NR) * 4;
            const float *scales = (const float *)panel + 2 * FX_NR;
            uint32_t sum = (uint32_t)((const int32_t *)panel)[j % FX_NR];
            for (int32_t kx = 0; kx < d->kw; kx++)
                for (int32_t ky = 0; ky < d->kh; ky++)
                    sum += (uint32_t)(d->x[ky * d->positions + i * d->stride + kx * d->dilation][d->at + j] *
                                      w[(int64_t)(kx * fours + ky / 4) * FX_FOUR_BYTES + ky % 4]);
            const uint8_t *r = d->r ? d->r + i * d->r_step + j : NULL;
            const float offset = d->finish.to == FX_DTYPE_F32 ? scales[FX_NR + j % FX_NR] : 0;
            fx_store_scalar(&d->finish, (int32_t)sum, scales[j % FX_NR], offset, r, d->y, i * d->y_step + j);
        }
}
