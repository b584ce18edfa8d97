/* Elementwise functions against C's own in double precision. */
#include "boxes.h"

#include <math.h>
#include <stdio.h>

static double sigmoid(double v) {
    return 1 / (1 + exp(-v));
}
static double softplus(double v) {
    return v > 0 ? v + log1p(exp(-v)) : log1p(exp(v));
}

static double apply(int32_t kind, double v, double alpha, double beta) {
    if (isnan(v))
        return kind == FX_UNARY_THRESHOLDED_RELU ? 0 : v;
    switch (kind) {
    case FX_UNARY_EXP:
        return exp(v);
    case FX_UNARY_LOG:
        return log(v);
    case FX_UNARY_SQRT:
        return sqrt(v);
    case FX_UNARY_RECIPROCAL:
        return 1 / v;
    case FX_UNARY_ABS:
        return fabs(v);
    case FX_UNARY_NEG:
        return -v;
    case FX_UNARY_FLOOR:
        return floor(v);
    case FX_UNARY_CEIL:
        return ceil(v);
    case FX_UNARY_ROUND:
        return nearbyint(v);
    case FX_UNARY_SIGN:
        return v > 0 ? 1 : v < 0 ? -1 : v;
    case FX_UNARY_ERF:
        return erf(v);
    case FX_UNARY_GELU:
        return v * 0.5 * erfc(-v * sqrt(0.5));
    case FX_UNARY_GELU_TANH: /* (1 + tanh t) / 2 = sigmoid(2 t) */
        return v * sigmoid(2 * sqrt(2 / 3.14159265358979323846) * (v + 0.044715 * v * v * v));
    case FX_UNARY_SOFTPLUS:
        return softplus(v);
    case FX_UNARY_SOFTSIGN:
        return v / (1 + fabs(v));
    case FX_UNARY_ELU:
        return v < 0 ? alpha * expm1(v) : v;
    case FX_UNARY_SELU:
        return beta * (v < 0 ? alpha * expm1(v) : v);
    case FX_UNARY_CELU:
        return v < 0 ? alpha * expm1(v / alpha) : v;
    case FX_UNARY_MISH:
        return v * tanh(softplus(v));
    case FX_UNARY_THRESHOLDED_RELU:
        return v > alpha ? v : 0;
    case FX_UNARY_SIN:
        return sin(v);
    case FX_UNARY_COS:
        return cos(v);
    default:
        return check_activation(kind, v, alpha, beta, 0);
    }
}

/* 2e-6 of the result, and where the formula subtracts, of what it subtracts from. */
static double tolerance(int32_t kind, double v, double want, double alpha, double beta) {
    double scale = fabs(want);
    if (kind == FX_UNARY_GELU || kind == FX_UNARY_GELU_TANH || kind == FX_UNARY_HARDSWISH)
        scale += 0.1 * fabs(v);
    else if (kind == FX_UNARY_HARDSIGMOID)
        scale += 0.1 * (fabs(alpha * v) + fabs(beta));
    else if (kind == FX_UNARY_SIGMOID || kind == FX_UNARY_SILU) /* exp(-v) rounds its argument's neighbourhood */
        scale *= 1 + 0.1 * fabs(v);
    else if (kind == FX_UNARY_CELU)
        scale *= 1 + 0.1 * fabs(v / alpha);
    return isinf(want) ? 0 : 2e-6 * scale + 1e-36; /* e^88 is the largest: 1 over it */
}

static void expect(const check_case *c, check_expected *e) {
    const fx_unary_params *p = &c->params.unary;
    const float *x = c->in[0];
    check_walk w = {0};
    do {
        const double v = x[check_at(&w, BOX(c, unary, xs))], want = (float)apply(p->kind, v, p->alpha, p->beta);
        check_set(c, e, check_at(&w, BOX(c, unary, ys)), want, tolerance(p->kind, v, want, p->alpha, p->beta));
    } while (check_step(&w, BOX(c, unary, d)));
}

static void draw(check_case *c) {
    fx_unary_params *p = &c->params.unary;
    do
        p->kind = check_int(c, 0, FX_UNARY_COUNT - 1);
    while (p->kind == FX_UNARY_PRELU);
    check_draw_box(c, BOX(c, unary, d), BOX(c, unary, ys));
    check_draw_strides(c, BOX(c, unary, d), BOX(c, unary, xs));
    p->alpha = check_real(c), p->beta = p->alpha + 1;
    if (p->kind == FX_UNARY_CELU) /* alpha as in practice: otherwise e^(v / alpha) overflows */
        p->alpha = 0.1f + fabsf(p->alpha);
}

/* Numbers of every size, and the special ones, except where the two ways of writing a formula give NaN or a limit. */
static void fill(check_case *c) {
    static const float specials[] = {0,      -0.0f, 1,   -1,   INFINITY, -INFINITY, NAN,
                                     1e-40f, 88.5f, -87, -103, 0.5f,     2.5f,      -1.5f};
    const int32_t kind = c->params.unary.kind;
    const int has_limits = kind == FX_UNARY_SILU || kind == FX_UNARY_GELU || kind == FX_UNARY_GELU_TANH ||
                           kind == FX_UNARY_MISH || kind == FX_UNARY_HARDSWISH || kind == FX_UNARY_SOFTSIGN ||
                           kind == FX_UNARY_HARDSIGMOID || kind == FX_UNARY_SIN || kind == FX_UNARY_COS ||
                           kind == FX_UNARY_LEAKY_RELU || kind == FX_UNARY_ELU || kind == FX_UNARY_SELU ||
                           kind == FX_UNARY_CELU;
    float *x = (float *)((char *)c->in[0] + c->in_lo[0]);
    for (int64_t i = 0; i < (c->in_hi[0] - c->in_lo[0]) / 4; i++) {
        x[i] = check_real(c) * (float)CHECK_PICK(c, 1, 1, 4, 12, 90);
        if (check_one_in(c, 12))
            x[i] = specials[check_int(c, 0, (int32_t)(sizeof specials / sizeof *specials) - 1)];
        if (has_limits && isinf(x[i]))
            x[i] = 0.25f;
    }
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    if (i >= FX_UNARY_COUNT)
        return 0;
    fx_unary_params *p = &c->params.unary;
    *p = (fx_unary_params){.kind = i == FX_UNARY_PRELU ? FX_UNARY_NONE : i,
                           .d0 = 1,
                           .d1 = 1,
                           .d2 = 1,
                           .d3 = 1,
                           .d4 = 1,
                           .d5 = 1 << 16,
                           .xs5 = 1,
                           .ys5 = 1,
                           .alpha = 0.5f,
                           .beta = 1};
    *flops = 0;
    *bytes = 8.0 * p->d5;
    snprintf(name, 64, "%s of 64 K", fx_enum_name("unary_kind", p->kind));
    return 1;
}

const check_op check_unary = {.draw = draw, .fill = fill, .expect = expect, .bench = bench};
