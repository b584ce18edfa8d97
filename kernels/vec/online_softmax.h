/* online_softmax_f32 for every vector width: vec/online_softmax.c and neon/online_softmax.c include it. */
#include "lanes.h"

#include <math.h>

void FX_SYMBOL(online_softmax_f32)(const fx_online_softmax *s) {
    const int32_t n = s->n, whole = n - n % FX_WIDTH;
    const fx_v scale = fx_splat(s->scale), lowest = fx_splat(-INFINITY);
    fx_v most[2] = {lowest, lowest}, sum[2] = {fx_splat(0), fx_splat(0)};
    const fx_v same = fx_splat(s->mask && !s->mask_step ? *s->mask : 0);
    const float *mask = s->mask && s->mask_step ? s->mask : NULL;
    /* The largest of a row with a NaN may be any number: that NaN's own exponential makes the sum one. */
    for (int32_t j = 0; j < whole; j += FX_WIDTH) {
        const fx_v v = fx_load(s->x + j) * scale + (mask ? fx_load(mask + j) : same);
        fx_store(s->x + j, v);
        most[0] = fx_max(most[0], v);
    }
    if (whole < n) {
        const fx_v v =
            fx_load_part(s->x + whole, n - whole) * scale + (mask ? fx_load_part(mask + whole, n - whole) : same);
        fx_store_part(s->x + whole, v, n - whole);
        most[1] = fx_first(v, n - whole, lowest);
    }
    const float max = fx_lanes_most(fx_max(fx_max(most[0], most[1]), fx_splat(*s->max)));
    const fx_v shift = fx_splat(max == -INFINITY ? 0 : max);
    int32_t j = 0;
    for (; j + 2 * FX_WIDTH <= whole; j += 2 * FX_WIDTH)
        FX_UNROLL for (int l = 0; l < 2; l++) {
            const fx_v e = fx_exp_below(fx_load(s->x + j + l * FX_WIDTH) - shift);
            fx_store(s->x + j + l * FX_WIDTH, e);
            sum[l] += e;
        }
    for (; j < n; j += FX_WIDTH) {
        const fx_v e = fx_exp_below(fx_load_below(s->x, j, n) - shift);
        fx_store_below(s->x, j, n, e);
        sum[1] += fx_first(e, n - j, fx_splat(0));
    }
    *s->factor = max == -INFINITY ? 1 : expf(*s->max - max);
    *s->sum = *s->sum * *s->factor + fx_lanes_sum(sum[0] + sum[1]);
    *s->max = max;
}
