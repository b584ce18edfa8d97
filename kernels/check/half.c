/* Operators over numbers of 16 bits, against the checks of those over floats: the same cases on operands that are
 * rounded, and results that are. */
#include "flexnn/half.h"
#include "half_sums.h"

#include <stdlib.h>

static int is_half(const check_case *c, int operand) {
    return fx_op_element_bytes(c->op, &c->params, operand) == 2;
}

static int64_t element_bytes(const check_case *c) {
    return fx_op_element_bytes(c->op, &c->params, FX_OUTPUT);
}

/* The same case of the operator over floats: operands that are halves are floats in memory of its own. */
static check_case floats_of(const check_case *c, uint32_t plain) {
    check_case f = *c;
    f.op = plain;
    for (int i = 0; i < fx_op_inputs(plain); i++) {
        if (!c->in[i] || !is_half(c, i))
            continue;
        f.in_lo[i] = 2 * c->in_lo[i], f.in_hi[i] = 2 * c->in_hi[i];
        f.in[i] = (char *)malloc((size_t)(f.in_hi[i] - f.in_lo[i])) - f.in_lo[i];
        for (int64_t at = c->in_lo[i] / 2; at < c->in_hi[i] / 2; at++)
            ((float *)f.in[i])[at] = (float)fx_half_to(((const uint16_t *)c->in[i])[at]);
    }
    if (is_half(c, FX_OUTPUT))
        f.out_lo = 2 * c->out_lo, f.out_hi = 2 * c->out_hi;
    return f;
}

static void free_floats(const check_case *c, check_case *f) {
    for (int i = 0; i < FX_MAX_INPUTS; i++)
        if (f->in[i] != c->in[i])
            free((char *)f->in[i] + f->in_lo[i]);
}

static void fill(check_case *c, uint32_t plain, const check_op *op) {
    check_case f = floats_of(c, plain);
    if (op->fill)
        op->fill(&f);
    for (int i = 0; i < fx_op_inputs(plain); i++) {
        if (!op->fill && c->in[i])
            check_fill(&f, (char *)f.in[i] + f.in_lo[i], f.in_hi[i] - f.in_lo[i]);
        if (i == 0 && check_adds_halves(c) && !c->is_sampled &&
            check_one_in(&f, 8)) /* sums of halves that become infinite */
            for (int64_t at = f.in_lo[0] / 4; at < f.in_hi[0] / 4; at++)
                ((float *)f.in[0])[at] *= 8000;
        for (int64_t at = c->in_lo[i] / 2; c->in[i] && is_half(c, i) && at < c->in_hi[i] / 2; at++)
            ((uint16_t *)c->in[i])[at] = fx_half_from(((const float *)f.in[i])[at]);
    }
    c->random = f.random;
    free_floats(c, &f);
}

/* What is stored, before it is rounded to halves. Errors against double precision (is_sampled) may be those of runs. */
static void expect_sums(const check_case *c, check_expected *e, uint32_t plain, const check_op *op) {
    if (check_adds_halves(c) && !c->is_sampled) {
        check_half_sums(c, e);
        return;
    }
    check_case f = floats_of(c, plain);
    op->expect(&f, e);
    free_floats(c, &f);
    const double terms = plain == FX_OP_CONV ? (double)c->params.conv.kh * c->params.conv.kw * c->params.conv.cin_panel
                                             : (double)c->params.dwconv.kh * c->params.dwconv.kw;
    for (int64_t i = 0; check_adds_halves(c) && i < (c->out_hi - c->out_lo) / element_bytes(c); i++)
        e->tolerance[i] *= (FX_HALF_RUN + 8) * 0x1p-11 / ((terms + 8) * 0x1p-24);
}

static void expect(const check_case *c, check_expected *e, uint32_t plain, const check_op *op) {
    expect_sums(c, e, plain, op);
    for (int64_t i = 0; is_half(c, FX_OUTPUT) && i < (c->out_hi - c->out_lo) / 2; i++) {
        if (e->tolerance[i] == 0 && check_adds_halves(c))
            e->value[i] = fx_half_to(fx_half_from(e->value[i]));
        else
            e->tolerance[i] += fabs(e->value[i]) * 0x1p-11 + 0x1p-25;
        if (isfinite(e->value[i]) && fabs(e->value[i]) >= FX_F16_BEYOND)
            e->value[i] = copysign(INFINITY, e->value[i]);
    }
}

