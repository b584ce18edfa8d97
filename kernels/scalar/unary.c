/* The definition of unary_f32 (kernels.h). */
#include "flexnn/kernels.h"

#include <math.h>

/* NaN stays. */
static float clamp(float v, float lo, float hi) {
    v = v < lo ? lo : v;
    return v > hi ? hi : v;
}

static float apply(int32_t kind, float v, float alpha, float beta) {
    switch (kind) {
    case FX_UNARY_RELU:
        return v < 0 ? 0 : v;
    case FX_UNARY_CLIP:
        return clamp(v, alpha, beta);
    case FX_UNARY_LEAKY_RELU:
        return v < 0 ? alpha * v : v;
    case FX_UNARY_SIGMOID:
        return 1 / (1 + expf(-v));
    case FX_UNARY_HARDSIGMOID:
        return clamp(alpha * v + beta, 0, 1);
    case FX_UNARY_HARDSWISH:
        return v * clamp(v / 6 + 0.5f, 0, 1);
    case FX_UNARY_SILU:
        return v / (1 + expf(-v));
    case FX_UNARY_TANH:
        return tanhf(v);
    case FX_UNARY_EXP:
        return expf(v);
    case FX_UNARY_LOG:
        return logf(v);
    case FX_UNARY_SQRT:
        return sqrtf(v);
    case FX_UNARY_RECIPROCAL:
        return 1 / v;
    case FX_UNARY_ABS:
        return fabsf(v);
    case FX_UNARY_NEG:
        return -v;
    case FX_UNARY_FLOOR:
        return floorf(v);
    case FX_UNARY_CEIL:
        return ceilf(v);
    case FX_UNARY_ROUND:
        return rintf(v); /* rounding mode to nearest, ties to even: C's at start, and nobody here changes it */
    case FX_UNARY_SIGN:
        return v > 0 ? 1 : v < 0 ? -1 : v;
    case FX_UNARY_ERF:
        return erff(v);
    case FX_UNARY_GELU:
        return 0.5f * v * (1 + erff(v * 0.70710678f));
    case FX_UNARY_GELU_TANH:
        return 0.5f * v * (1 + tanhf(0.79788456f * (v + 0.044715f * v * v * v)));
    case FX_UNARY_SOFTPLUS:
        return (v > 0 ? v : 0) + log1pf(expf(-fabsf(v)));
    case FX_UNARY_SOFTSIGN:
        return v / (1 + fabsf(v));
    case FX_UNARY_ELU:
        return v < 0 ? alpha * expm1f(v) : v;
    case FX_UNARY_SELU:
        return beta * (v < 0 ? alpha * expm1f(v) : v);
    case FX_UNARY_CELU:
        return v < 0 ? alpha * expm1f(v / alpha) : v;
    case FX_UNARY_MISH:
        return v * tanhf((v > 0 ? v : 0) + log1pf(expf(-fabsf(v))));
    case FX_UNARY_THRESHOLDED_RELU:
        return v > alpha ? v : 0;
    case FX_UNARY_SIN:
        return sinf(v);
    case FX_UNARY_COS:
        return cosf(v);
    default:
        return v;
    }
}

void FX_SYMBOL(unary_f32)(const fx_unary *u) {
    for (int64_t r = 0; r < u->rows; r++)
        for (int64_t i = 0; i < u->n; i++)
            u->y[r * u->y_row + i * u->y_step] = apply(u->kind, u->x[r * u->x_row + i * u->x_step], u->alpha, u->beta);
}
