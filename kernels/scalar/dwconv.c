/* The definition of dwconv_f32 (kernels.h). */
#include "finish.h"

void FX_SYMBOL(dwconv_f32)(const fx_dwconv *d) {
    for (int32_t o = 0; o < d->rows; o++)
        for (int32_t i = 0; i < d->pixels; i++)
            for (int32_t j = 0; j < d->channels; j++) {
                const float *panel = d->w + j / FX_NR * d->w_panel;
                const float *w = panel + d->head + j % FX_NR;
                const float *const *x = d->x + (int64_t)o * d->stride * d->positions + i * d->stride;
                float sum = panel[j % FX_NR];
                for (int32_t ky = 0; ky < d->kh; ky++)
                    for (int32_t kx = 0; kx < d->kw; kx++, w += FX_NR)
                        sum += x[ky * d->positions + kx * d->dilation][d->at + j] * *w;
                const float slope = d->finish.act == FX_ACT_PRELU ? panel[FX_NR + j % FX_NR] : d->finish.lo;
                const float *r = d->r ? d->r + o * d->r_row + i * d->r_step + d->at + j : NULL;
                d->y[o * d->y_row + i * d->y_step + d->at + j] = fx_finish_scalar(&d->finish, sum, r, slope);
            }
}
