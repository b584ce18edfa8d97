/* softmax_f32 for all instruction sets. */
#include "exp.h"

#include <math.h>

/* A row of n neighbouring floats has `whole` of them in vectors and `rest` behind. */
typedef struct row_size {
    int whole, rest;
} row_size;

/* The largest of a row; any number if the row has a NaN, whose own exponential makes the row's sum a NaN. */
FX_INLINE fx_v row_top(row_size z, const float *x) {
    fx_v max[4];
    int q = 0;
    FX_UNROLL for (int l = 0; l < 4; l++) max[l] = fx_splat(-INFINITY);
    for (; q + 4 * FX_WIDTH <= z.whole; q += 4 * FX_WIDTH)
        FX_UNROLL for (int l = 0; l < 4; l++) max[l] = fx_max(max[l], fx_load(x + q + l * FX_WIDTH));
    for (; q < z.whole; q += FX_WIDTH)
        max[0] = fx_max(max[0], fx_load(x + q));
    if (z.rest)
        max[1] = fx_max(max[1], fx_first(fx_load_part(x + z.whole, z.rest), z.rest, fx_splat(-INFINITY)));
    return fx_splat(fx_lanes_most(fx_max(fx_max(max[0], max[1]), fx_max(max[2], max[3]))));
}

/* What is left of a row once its exponentials are stored, but for the last, partial vector. */
typedef struct row_rest {
    fx_v by, last;
} row_rest;

FX_INLINE row_rest row_exp(row_size z, const float *x, float *y, fx_v top, const int log) {
    fx_v sum[2] = {fx_splat(0), fx_splat(0)};
    row_rest rest = {.last = fx_splat(0)};
    int q = 0;
    for (; q + 2 * FX_WIDTH <= z.whole; q += 2 * FX_WIDTH)
        FX_UNROLL for (int l = 0; l < 2; l++) {
            const fx_v v = fx_load(x + q + l * FX_WIDTH) - top, e = fx_exp_below(v);
            fx_store(y + q + l * FX_WIDTH, log ? v : e);
            sum[l] += e;
        }
    if (q < z.whole) {
        const fx_v v = fx_load(x + q) - top, e = fx_exp_below(v);
        fx_store(y + q, log ? v : e);
        sum[0] += e;
    }
    if (z.rest) {
        const fx_v v = fx_load_part(x + z.whole, z.rest) - top, e = fx_exp_below(v);
        rest.last = log ? v : e;
        sum[1] += fx_first(e, z.rest, fx_splat(0));
    }
    const float total = fx_lanes_sum(sum[0] + sum[1]);
    rest.by = fx_splat(log ? logf(total) : 1 / total);
    return rest;
}

FX_INLINE void row_finish(row_size z, float *y, row_rest r, const int log) {
    for (int q = 0; q < z.whole; q += FX_WIDTH)
        fx_store(y + q, log ? fx_load(y + q) - r.by : fx_load(y + q) * r.by);
    if (z.rest)
        fx_store_part(y + z.whole, log ? r.last - r.by : r.last * r.by, z.rest);
}

/* The next row's maximum and the last one's scaling stand beside a row's exponentials: each of the three ends in a
 * chain across lanes, whose latency is hidden that way. */
FX_INLINE void softmax_rows(const fx_softmax *s, const int log) {
    const row_size z = {s->n - s->n % FX_WIDTH, s->n % FX_WIDTH};
    const float *x = s->x;
    float *y = s->y;
    fx_v top = row_top(z, x);
    row_rest before = {fx_splat(0), fx_splat(0)};
    for (int32_t i = 0; i < s->rows; i++, x += s->n, y += s->n) {
        const fx_v next = i + 1 < s->rows ? row_top(z, x + s->n) : top;
        const row_rest rest = row_exp(z, x, y, top, log);
        if (i)
            row_finish(z, y - s->n, before, log);
        before = rest;
        top = next;
    }
    row_finish(z, y - s->n, before, log);
}

