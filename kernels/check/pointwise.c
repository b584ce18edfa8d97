/* Comparisons, bits, arithmetic, functions and choices, element by element, in wider arithmetic. */
#include "boxes.h"
#include "typed.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int is_test(int32_t kind) {
    return kind >= FX_POINTWISE_IS_NAN && kind <= FX_POINTWISE_IS_INF_BELOW;
}

static int is_truth(int32_t kind) {
    return is_test(kind) || (kind >= FX_POINTWISE_EQUAL && kind <= FX_POINTWISE_LESS_EQUAL);
}

static void draw(check_case *c) {
    fx_pointwise_params *p = &c->params.pointwise;
    p->kind = check_int(c, 0, FX_POINTWISE_COUNT - 1);
    const int is_bits = p->kind >= FX_POINTWISE_AND && p->kind <= FX_POINTWISE_NOT;
    do
        p->dtype = is_test(p->kind) || p->kind >= FX_POINTWISE_FLOOR ? CHECK_PICK(c, FX_DTYPE_F32, FX_DTYPE_F64)
                                                                     : check_int(c, 0, FX_DTYPE_COUNT - 1);
    while (p->kind != FX_POINTWISE_WHERE && (p->dtype == FX_DTYPE_F16 || (is_bits && check_is_float(p->dtype)) ||
                                             (p->kind >= FX_POINTWISE_ADD && p->dtype == FX_DTYPE_BOOL)));
    check_draw_box(c, BOX(c, pointwise, d), BOX(c, pointwise, ys));
    check_draw_strides(c, BOX(c, pointwise, d), BOX(c, pointwise, as));
    check_draw_strides(c, BOX(c, pointwise, d), BOX(c, pointwise, bs));
    check_draw_strides(c, BOX(c, pointwise, d), BOX(c, pointwise, cs));
}

static void fill(check_case *c) {
    for (int o = 0; o < 3; o++)
        if (c->in[o])
            check_fill_typed(c, (char *)c->in[o] + c->in_lo[o], c->in_hi[o] - c->in_lo[o],
                             o == 2                                      ? FX_DTYPE_BOOL
                             : c->params.pointwise.dtype == FX_DTYPE_F16 ? FX_DTYPE_I16
                                                                         : c->params.pointwise.dtype,
                             1);
}

/* v mod w for w not 0, with the sign of w. */
static int64_t modulo(int64_t v, int64_t w) {
    const int64_t rest = w == -1 ? 0 : v % w;
    return rest && (rest < 0) != (w < 0) ? rest + w : rest;
}

static uint64_t power(int64_t v, int64_t w, int is_signed) {
    uint64_t y = 1;
    if (is_signed && w < 0)
        return v == 1 ? 1 : v == -1 ? (w % 2 ? ~UINT64_C(0) : 1) : 0;
    if (v == 0 || v == 1)
        return w == 0 ? 1 : (uint64_t)v;
    /* Of any other, what is left of so large an exponent repeats, or is 0: by bits from the top. */
    for (int bit = 63; bit >= 0; bit--)
        y = y * y * ((uint64_t)w >> bit & 1 ? (uint64_t)v : 1);
    return y;
}

/* Of unsigned types whose numbers need all 64 bits: those whose results depend on the sign. */
static uint64_t compute_unsigned(int32_t kind, uint64_t v, uint64_t w) {
    switch (kind) {
    case FX_POINTWISE_LESS:
        return v < w;
    case FX_POINTWISE_LESS_EQUAL:
        return v <= w;
    case FX_POINTWISE_DIV:
        return w ? v / w : 0;
    case FX_POINTWISE_MOD:
    case FX_POINTWISE_FMOD:
        return w ? v % w : 0;
    case FX_POINTWISE_MAX:
        return v > w ? v : w;
    case FX_POINTWISE_MIN:
        return v < w ? v : w;
    case FX_POINTWISE_ABS:
        return v;
    default: /* SIGN */
        return v != 0;
    }
}

