/* online_softmax_f32 for all instruction sets. */
#include "exp.h"

#include <math.h>

/* In a row with a NaN the largest may be any number: the NaN's own exponential makes the sum a NaN. */

/* The largest of n floats. */
FX_INLINE float largest(const float *x, int32_t n) {
    const fx_v lowest = fx_splat(-INFINITY);
    fx_v most[4] = {lowest, lowest, lowest, lowest};
    int32_t j = 0;
    for (; j + 4 * FX_WIDTH <= n; j += 4 * FX_WIDTH)
        FX_UNROLL for (int l = 0; l < 4; l++) most[l] = fx_max(most[l], fx_load(x + j + l * FX_WIDTH));
    for (; j + FX_WIDTH <= n; j += FX_WIDTH)
        most[0] = fx_max(most[0], fx_load(x + j));
    if (j < n)
        most[1] = fx_max(most[1], fx_first(fx_load_part(x + j, n - j), n - j, lowest));
    return fx_lanes_most(fx_max(fx_max(most[0], most[1]), fx_max(most[2], most[3])));
}

/* x * scale + mask, in place; the largest of them. */
FX_INLINE float scale_and_mask(const fx_online_softmax *s, float *x) {
    const fx_v scale = fx_splat(s->scale), same = fx_splat(s->mask && !s->mask_step ? *s->mask : 0);
    const float *mask = s->mask && s->mask_step ? s->mask : NULL;
    fx_v most = fx_splat(-INFINITY);
    for (int32_t j = 0; j < s->n; j += FX_WIDTH) {
        const fx_v v = fx_load_below(x, j, s->n) * scale + (mask ? fx_load_below(mask, j, s->n) : same);
        fx_store_below(x, j, s->n, v);
        most = fx_max(most, fx_first(v, s->n - j, fx_splat(-INFINITY)));
    }
    return fx_lanes_most(most);
}

/* x becomes exp(x * scale - the largest so far), `here` among them. */
FX_INLINE void exponentials(const fx_online_softmax *s, int32_t i, float *x, float scaled_by, float here) {
    const int32_t n = s->n;
    const float before = s->max[i], max = here > before ? here : before;
    const fx_v scale = fx_splat(scaled_by), shift = fx_splat(max == -INFINITY ? 0 : max);
    fx_v sum[2] = {fx_splat(0), fx_splat(0)};
    int32_t j = 0;
    for (; j + 2 * FX_WIDTH <= n; j += 2 * FX_WIDTH)
        FX_UNROLL for (int l = 0; l < 2; l++) {
            const fx_v e = fx_exp_below(fx_load(x + j + l * FX_WIDTH) * scale - shift);
            fx_store(x + j + l * FX_WIDTH, e);
            sum[l] += e;
        }
    for (; j < n; j += FX_WIDTH) {
        const fx_v e = fx_exp_below(fx_load_below(x, j, n) * scale - shift);
        fx_store_below(x, j, n, e);
        sum[1] += fx_first(e, n - j, fx_splat(0));
    }
    const float factor = before == max ? 1 : before == -INFINITY ? 0 : expf(before - max);
    s->factor[i] = factor;
    s->sum[i] = s->sum[i] * factor + fx_lanes_sum(sum[0] + sum[1]);
    s->max[i] = max;
}

/* Without a mask scores are scaled on the way: the largest is that of x, scaled. The next row's stands beside a row's
 * exponentials, since each ends in a chain across lanes. */
void FX_SYMBOL(online_softmax_f32)(const fx_online_softmax *s) {
    if (s->mask || !(s->scale > 0)) {
        for (int32_t i = 0; i < s->rows; i++)
            exponentials(s, i, s->x + i * s->x_step, 1, scale_and_mask(s, s->x + i * s->x_step));
        return;
    }
    float *x = s->x, next = largest(x, s->n);
    for (int32_t i = 0; i < s->rows; i++, x += s->x_step) {
        const float here = next;
        if (i + 1 < s->rows)
            next = largest(x + s->x_step, s->n);
        exponentials(s, i, x, s->scale, here * s->scale);
    }
}