/* N vectors of columns from j on; without FULL the last lanes may be missing. */
FX_INLINE void softmax_columns(const fx_softmax *s, int j, const int n, const int full) {
    fx_v max[4], sum[4], scale[4], shift[4];
    FX_UNROLL for (int l = 0; l < n; l++) max[l] = fx_splat(-INFINITY), sum[l] = fx_splat(0);
    const float *x = s->x;
    for (int32_t q = 0; q < s->n; q++, x += s->step)
        FX_UNROLL for (int l = 0; l < n; l++) {
            const int at = j + l * FX_WIDTH;
            max[l] = fx_max(max[l], full ? fx_load(x + at) : fx_load_below(x, at, s->columns));
        }
    float *y = s->y;
    x = s->x;
    for (int32_t q = 0; q < s->n; q++, x += s->step, y += s->step)
        FX_UNROLL for (int l = 0; l < n; l++) {
            const int at = j + l * FX_WIDTH;
            const fx_v v = (full ? fx_load(x + at) : fx_load_below(x, at, s->columns)) - max[l], e = fx_exp_below(v);
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

/* ---- few columns, whose n rows are neighbours: vectors cross the rows ---- */

/* Floats after which lanes hold the same columns again. */
static int narrow_period(int columns) {
    int a = FX_WIDTH, b = columns;
    while (b) {
        const int rest = a % b;
        a = b, b = rest;
    }
    return columns / a * FX_WIDTH;
}
#define NARROW_PERIOD_MAX ((FX_WIDTH - 1) * FX_WIDTH)

/* At least this many periods: folding lanes takes the time of a few. */
#define NARROW_PERIODS_MIN 4

/* Vector i of a period of which `count` floats are there; those behind count for nothing: neither as the largest nor,
 * as exponentials, in a sum. */
FX_INLINE fx_v narrow_load(const float *x, int i, int count) {
    const fx_v v = fx_load_below(x, i, count);
    return i + FX_WIDTH <= count ? v : fx_first(v, count - i, fx_splat(-INFINITY));
}

/* A period of floats from a column's number to all lanes that hold it. */
static void narrow_repeat(float *lanes, int columns, int period) {
    for (int i = columns; i < period; i++)
        lanes[i] = lanes[i - columns];
}

/* What a period of `count` floats adds to the largest of each lane; its exponentials, and what they add to each lane's
 * sum; and what is left of it. `count` is a constant for whole periods. */
FX_INLINE void narrow_most(const float *x, float *top, const int count) {
    for (int i = 0; i < count; i += FX_WIDTH)
        fx_store(top + i, fx_max(fx_load(top + i), narrow_load(x, i, count)));
}
FX_INLINE void narrow_exp(const float *x, float *y, const float *top, float *sum, const int count, const int log) {
    for (int i = 0; i < count; i += FX_WIDTH) {
        const fx_v v = narrow_load(x, i, count) - fx_load(top + i), e = fx_exp_below(v);
        fx_store_below(y, i, count, log ? v : e);
        fx_store(sum + i, fx_load(sum + i) + e);
    }
}
FX_INLINE void narrow_finish(float *y, const float *by, const int count, const int log) {
    for (int i = 0; i < count; i += FX_WIDTH) {
        const fx_v v = fx_load_below(y, i, count), own = fx_load(by + i);
        fx_store_below(y, i, count, log ? v - own : v * own);
    }
}

/* Softmax of [n, columns] floats; lane i of a period holds column i % columns. */
FX_INLINE void softmax_narrow(const fx_softmax *s, const int period) {
    const int64_t size = (int64_t)s->n * s->columns, whole = size - size % period;
    const int rest = (int)(size - whole), log = s->log;
    float top[NARROW_PERIOD_MAX], by[NARROW_PERIOD_MAX];
    for (int i = 0; i < period; i += FX_WIDTH)
        fx_store(top + i, fx_splat(-INFINITY)), fx_store(by + i, fx_splat(0));
    for (int64_t at = 0; at < whole; at += period)
        narrow_most(s->x + at, top, period);
    narrow_most(s->x + whole, top, rest);
    for (int i = s->columns; i < period; i++)
        top[i % s->columns] = fmaxf(top[i % s->columns], top[i]);
    narrow_repeat(top, s->columns, period);
    for (int64_t at = 0; at < whole; at += period)
        narrow_exp(s->x + at, s->y + at, top, by, period, log);
    narrow_exp(s->x + whole, s->y + whole, top, by, rest, log);
    for (int i = s->columns; i < period; i++)
        by[i % s->columns] += by[i];
    for (int i = 0; i < s->columns; i++)
        by[i] = log ? logf(by[i]) : 1 / by[i];
    narrow_repeat(by, s->columns, period);
    for (int64_t at = 0; at < whole; at += period)
        narrow_finish(s->y + at, by, period, log);
    narrow_finish(s->y + whole, by, rest, log);
}

void FX_SYMBOL(softmax_f32)(const fx_softmax *s) {
    if (s->step == 1) {
        if (s->log)
            softmax_rows(s, 1);
        else
            softmax_rows(s, 0);
        return;
    }
    const int period = narrow_period(s->columns);
    if (s->step == s->columns && s->columns < FX_WIDTH && s->n >= NARROW_PERIODS_MIN * period / s->columns) {
        if (period == FX_WIDTH)
            softmax_narrow(s, FX_WIDTH);
        else
            softmax_narrow(s, period);
        return;
    }
    int j = 0;
    for (; j + 4 * FX_WIDTH <= s->columns; j += 4 * FX_WIDTH)
        softmax_columns(s, j, 4, 1);
    for (; j < s->columns; j += FX_WIDTH)
        softmax_columns(s, j, 1, j + FX_WIDTH <= s->columns);
}
