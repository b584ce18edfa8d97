/* softmax_f32 for every vector width: vec/softmax.c and neon/softmax.c include it. */
#include "exp.h"
#include "lanes.h"

#include <math.h>

/* One row of n neighbouring floats. */
FX_INLINE void softmax_row(const fx_softmax *s, const int log) {
    const int n = s->n, whole = n - n % FX_WIDTH, rest = n - whole;
    const float *x = s->x;
    float *y = s->y;
    int q = 0;
    fx_v max[4], sum[2] = {fx_splat(0), fx_splat(0)};
    FX_UNROLL for (int l = 0; l < 4; l++) max[l] = fx_splat(-INFINITY);
    for (; q + 4 * FX_WIDTH <= whole; q += 4 * FX_WIDTH)
        FX_UNROLL for (int l = 0; l < 4; l++) max[l] = fx_max_nan(max[l], fx_load(x + q + l * FX_WIDTH));
    for (; q < whole; q += FX_WIDTH)
        max[0] = fx_max_nan(max[0], fx_load(x + q));
    if (rest)
        max[1] = fx_max_nan(max[1], fx_first(fx_load_part(x + whole, rest), rest, fx_splat(-INFINITY)));
    const fx_v top = fx_splat(fx_lanes_max(fx_max_nan(fx_max_nan(max[0], max[1]), fx_max_nan(max[2], max[3]))));
    for (q = 0; q + 2 * FX_WIDTH <= whole; q += 2 * FX_WIDTH)
        FX_UNROLL for (int l = 0; l < 2; l++) {
            const fx_v v = fx_load(x + q + l * FX_WIDTH) - top, e = fx_exp(v);
            fx_store(y + q + l * FX_WIDTH, log ? v : e);
            sum[l] += e;
        }
    if (q < whole) {
        const fx_v v = fx_load(x + q) - top, e = fx_exp(v);
        fx_store(y + q, log ? v : e);
        sum[0] += e;
    }
    fx_v last = fx_splat(0); /* stays in a register: memory is slow to give back what a mask has written */
    if (rest) {
        const fx_v v = fx_load_part(x + whole, rest) - top, e = fx_exp(v);
        last = log ? v : e;
        sum[1] += fx_first(e, rest, fx_splat(0));
    }
    const float total = fx_lanes_sum(sum[0] + sum[1]);
    const fx_v by = fx_splat(log ? logf(total) : 1 / total);
    for (q = 0; q < whole; q += FX_WIDTH)
        fx_store(y + q, log ? fx_load(y + q) - by : fx_load(y + q) * by);
    if (rest)
        fx_store_part(y + whole, log ? last - by : last * by, rest);
}

/* N vectors of columns from j on; without FULL the last lanes may be missing. */
FX_INLINE void softmax_columns(const fx_softmax *s, int j, const int n, const int full) {
    fx_v max[4], sum[4], scale[4], shift[4];
    FX_UNROLL for (int l = 0; l < n; l++) max[l] = fx_splat(-INFINITY), sum[l] = fx_splat(0);
    const float *x = s->x;
    for (int32_t q = 0; q < s->n; q++, x += s->step)
        FX_UNROLL for (int l = 0; l < n; l++) {
            const int at = j + l * FX_WIDTH;
            max[l] = fx_max_nan(max[l], full ? fx_load(x + at) : fx_load_below(x, at, s->columns));
        }
    float *y = s->y;
    x = s->x;
    for (int32_t q = 0; q < s->n; q++, x += s->step, y += s->step)
        FX_UNROLL for (int l = 0; l < n; l++) {
            const int at = j + l * FX_WIDTH;
            const fx_v v = (full ? fx_load(x + at) : fx_load_below(x, at, s->columns)) - max[l], e = fx_exp(v);
            fx_store_below(y, at, s->columns, s->log ? v : e);
            sum[l] += e;
        }
    FX_UNROLL for (int l = 0; l < n; l++) {
        scale[l] = s->log ? fx_splat(1) : 1 / sum[l];
        shift[l] = s->log ? fx_log(sum[l]) : fx_splat(0);
    }
    y = s->y;
    for (int32_t q = 0; q < s->n; q++, y += s->step)
        FX_UNROLL for (int l = 0; l < n; l++) {
            const int at = j + l * FX_WIDTH;
            const fx_v v = full ? fx_load(y + at) : fx_load_below(y, at, s->columns);
            fx_store_below(y, at, s->columns, v * scale[l] - shift[l]);
        }
}

void FX_SYMBOL(softmax_f32)(const fx_softmax *s) {
    if (s->step == 1) {
        if (s->log)
            softmax_row(s, 1);
        else
            softmax_row(s, 0);
        return;
    }
    int j = 0;
    for (; j + 4 * FX_WIDTH <= s->columns; j += 4 * FX_WIDTH)
        softmax_columns(s, j, 4, 1);
    for (; j < s->columns; j += FX_WIDTH)
        softmax_columns(s, j, 1, j + FX_WIDTH <= s->columns);
}
