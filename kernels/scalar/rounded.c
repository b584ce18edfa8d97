/* The definition of products of rows that are rounded to 8 bits (byte_kernels.h). */
#include "finish.h"
#include "flexnn/kernels.h"
#include "flexnn/stored_weight.h"

#include <math.h>
#include <string.h>

/* Bits of the largest size: as integers, those of a NaN are the largest. */
static uint32_t largest(const float *x) {
    uint32_t most = 0;
    for (int q = 0; q < FX_ROUNDED; q++) {
        uint32_t bits;
        memcpy(&bits, x + q, sizeof bits);
        bits &= 0x7fffffffu;
        most = bits > most ? bits : most;
    }
    return most;
}

void FX_SYMBOL(rows_s8)(const fx_rows_s8 *r) {
    for (int32_t i = 0; i < r->rows; i++)
        for (int32_t b = 0; b < r->blocks; b++) {
            const float *x = r->a[i] + (int64_t)b * FX_ROUNDED;
            const int64_t at = (int64_t)i * r->blocks + b;
            const uint32_t bits = largest(x);
            float most;
            memcpy(&most, &bits, sizeof most);
            const int is_finite = most <= 3.4028234e38f, is_zero = most < 1e-30f;
            const float factor = is_finite && !is_zero ? 127 / most : 0;
            int32_t sum = 0;
            for (int q = 0; q < FX_ROUNDED; q++) {
                const int32_t v = is_finite ? (int32_t)rintf(x[q] * factor) : 0;
                r->to[at * FX_ROUNDED + q] = (int8_t)v;
                sum += v;
            }
            r->scales[at] = is_zero ? 0 : is_finite ? most / 127 : NAN;
            r->sums[at] = r->scales[at] * (float)sum;
            r->starts[at] = 0;
        }
}

void FX_SYMBOL(dot_s8)(const fx_dot_s8 *d) {
    const fx_weight_form form = fx_weight_forms[d->rows.wtype];
    for (int32_t j = 0; j < d->columns; j++) {
        const float *panel = d->w + j / FX_NR * d->w_panel;
        const int lane = j % FX_NR;
        for (int32_t i = 0; i < d->rows.rows; i++) {
            float total = 0;
            for (int32_t b = 0; b < d->rows.blocks; b++) {
                const int64_t at = (int64_t)i * d->rows.blocks + b;
                int32_t sum = 0;
                for (int q = 0; q < FX_ROUNDED; q++)
                    sum += d->rows.to[at * FX_ROUNDED + q] *
                           (int32_t)fx_weight_scalar(panel + d->head, ((int64_t)b * FX_ROUNDED + q) * FX_NR + lane,
                                                     d->rows.wtype);
                const float scale = fx_scale_scalar(panel + d->scales, (int64_t)b * FX_NR + lane, form.scales);
                total = fmaf((float)sum, scale * d->rows.scales[at], total);
                if (form.minimum)
                    total = fmaf(fx_scale_scalar(panel + d->minimum, (int64_t)b * FX_NR + lane, form.minimum),
                                 d->rows.sums[at], total);
            }
            const float slope = d->finish.act == FX_ACT_PRELU ? panel[FX_NR + lane] : d->finish.lo;
            float *c = &d->c[i][d->c_at + j];
            *c = fx_finish_scalar(&d->finish, total + panel[lane], d->r ? &d->r[i][d->c_at + j] : NULL, slope);
        }
    }
}
