/* unary_f32 for all instruction sets. */
#include "math.h"

#include <math.h>

FX_INLINE fx_v clamp(fx_v v, float lo, float hi) {
    return fx_min(fx_splat(hi), fx_max(fx_splat(lo), v));
}

/* No instruction computes these: lane by lane. */
FX_INLINE fx_v by_lane(float (*f)(float), fx_v v) {
    for (int i = 0; i < FX_WIDTH; i++)
        v[i] = f(v[i]);
    return v;
}

/* v tanh(ln(1 + e)) for e = e^v, which is v q / (q + 2) for q = e^2 + 2 e; from 20 on it is v. */
FX_INLINE fx_v mish(fx_v v) {
    const fx_v e = fx_exp(fx_min(fx_splat(20), v)), q = e * e + 2 * e;
    return v * (q / (q + 2));
}

/* Not formatted by clang-format: it takes these products for pointers. */
/* clang-format off */
/* X(KIND, f(v)): v the vector, alpha and beta floats. */
#define KINDS(X)                                                                                                       \
    X(NONE, v)                                                                                                         \
    X(RELU, fx_max(fx_splat(0), v))                                                                                    \
    X(CLIP, clamp(v, alpha, beta))                                                                                     \
    X(LEAKY_RELU, fx_if_negative(v, v * alpha, v))                                                                     \
    X(SIGMOID, fx_sigmoid(v))                                                                                          \
    X(HARDSIGMOID, clamp(v * alpha + beta, 0, 1))                                                                      \
    X(HARDSWISH, v * clamp(v * (1.0f / 6) + 0.5f, 0, 1))                                                               \
    X(SILU, v / (1 + fx_exp(-v)))                                                                                      \
    X(TANH, fx_tanh(v))                                                                                                \
    X(EXP, fx_exp(v))                                                                                                  \
    X(LOG, fx_log(v))                                                                                                  \
    X(SQRT, fx_sqrt(v))                                                                                                \
    X(RECIPROCAL, 1 / v)                                                                                               \
    X(ABS, fx_abs(v))                                                                                                  \
    X(NEG, -v)                                                                                                         \
    X(FLOOR, fx_floor(v))                                                                                              \
    X(CEIL, fx_ceil(v))                                                                                                \
    X(ROUND, fx_round(v))                                                                                              \
    X(SIGN, fx_select((v > 0) | (v < 0), fx_with_sign(fx_splat(1), v), v))                                             \
    X(ERF, fx_erf(v))                                                                                                  \
    X(GELU, fx_gelu(v))                                                                                                \
    X(GELU_TANH, v / (1 + fx_exp(-1.59576912f * (v + 0.044715f * v * v * v)))) /* (1 + tanh u) / 2 = sigmoid(2 u) */   \
    X(SOFTPLUS, fx_max(fx_splat(0), v) + fx_log1p(fx_exp(-fx_abs(v))))                                                 \
    X(SOFTSIGN, v / (1 + fx_abs(v)))                                                                                   \
    X(ELU, fx_if_negative(v, alpha * fx_expm1(v), v))                                                                  \
    X(SELU, beta * fx_if_negative(v, alpha * fx_expm1(v), v))                                                          \
    X(CELU, fx_if_negative(v, alpha * fx_expm1(v / alpha), v))                                                         \
    X(MISH, mish(v))                                                                                                   \
    X(THRESHOLDED_RELU, fx_select(v > alpha, v, fx_splat(0)))                                                          \
    X(SIN, by_lane(sinf, v))                                                                                           \
    X(COS, by_lane(cosf, v))
/* clang-format on */

/* n neighbouring floats. */
#define ROW(KIND, f)                                                                                                   \
    static void row_##KIND(const float *x, float *y, int64_t n, float alpha, float beta) {                             \
        (void)alpha, (void)beta;                                                                                       \
        for (; n >= FX_WIDTH; n -= FX_WIDTH, x += FX_WIDTH, y += FX_WIDTH) {                                           \
            const fx_v v = fx_load(x);                                                                                 \
            fx_store(y, f);                                                                                            \
        }                                                                                                              \
        if (n) {                                                                                                       \
            const fx_v v = fx_load_part(x, (int)n);                                                                    \
            fx_store_part(y, f, (int)n);                                                                               \
        }                                                                                                              \
    }
KINDS(ROW)

/* Floats that a row with steps is packed into at a time. */
#define PACK 256

void FX_SYMBOL(unary_f32)(const fx_unary *u) {
    typedef void (*row_function)(const float *, float *, int64_t, float, float);
#define ENTRY(KIND, f) [FX_UNARY_##KIND] = row_##KIND,
    static const row_function rows[FX_UNARY_COUNT] = {KINDS(ENTRY)};
    const row_function row = rows[u->kind];
    for (int64_t r = 0; r < u->rows; r++) {
        const float *x = u->x + r * u->x_row;
        float *y = u->y + r * u->y_row;
        if (u->x_step == 1 && u->y_step == 1) {
            row(x, y, u->n, u->alpha, u->beta);
            continue;
        }
        for (int64_t i0 = 0; i0 < u->n; i0 += PACK) {
            float packed[PACK];
            const int64_t n = u->n - i0 < PACK ? u->n - i0 : PACK;
            for (int64_t i = 0; i < n; i++)
                packed[i] = x[(i0 + i) * u->x_step];
            row(packed, packed, n, u->alpha, u->beta);
            for (int64_t i = 0; i < n; i++)
                y[(i0 + i) * u->y_step] = packed[i];
        }
    }
}
