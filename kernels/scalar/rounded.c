/* The definition of products of rows that are rounded to 8 bits, or cut into digits of 8 bits (byte_kernels.h). */
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

/* The products of a block of bytes with weights of channel `lane` of a panel. */
static int32_t sum_of_block(const fx_dot_s8 *d, const float *panel, int lane, const int8_t *bytes, int64_t b) {
    int32_t sum = 0;
    for (int q = 0; q < FX_ROUNDED; q++)
        sum +=
            bytes[q] * (int32_t)fx_weight_scalar(panel + d->head, (b * FX_ROUNDED + q) * FX_NR + lane, d->rows.wtype);
    return sum;
}

/* `total`, and a block's minimum times the sum of the row's numbers. */
static float with_minimum(const fx_dot_s8 *d, const float *panel, int lane, int64_t b, float sum, float total) {
    const int32_t bytes = fx_weight_forms[d->rows.wtype].minimum;
    return bytes ? fmaf(fx_scale_scalar(panel + d->minimum, b * FX_NR + lane, bytes), sum, total) : total;
}

static float scale_of(const fx_dot_s8 *d, const float *panel, int lane, int64_t b) {
    const fx_weight_form form = fx_weight_forms[d->rows.wtype];
    return fx_scale_scalar(panel + d->scales, (form.block ? b * FX_NR : 0) + lane, form.scales);
}

/* Row i of column j. */
static void store(const fx_dot_s8 *d, const float *panel, int32_t i, int32_t j, float total) {
    const int lane = j % FX_NR;
    const float slope = d->finish.act == FX_ACT_PRELU ? panel[FX_NR + lane] : d->finish.lo;
    d->c[i][d->c_at + j] =
        fx_finish_scalar(&d->finish, total + panel[lane], d->r ? &d->r[i][d->c_at + j] : NULL, slope);
}

void FX_SYMBOL(dot_s8)(const fx_dot_s8 *d) {
    for (int32_t j = 0; j < d->columns; j++) {
        const float *panel = d->w + j / FX_NR * d->w_panel;
        const int lane = j % FX_NR;
        for (int32_t i = 0; i < d->rows.rows; i++) {
            float total = 0;
            for (int32_t b = 0; b < d->rows.blocks; b++) {
                const int64_t at = (int64_t)i * d->rows.blocks + b;
                const int32_t sum = sum_of_block(d, panel, lane, d->rows.to + at * FX_ROUNDED, b);
                total = fmaf((float)sum, scale_of(d, panel, lane, b) * d->rows.scales[at], total);
                total = with_minimum(d, panel, lane, b, d->rows.sums[at], total);
            }
            store(d, panel, i, j, total);
        }
    }
}

/* ---- digits ---- */

int FX_SYMBOL(digits_s8)(const fx_rows_s8 *r) {
    for (int32_t b = 0; b < r->blocks; b++) {
        const float *x = r->a[0] + (int64_t)b * FX_ROUNDED;
        const uint32_t bits = largest(x);
        float unit = 0, factor = 0;
        if (!fx_unit_of_digits(bits, &unit, &factor))
            return 0;
        int32_t sums[FX_DIGITS] = {0};
        for (int q = 0; q < FX_ROUNDED; q++) {
            int32_t whole = (int32_t)rintf(x[q] * factor);
            for (int i = 0; i < FX_DIGITS; i++) {
                const int8_t digit = (int8_t)(uint32_t)whole;
                r->to[((int64_t)i * r->blocks + b) * FX_ROUNDED + q] = digit;
                sums[i] += digit;
                whole = (whole - digit) / 256;
            }
        }
        r->scales[b] = unit;
        r->sums[b] = unit * (float)fx_sum_of_digits(sums);
        for (int i = 0; i < FX_DIGITS; i++)
            r->starts[(int64_t)i * r->blocks + b] = 0;
    }
    return 1;
}

void FX_SYMBOL(dot_digits_s8)(const fx_dot_s8 *d) {
    for (int32_t j = 0; j < d->columns; j++) {
        const float *panel = d->w + j / FX_NR * d->w_panel;
        const int lane = j % FX_NR;
        float totals[FX_DIGITS] = {0};
        for (int32_t b = 0; b < d->rows.blocks; b++) {
            const float factor = scale_of(d, panel, lane, b) * d->rows.scales[b];
            for (int i = 0; i < FX_DIGITS; i++) {
                const int8_t *digits = d->rows.to + ((int64_t)i * d->rows.blocks + b) * FX_ROUNDED;
                totals[i] = fmaf((float)sum_of_block(d, panel, lane, digits, b), factor, totals[i]);
            }
            totals[0] = with_minimum(d, panel, lane, b, d->rows.sums[b], totals[0]);
        }
        store(d, panel, 0, j, fmaf(totals[2], 65536, fmaf(totals[1], 256, totals[0])));
    }
}