/* The low bits are the result, whatever the type. */
static uint64_t compute(int32_t kind, int32_t dtype, int64_t v, int64_t w) {
    const int is_signed = check_is_signed(dtype);
    const uint64_t bits = 8 * (uint64_t)fx_dtype_bytes(dtype), a = (uint64_t)v, b = (uint64_t)w;
    switch (kind) {
    case FX_POINTWISE_EQUAL:
        return v == w;
    case FX_POINTWISE_AND:
        return a & b;
    case FX_POINTWISE_OR:
        return a | b;
    case FX_POINTWISE_XOR:
        return a ^ b;
    case FX_POINTWISE_SHIFT_LEFT:
        return b < bits ? a << b : 0;
    case FX_POINTWISE_SHIFT_RIGHT:
        return b >= bits ? (is_signed && v < 0 ? ~UINT64_C(0) : 0) : is_signed ? (uint64_t)(v >> b) : a >> b;
    case FX_POINTWISE_NOT:
        return dtype == FX_DTYPE_BOOL ? !v : ~a;
    case FX_POINTWISE_ADD:
        return a + b;
    case FX_POINTWISE_SUB:
        return a - b;
    case FX_POINTWISE_MUL:
        return a * b;
    case FX_POINTWISE_POW:
        return power(v, w, is_signed);
    case FX_POINTWISE_NEG:
        return 0 - a;
    }
    if (!is_signed)
        return compute_unsigned(kind, a, b);
    switch (kind) {
    case FX_POINTWISE_LESS:
        return v < w;
    case FX_POINTWISE_LESS_EQUAL:
        return v <= w;
    case FX_POINTWISE_DIV:
        return w == 0 ? 0 : w == -1 ? 0 - a : (uint64_t)(v / w);
    case FX_POINTWISE_MOD:
        return w == 0 ? 0 : (uint64_t)modulo(v, w);
    case FX_POINTWISE_FMOD:
        return w == 0 || w == -1 ? 0 : (uint64_t)(v % w);
    case FX_POINTWISE_MAX:
        return (uint64_t)(v > w ? v : w);
    case FX_POINTWISE_MIN:
        return (uint64_t)(v < w ? v : w);
    case FX_POINTWISE_ABS:
        return v < 0 ? 0 - a : a;
    default: /* SIGN */
        return (uint64_t)((v > 0) - (v < 0));
    }
}

static int holds(int32_t kind, double v, double w) {
    switch (kind) {
    case FX_POINTWISE_EQUAL:
        return v == w;
    case FX_POINTWISE_LESS:
        return v < w;
    case FX_POINTWISE_LESS_EQUAL:
        return v <= w;
    case FX_POINTWISE_IS_NAN:
        return isnan(v);
    case FX_POINTWISE_IS_INF:
        return isinf(v) != 0;
    case FX_POINTWISE_IS_INF_ABOVE:
        return isinf(v) && v > 0;
    default:
        return isinf(v) && v < 0;
    }
}

static double arithmetic(int32_t kind, double v, double w) {
    switch (kind) {
    case FX_POINTWISE_ADD:
        return v + w;
    case FX_POINTWISE_SUB:
        return v - w;
    case FX_POINTWISE_MUL:
        return v * w;
    case FX_POINTWISE_DIV:
        return v / w;
    case FX_POINTWISE_MOD: {
        const double rest = fmod(v, w);
        return rest && (rest < 0) != (w < 0) ? rest + w : rest == 0 ? copysign(rest, w) : rest;
    }
    case FX_POINTWISE_FMOD:
        return fmod(v, w);
    case FX_POINTWISE_POW:
        return pow(v, w);
    case FX_POINTWISE_MAX:
        return isnan(v) ? v : v > w ? v : w;
    case FX_POINTWISE_MIN:
        return isnan(v) ? v : v < w ? v : w;
    case FX_POINTWISE_NEG:
        return -v;
    case FX_POINTWISE_ABS:
        return fabs(v);
    case FX_POINTWISE_SIGN:
        return isnan(v) ? v : (v > 0) - (v < 0);
    case FX_POINTWISE_RECIPROCAL:
        return 1 / v;
    case FX_POINTWISE_SIGMOID:
        return v < 0 ? exp(v) / (1 + exp(v)) : 1 / (1 + exp(-v));
    default: /* SOFTPLUS */
        return (v > 0 ? v : 0) + log1p(exp(-fabs(v)));
    }
}

