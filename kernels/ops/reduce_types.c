/* Reduction of types other than f32: plain loops over a block of columns, for compilers to make vectors of. */
#include "reduce_types.h"
#include "units.h"

#include <math.h>

int fx_reduces(int32_t kind, int32_t dtype) {
    const int orders = kind == FX_REDUCE_MAX || kind == FX_REDUCE_MIN;
    switch (dtype) {
    case FX_DTYPE_F64:
        return 1;
    case FX_DTYPE_F32: /* the micro kernels' */
    case FX_DTYPE_F16:
        return 0;
    case FX_DTYPE_BOOL:
        return orders;
    default:
        return kind != FX_REDUCE_L2 && kind != FX_REDUCE_LOG_SUM && kind != FX_REDUCE_LOG_SUM_EXP;
    }
}

/* Folds all numbers of each column into a sum s: s = next, of s and a number v; then y = result, of s. */
#define FOLD(in, wide, start, next, result)                                                                            \
    {                                                                                                                  \
        const in *x = c->x;                                                                                            \
        in *y = c->y;                                                                                                  \
        if (c->step == 1) {                                                                                            \
            wide s = start;                                                                                            \
            for (int64_t q = 0; q < c->n; q++) {                                                                       \
                const in v = x[q];                                                                                     \
                s = next;                                                                                              \
            }                                                                                                          \
            *y = (in)(result);                                                                                         \
            return;                                                                                                    \
        }                                                                                                              \
        wide sums[FX_COLUMNS];                                                                                         \
        for (int32_t j = 0; j < c->columns; j++)                                                                       \
            sums[j] = start;                                                                                           \
        for (int64_t q = 0; q < c->n; q++)                                                                             \
            for (int32_t j = 0; j < c->columns; j++) {                                                                 \
                const in v = x[q * c->step + j];                                                                       \
                const wide s = sums[j];                                                                                \
                sums[j] = next;                                                                                        \
            }                                                                                                          \
        for (int32_t j = 0; j < c->columns; j++) {                                                                     \
            const wide s = sums[j];                                                                                    \
            y[j] = (in)(result);                                                                                       \
        }                                                                                                              \
        return;                                                                                                        \
    }

/* Sums of integers are as long as can be: those of 64 bits wrap, and so does what is stored of them. */
#define INTEGERS(name, in, wide, least, most, magnitude)                                                               \
    static void reduce_##name(int32_t kind, const fx_columns *c) {                                                     \
        switch (kind) {                                                                                                \
        case FX_REDUCE_SUM:                                                                                            \
            FOLD(in, uint64_t, 0, s + (uint64_t)v, s)                                                                  \
        case FX_REDUCE_MEAN:                                                                                           \
            FOLD(in, uint64_t, 0, s + (uint64_t)v, (wide)s / (wide)c->n)                                               \
        case FX_REDUCE_MAX:                                                                                            \
            FOLD(in, in, least, v > s ? v : s, s)                                                                      \
        case FX_REDUCE_MIN:                                                                                            \
            FOLD(in, in, most, v < s ? v : s, s)                                                                       \
        case FX_REDUCE_PROD:                                                                                           \
            FOLD(in, uint64_t, 1, s *(uint64_t)v, s)                                                                   \
        case FX_REDUCE_L1:                                                                                             \
            FOLD(in, uint64_t, 0, s + (magnitude), s)                                                                  \
        case FX_REDUCE_SUM_SQUARE:                                                                                     \
            FOLD(in, uint64_t, 0, s + (uint64_t)v * (uint64_t)v, s)                                                    \
        default:                                                                                                       \
            return;                                                                                                    \
        }                                                                                                              \
    }
#define SIZE v < 0 ? 0 - (uint64_t)v : (uint64_t)v
INTEGERS(i8, int8_t, int64_t, INT8_MIN, INT8_MAX, SIZE)
INTEGERS(i16, int16_t, int64_t, INT16_MIN, INT16_MAX, SIZE)
INTEGERS(i32, int32_t, int64_t, INT32_MIN, INT32_MAX, SIZE)
INTEGERS(i64, int64_t, int64_t, INT64_MIN, INT64_MAX, SIZE)
INTEGERS(u8, uint8_t, uint64_t, 0, UINT8_MAX, v)
INTEGERS(u16, uint16_t, uint64_t, 0, UINT16_MAX, v)
INTEGERS(u32, uint32_t, uint64_t, 0, UINT32_MAX, v)
INTEGERS(u64, uint64_t, uint64_t, 0, UINT64_MAX, v)

/* log(sum of exp(v)), without overflow. */
static void log_sum_exp(const fx_columns *c) {
    for (int32_t j = 0; j < c->columns; j++) {
        const double *x = (const double *)c->x + j;
        double most = -INFINITY, sum = 0;
        for (int64_t q = 0; q < c->n; q++)
            most = x[q * c->step] > most ? x[q * c->step] : most;
        most = isinf(most) ? 0 : most;
        for (int64_t q = 0; q < c->n; q++)
            sum += exp(x[q * c->step] - most);
        ((double *)c->y)[j] = log(sum) + most;
    }
}

static void reduce_f64(int32_t kind, const fx_columns *c) {
    switch (kind) {
    case FX_REDUCE_SUM:
        FOLD(double, double, 0, s + v, s)
    case FX_REDUCE_MEAN:
        FOLD(double, double, 0, s + v, s / (double)c->n)
    case FX_REDUCE_MAX:
        FOLD(double, double, -INFINITY, v != v || v > s ? v : s, s)
    case FX_REDUCE_MIN:
        FOLD(double, double, INFINITY, v != v || v < s ? v : s, s)
    case FX_REDUCE_PROD:
        FOLD(double, double, 1, s *v, s)
    case FX_REDUCE_L1:
        FOLD(double, double, 0, s + fabs(v), s)
    case FX_REDUCE_L2:
        FOLD(double, double, 0, s + v * v, sqrt(s))
    case FX_REDUCE_SUM_SQUARE:
        FOLD(double, double, 0, s + v * v, s)
    case FX_REDUCE_LOG_SUM:
        FOLD(double, double, 0, s + v, log(s))
    default:
        log_sum_exp(c);
    }
}

void fx_reduce_typed(int32_t kind, int32_t dtype, const fx_columns *c) {
    typedef void (*reducer)(int32_t, const fx_columns *);
    static const reducer reducers[FX_DTYPE_COUNT] = {[FX_DTYPE_F64] = reduce_f64, [FX_DTYPE_I64] = reduce_i64,
                                                     [FX_DTYPE_U64] = reduce_u64, [FX_DTYPE_I32] = reduce_i32,
                                                     [FX_DTYPE_U32] = reduce_u32, [FX_DTYPE_I16] = reduce_i16,
                                                     [FX_DTYPE_U16] = reduce_u16, [FX_DTYPE_I8] = reduce_i8,
                                                     [FX_DTYPE_U8] = reduce_u8,   [FX_DTYPE_BOOL] = reduce_u8};
    reducers[dtype](kind, c);
}
