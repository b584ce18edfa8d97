/* The definition of gconv_f32 (kernels.h). */
#include "finish.h"

void FX_SYMBOL(gconv_f32)(const fx_gconv *c) {
    const fx_dwconv *d = &c->strip;
    for (int32_t i = 0; i < d->pixels; i++)
        for (int32_t j = 0; j < d->channels; j++) {
            const float *panel = d->w + j / FX_NR * d->w_panel;
            const float *w = panel + d->head + j % FX_NR;
            float sum = panel[j % FX_NR];
            for (int32_t ky = 0; ky < d->kh; ky++)
                for (int32_t kx = 0; kx < d->kw; kx++) {
                    const float *x = d->x[ky * d->positions + i * d->stride + kx * d->dilation];
                    for (int32_t q = 0; q < c->wide; q++, w += FX_NR)
                        sum += x[d->at + j / c->wide * c->wide + q] * *w;
                }
            const float slope = d->finish.act == FX_ACT_PRELU ? panel[FX_NR + j % FX_NR] : d->finish.lo;
            const float *r = d->r ? d->r + i * d->r_step + d->at + j : NULL;
            d->y[i * d->y_step + d->at + j] = fx_finish_scalar(&d->finish, sum, r, slope);
        }
}