static double apply(int32_t kind, double v, double w) {
    static double (*const functions[FX_POINTWISE_COUNT])(double) = {
        [FX_POINTWISE_FLOOR] = floor, [FX_POINTWISE_CEIL] = ceil,   [FX_POINTWISE_ROUND] = rint,
        [FX_POINTWISE_SQRT] = sqrt,   [FX_POINTWISE_EXP] = exp,     [FX_POINTWISE_LOG] = log,
        [FX_POINTWISE_SIN] = sin,     [FX_POINTWISE_COS] = cos,     [FX_POINTWISE_TAN] = tan,
        [FX_POINTWISE_ASIN] = asin,   [FX_POINTWISE_ACOS] = acos,   [FX_POINTWISE_ATAN] = atan,
        [FX_POINTWISE_SINH] = sinh,   [FX_POINTWISE_COSH] = cosh,   [FX_POINTWISE_TANH] = tanh,
        [FX_POINTWISE_ASINH] = asinh, [FX_POINTWISE_ACOSH] = acosh, [FX_POINTWISE_ATANH] = atanh,
        [FX_POINTWISE_ERF] = erf};
    return functions[kind] ? functions[kind](v) : arithmetic(kind, v, w);
}

static void expect_one(const check_case *c, check_expected *e, const check_walk *w) {
    const fx_pointwise_params *p = &c->params.pointwise;
    const int64_t a = check_at(w, BOX(c, pointwise, as)), b = check_at(w, BOX(c, pointwise, bs));
    const int32_t dtype = p->dtype, to = is_truth(p->kind) ? FX_DTYPE_BOOL : dtype;
    const int64_t size = fx_dtype_bytes(to), at = check_at(w, BOX(c, pointwise, ys)) - c->out_lo / size;
    const int has_second = c->in[1] != NULL;
    if (p->kind == FX_POINTWISE_WHERE) {
        const int is_first = ((const uint8_t *)c->in[2])[check_at(w, BOX(c, pointwise, cs))] != 0;
        const int32_t kind = dtype == FX_DTYPE_F16 ? FX_DTYPE_I16 : dtype;
        uint64_t bits = 0;
        memcpy(&bits, (const char *)c->in[is_first ? 0 : 1] + (is_first ? a : b) * size, (size_t)size);
        check_set_integer(e, kind, at, bits);
    } else if (check_is_float(dtype)) {
        const double v = check_double_at(c->in[0], dtype, a);
        const double second = has_second ? check_double_at(c->in[1], dtype, b) : 0;
        if (is_truth(p->kind))
            check_set_integer(e, to, at, (uint64_t)holds(p->kind, v, second));
        else
            check_set_double(e, to, at, apply(p->kind, v, second));
    } else {
        const int64_t v = check_integer_at(c->in[0], dtype, a);
        const int64_t second = has_second ? check_integer_at(c->in[1], dtype, b) : 0;
        check_set_integer(e, to, at, compute(p->kind, dtype, v, second));
    }
}

static void expect(const check_case *c, check_expected *e) {
    check_walk w = {0};
    do
        expect_one(c, e, &w);
    while (check_step(&w, BOX(c, pointwise, d)));
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const struct {
        const char *name;
        int32_t kind, dtype, rows, n;
    } shapes[] = {{"where", FX_POINTWISE_WHERE, FX_DTYPE_F32, 768, 64},
                  {"equal", FX_POINTWISE_EQUAL, FX_DTYPE_I64, 64, 64},
                  {"add", FX_POINTWISE_ADD, FX_DTYPE_I32, 768, 64},
                  {"add", FX_POINTWISE_ADD, FX_DTYPE_I64, 768, 64},
                  {"quotient", FX_POINTWISE_DIV, FX_DTYPE_I64, 768, 64}};
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    fx_pointwise_params *p = &c->params.pointwise;
    *p = (fx_pointwise_params){.kind = shapes[i].kind, .dtype = shapes[i].dtype, .d0 = 1, .d1 = 1, .d2 = 1, .d3 = 1};
    p->d4 = shapes[i].rows, p->d5 = shapes[i].n;
    p->as4 = p->bs4 = p->cs4 = p->ys4 = p->d5, p->as5 = p->bs5 = p->cs5 = p->ys5 = 1;
    *flops = 0;
    *bytes = 3.0 * p->d4 * p->d5 * (double)fx_dtype_bytes(p->dtype);
    snprintf(name, 64, "%s of %s, %dx%d", shapes[i].name, fx_enum_name("dtype", p->dtype), p->d4, p->d5);
    return 1;
}

const check_op check_pointwise = {.draw = draw, .fill = fill, .expect = expect, .is_exact = 1, .bench = bench};
