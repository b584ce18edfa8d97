/* reduce_f32 for all instruction sets. A kind is a start, a term and a way to join two partial results; each is inlined
 * into loops of its own, down columns or along one row. */
#include "exp.h"

#include <math.h>

FX_INLINE fx_v start_of(const int kind) {
    return fx_splat(kind == FX_REDUCE_MAX ? -INFINITY : kind == FX_REDUCE_MIN ? INFINITY : kind == FX_REDUCE_PROD);
}

FX_INLINE fx_v term_of(const int kind, fx_v v) {
    if (kind == FX_REDUCE_L1)
        return fx_from_bits(fx_bits(v) & 0x7fffffff);
    return kind == FX_REDUCE_SUM_SQUARE ? v * v : v;
}

FX_INLINE fx_v join(const int kind, fx_v a, fx_v b) {
    if (kind == FX_REDUCE_MAX)
        return fx_max_nan(a, b);
    if (kind == FX_REDUCE_MIN)
        return -fx_max_nan(-a, -b);
    return kind == FX_REDUCE_PROD ? a * b : a + b;
}

/* N vectors of columns from j on; without FULL the last lanes may be missing. */
FX_INLINE void down(const int kind, const fx_reduce *r, int j, const int n, const int full) {
    fx_v total[4], run[4];
    FX_UNROLL for (int l = 0; l < n; l++) total[l] = start_of(kind);
    const float *x = r->x;
    for (int32_t q0 = 0; q0 < r->n; q0 += FX_REDUCE_RUN) {
        const int32_t q1 = r->n - q0 < FX_REDUCE_RUN ? r->n : q0 + FX_REDUCE_RUN;
        FX_UNROLL for (int l = 0; l < n; l++) run[l] = start_of(kind);
        for (int32_t q = q0; q < q1; q++, x += r->step)
            FX_UNROLL for (int l = 0; l < n; l++) {
                const int at = j + l * FX_WIDTH;
                run[l] = join(kind, run[l], term_of(kind, full ? fx_load(x + at) : fx_load_below(x, at, r->columns)));
            }
        FX_UNROLL for (int l = 0; l < n; l++) total[l] = join(kind, total[l], run[l]);
    }
    FX_UNROLL for (int l = 0; l < n; l++) fx_store_below(r->y, j + l * FX_WIDTH, r->columns, total[l]);
}

/* One column of neighbouring floats: four chains, each of the lanes a partial result. */
FX_INLINE void along(const int kind, const fx_reduce *r) {
    fx_v total = start_of(kind);
    for (int32_t q0 = 0; q0 < r->n; q0 += FX_REDUCE_RUN) {
        const int32_t q1 = r->n - q0 < FX_REDUCE_RUN ? r->n : q0 + FX_REDUCE_RUN;
        fx_v run[4];
        FX_UNROLL for (int l = 0; l < 4; l++) run[l] = start_of(kind);
        int32_t q = q0;
        for (; q + 4 * FX_WIDTH <= q1; q += 4 * FX_WIDTH)
            FX_UNROLL for (int l = 0; l < 4; l++) run[l] =
                join(kind, run[l], term_of(kind, fx_load(r->x + q + l * FX_WIDTH)));
        for (; q < q1; q += FX_WIDTH)
            run[0] = join(kind, run[0], fx_first(term_of(kind, fx_load_below(r->x, q, q1)), q1 - q, start_of(kind)));
        total = join(kind, total, join(kind, join(kind, run[0], run[1]), join(kind, run[2], run[3])));
    }
    float part[FX_WIDTH];
    fx_store(part, total);
    for (int i = 1; i < FX_WIDTH; i++)
        total = join(kind, i == 1 ? fx_splat(part[0]) : total, fx_splat(part[i]));
    *r->y = total[0];
}

/* A micro kernel of its own for each kind that joins differently. */
#define KIND(name, kind)                                                                                               \
    static __attribute__((noinline)) void reduce_##name(const fx_reduce *r) {                                          \
        if (r->step == 1) {                                                                                            \
            along(kind, r);                                                                                            \
            return;                                                                                                    \
        }                                                                                                              \
        int j = 0;                                                                                                     \
        for (; j + 4 * FX_WIDTH <= r->columns; j += 4 * FX_WIDTH)                                                      \
            down(kind, r, j, 4, 1);                                                                                    \
        for (; j < r->columns; j += FX_WIDTH)                                                                          \
            down(kind, r, j, 1, j + FX_WIDTH <= r->columns);                                                           \
    }
KIND(sum, FX_REDUCE_SUM)
KIND(max, FX_REDUCE_MAX)
KIND(min, FX_REDUCE_MIN)
KIND(prod, FX_REDUCE_PROD)
KIND(l1, FX_REDUCE_L1)
KIND(sum_square, FX_REDUCE_SUM_SQUARE)

/* y holds the columns' maxima: y += log sum exp(x - y), where the maximum is finite. */
static void add_log_sum_exp(const fx_reduce *r) {
    if (r->step == 1) {
        fx_v sum = fx_splat(0);
        for (int32_t q = 0; q < r->n; q += FX_WIDTH)
            sum += fx_first(fx_exp_below(fx_load_below(r->x, q, r->n) - *r->y), r->n - q, fx_splat(0));
        if (!isinf(*r->y))
            *r->y += logf(fx_lanes_sum(sum));
        return;
    }
    for (int j = 0; j < r->columns; j += FX_WIDTH) {
        const fx_v top = fx_load_below(r->y, j, r->columns);
        const float *x = r->x;
        fx_v sum = fx_splat(0);
        for (int32_t q = 0; q < r->n; q++, x += r->step)
            sum += fx_exp_below(fx_load_below(x, j, r->columns) - top);
        const fx_vi is_infinite = (fx_bits(top) & 0x7fffffff) == 0x7f800000;
        fx_store_below(r->y, j, r->columns, fx_select(is_infinite, top, top + fx_log(sum)));
    }
}

void FX_SYMBOL(reduce_f32)(const fx_reduce *r) {
    static void (*const kinds[FX_REDUCE_COUNT])(const fx_reduce *) = {
        [FX_REDUCE_SUM] = reduce_sum,       [FX_REDUCE_MEAN] = reduce_sum,
        [FX_REDUCE_MAX] = reduce_max,       [FX_REDUCE_MIN] = reduce_min,
        [FX_REDUCE_PROD] = reduce_prod,     [FX_REDUCE_L1] = reduce_l1,
        [FX_REDUCE_L2] = reduce_sum_square, [FX_REDUCE_SUM_SQUARE] = reduce_sum_square,
        [FX_REDUCE_LOG_SUM] = reduce_sum,   [FX_REDUCE_LOG_SUM_EXP] = reduce_max,
    };
    kinds[r->kind](r);
    if (r->kind == FX_REDUCE_LOG_SUM_EXP) {
        add_log_sum_exp(r);
        return;
    }
    if (r->kind != FX_REDUCE_MEAN && r->kind != FX_REDUCE_L2 && r->kind != FX_REDUCE_LOG_SUM)
        return;
    for (int32_t j = 0; j < r->columns; j++)
        r->y[j] = r->kind == FX_REDUCE_MEAN ? r->y[j] / (float)r->n
                  : r->kind == FX_REDUCE_L2 ? sqrtf(r->y[j])
                                            : logf(r->y[j]);
}