/* FX_ERR_RANGE where a finite result has no half. */
static fx_status status(const check_case *c, uint32_t plain, const check_op *op) {
    const int64_t elements = (c->out_hi - c->out_lo) / element_bytes(c);
    check_expected e = {.value = calloc((size_t)elements + 1, sizeof(double)),
                        .tolerance = calloc((size_t)elements + 1, sizeof(double)),
                        .written = calloc((size_t)elements + 1, 1)};
    fx_status wanted = FX_OK;
    expect_sums(c, &e, plain, op);
    for (int64_t i = 0; is_half(c, FX_OUTPUT) && i < elements; i++)
        if (e.written[i] && fabs(e.value[i]) >= FX_F16_BEYOND && isfinite((float)e.value[i]))
            wanted = FX_ERR_RANGE;
    free(e.value), free(e.tolerance), free(e.written);
    return wanted;
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes, const check_op *op, int32_t *f16) {
    int count = 0;
    while (c->op == FX_OP_CONV_F16 && op->bench(count, c, name, flops, bytes))
        count++;
    const int adds_halves = c->op == FX_OP_CONV_F16 && i >= count;
    for (int at = 0; adds_halves && i >= count; at++) { /* once more, those that HALF can compute */
        if (!op->bench(at, c, name, flops, bytes))
            return 0;
        c->params.conv_f16.f16 = 1 | 1 << FX_F16_OUTPUT;
        if (c->kernel == FX_CONV_DIRECT && fx_op_check(c->op, FX_CONV_HALF, &c->params) == FX_OK)
            count++, c->kernel = FX_CONV_HALF;
    }
    if (!adds_halves && (!op->bench || !op->bench(i, c, name, flops, bytes)))
        return 0;
    if (adds_halves && strstr(name, "kernel"))
        strstr(name, "kernel")[7] = '0' + FX_CONV_HALF;
    *f16 = fx_op_inputs(c->op) == 2 && c->op == FX_OP_BINARY_F16 ? 7 : 1 | 1 << FX_F16_OUTPUT;
    *bytes /= 2;
    return 1;
}

/* Of cases with sums of integers, those with sums of floats; FIXED: what else a case must have. */
/* Every third convolution adds up halves where it can. */
static void draw_half_sums(check_case *c) {
    if (check_one_in(c, 3) && fx_op_check(c->op, FX_CONV_HALF, &c->params) == FX_OK)
        c->kernel = FX_CONV_HALF;
}

#define HALF_CHECK(name, plain, PLAIN, inputs, FIXED)                                                                  \
    static void draw_##name(check_case *c) {                                                                           \
        check_##plain.draw(c);                                                                                         \
        c->is_exact = 0;                                                                                               \
        c->params.name.f16 = check_int(c, 1, (1 << inputs) - 1) | check_int(c, 0, 1) << FX_F16_OUTPUT;                 \
        FIXED;                                                                                                         \
    }                                                                                                                  \
    static void fill_##name(check_case *c) {                                                                           \
        fill(c, FX_OP_##PLAIN, &check_##plain);                                                                        \
    }                                                                                                                  \
    static void expect_##name(const check_case *c, check_expected *e) {                                                \
        expect(c, e, FX_OP_##PLAIN, &check_##plain);                                                                   \
    }                                                                                                                  \
    static fx_status status_##name(const check_case *c) {                                                              \
        return status(c, FX_OP_##PLAIN, &check_##plain);                                                               \
    }                                                                                                                  \
    static int bench_##name(int i, check_case *c, char *text, double *flops, double *bytes) {                          \
        return bench(i, c, text, flops, bytes, &check_##plain, &c->params.name.f16);                                   \
    }                                                                                                                  \
    const check_op check_##name = {.draw = draw_##name,                                                                \
                                   .fill = fill_##name,                                                                \
                                   .expect = expect_##name,                                                            \
                                   .status = status_##name,                                                            \
                                   .bench = bench_##name};

HALF_CHECK(conv_f16, conv, CONV, 2, (c->params.conv.sums = FX_DTYPE_F32, draw_half_sums(c)))
HALF_CHECK(dwconv_f16, dwconv, DWCONV, 2, c->params.dwconv.sums = FX_DTYPE_F32)
HALF_CHECK(pool_f16, pool, POOL, 1, (void)c)
HALF_CHECK(unary_f16, unary, UNARY, 1, (void)c)
HALF_CHECK(binary_f16, binary, BINARY, 2, (void)c)
HALF_CHECK(resize_f16, resize, RESIZE, 1, (void)c)
HALF_CHECK(reduce_f16, reduce, REDUCE, 1,
           (c->params.reduce.dtype = FX_DTYPE_F32, c->params.reduce.kind = check_int(c, FX_REDUCE_SUM, FX_REDUCE_MIN),
            c->params.reduce_f16.f16 = 1))
