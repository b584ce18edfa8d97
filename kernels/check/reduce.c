/* Reductions against their formulas in double precision. */
#include "typed.h"

#include <math.h>
#include <stdio.h>

static void expect_one(const check_case *c, check_expected *e, int outer, int j) {
    const fx_reduce_params *p = &c->params.reduce;
    const float *x = (const float *)c->in[0] + (int64_t)outer * p->n * p->inner + j;
    double sum = 0, magnitude = 0, squares = 0, product = 1, max = -INFINITY, min = INFINITY, exps = 0;
    int is_nan = 0;
    for (int q = 0; q < p->n; q++) {
        const double v = x[(int64_t)q * p->inner];
        is_nan |= isnan(v);
        sum += v, magnitude += fabs(v), squares += v * v, product *= v;
        max = fmax(max, v), min = fmin(min, v);
    }
    for (int q = 0; q < p->n; q++)
        exps += exp(x[(int64_t)q * p->inner] - max);
    const double linear = check_sum_tolerance(p->n, magnitude), square = check_sum_tolerance(p->n, squares);
    double y = 0, tolerance = 0;
    switch (p->kind) {
    case FX_REDUCE_SUM:
        y = sum, tolerance = linear;
        break;
    case FX_REDUCE_MEAN:
        y = sum / p->n, tolerance = linear / p->n + 1e-7 * fabs(y);
        break;
    case FX_REDUCE_MAX:
        y = is_nan ? NAN : max;
        break;
    case FX_REDUCE_MIN:
        y = is_nan ? NAN : min;
        break;
    case FX_REDUCE_PROD:
        y = product, tolerance = check_sum_tolerance(p->n, fabs(product)) + 1e-37;
        break;
    case FX_REDUCE_L1:
        y = magnitude, tolerance = linear;
        break;
    case FX_REDUCE_L2:
        y = sqrt(squares), tolerance = square / (2 * y + 1e-30) + 1e-7 * y;
        break;
    case FX_REDUCE_SUM_SQUARE:
        y = squares, tolerance = square;
        break;
    case FX_REDUCE_LOG_SUM:
        y = log(sum), tolerance = linear / sum + 4e-7 * (1 + fabs(y));
        break;
    case FX_REDUCE_LOG_SUM_EXP:
        y = isinf(max) && !is_nan ? max : max + log(exps), tolerance = 1e-6 * (1 + fabs(max) + fabs(y));
        y = is_nan ? NAN : y;
        break;
    }
    check_set(c, e, (int64_t)outer * p->inner + j, y, tolerance);
}

/* Integers: sums of 64 bits, which wrap as narrower ones do. */
static void expect_integer(const check_case *c, check_expected *e, int outer, int j) {
    const fx_reduce_params *p = &c->params.reduce;
    const int is_signed = check_is_signed(p->dtype);
    uint64_t sum = 0, size = 0, squares = 0, product = 1, max = 0, min = 0;
    for (int q = 0; q < p->n; q++) {
        const int64_t v = check_integer_at(c->in[0], p->dtype, ((int64_t)outer * p->n + q) * p->inner + j);
        const uint64_t u = (uint64_t)v;
        sum += u, squares += u * u, product *= u;
        size += is_signed && v < 0 ? 0 - u : u;
        if (q == 0 || (is_signed ? v > (int64_t)max : u > max))
            max = u;
        if (q == 0 || (is_signed ? v < (int64_t)min : u < min))
            min = u;
    }
    const uint64_t mean = is_signed ? (uint64_t)((int64_t)sum / p->n) : sum / (uint64_t)p->n;
    const uint64_t results[] = {[FX_REDUCE_SUM] = sum,           [FX_REDUCE_MEAN] = mean,    [FX_REDUCE_MAX] = max,
                                [FX_REDUCE_MIN] = min,           [FX_REDUCE_PROD] = product, [FX_REDUCE_L1] = size,
                                [FX_REDUCE_SUM_SQUARE] = squares};
    check_set_integer(e, p->dtype, (int64_t)outer * p->inner + j, results[p->kind]);
}

/* f64: of multiples of 1/2, whose sums are exact; products are of 1/2, 1 and 2. */
static void expect_double(const check_case *c, check_expected *e, int outer, int j) {
    const fx_reduce_params *p = &c->params.reduce;
    const double *x = (const double *)c->in[0] + (int64_t)outer * p->n * p->inner + j;
    double sum = 0, size = 0, squares = 0, product = 1, max = x[0], min = x[0], exps = 0;
    for (int q = 0; q < p->n; q++) {
        const double v = x[(int64_t)q * p->inner];
        sum += v, size += fabs(v), squares += v * v, product *= v;
        max = isnan(max) || v <= max ? max : v, min = isnan(min) || v >= min ? min : v;
    }
    const double most = isinf(max) ? 0 : max;
    for (int q = 0; q < p->n; q++)
        exps += exp(x[(int64_t)q * p->inner] - most);
    const double results[] = {[FX_REDUCE_SUM] = sum,          [FX_REDUCE_MEAN] = sum / p->n,
                              [FX_REDUCE_MAX] = max,          [FX_REDUCE_MIN] = min,
                              [FX_REDUCE_PROD] = product,     [FX_REDUCE_L1] = size,
                              [FX_REDUCE_L2] = sqrt(squares), [FX_REDUCE_SUM_SQUARE] = squares,
                              [FX_REDUCE_LOG_SUM] = log(sum), [FX_REDUCE_LOG_SUM_EXP] = log(exps) + most};
    check_set_double(e, p->dtype, (int64_t)outer * p->inner + j, results[p->kind]);
}

static int is_exact(const check_case *c) {
    return c->params.reduce.dtype != FX_DTYPE_F32;
}

static void expect(const check_case *c, check_expected *e) {
    const fx_reduce_params *p = &c->params.reduce;
    for (int outer = 0; outer < p->outer; outer++)
        for (int j = 0; j < p->inner; j++)
            if (p->dtype == FX_DTYPE_F32)
                expect_one(c, e, outer, j);
            else if (p->dtype == FX_DTYPE_F64)
                expect_double(c, e, outer, j);
            else
                expect_integer(c, e, outer, j);
}

static void draw(check_case *c) {
    fx_reduce_params *p = &c->params.reduce;
    p->kind = check_int(c, 0, FX_REDUCE_COUNT - 1);
    p->outer = check_int(c, 1, 9);
    p->n = check_one_in(c, 3) ? check_int(c, 1, 700) : check_int(c, 1, 40);
    p->inner = check_one_in(c, 2) ? 1 : check_int(c, 2, 150);
    p->dtype = check_one_in(c, 2) ? FX_DTYPE_F32 : check_int(c, 0, FX_DTYPE_COUNT - 1);
    const int has_root = p->kind == FX_REDUCE_L2 || p->kind == FX_REDUCE_LOG_SUM || p->kind == FX_REDUCE_LOG_SUM_EXP;
    if (p->dtype == FX_DTYPE_F16 || (has_root && !check_is_float(p->dtype)))
        p->dtype = FX_DTYPE_F64;
    if (p->dtype == FX_DTYPE_BOOL)
        p->kind = CHECK_PICK(c, FX_REDUCE_MAX, FX_REDUCE_MIN);
}

static void fill_typed(check_case *c) {
    const fx_reduce_params *p = &c->params.reduce;
    const int has_order = p->kind == FX_REDUCE_MAX || p->kind == FX_REDUCE_MIN;
    check_fill_typed(c, c->in[0], c->in_hi[0], p->dtype, has_order);
    double *x = c->in[0];
    for (int64_t i = 0; p->dtype == FX_DTYPE_F64 && i < c->in_hi[0] / 8; i++) {
        if (p->kind == FX_REDUCE_PROD)
            x[i] = ldexp(check_one_in(c, 2) ? 1 : -1, check_int(c, -1, 1));
        if (p->kind == FX_REDUCE_LOG_SUM)
            x[i] = fabs(x[i]) + 1;
    }
}

static void fill(check_case *c) {
    const fx_reduce_params *p = &c->params.reduce;
    if (p->dtype != FX_DTYPE_F32) {
        fill_typed(c);
        return;
    }
    float *x = c->in[0];
    const int32_t count = (int32_t)(c->in_hi[0] / 4);
    const float scale = (float)CHECK_PICK(c, 1, 10);
    for (int32_t i = 0; i < count; i++) {
        x[i] = check_real(c) * scale;
        if (p->kind == FX_REDUCE_LOG_SUM) /* a sum well above 0, so that its logarithm is exact enough to compare */
            x[i] = fabsf(x[i]) + 0.1f;
        if (p->kind == FX_REDUCE_PROD && fabsf(x[i]) > 1) /* 700 factors must stay finite */
            x[i] = 1 / x[i];
    }
    const int has_order = p->kind == FX_REDUCE_MAX || p->kind == FX_REDUCE_MIN || p->kind == FX_REDUCE_LOG_SUM_EXP;
    if (has_order && check_one_in(c, 3))
        x[check_int(c, 0, count - 1)] = NAN;
    if (has_order && check_one_in(c, 3))
        for (int i = 0; i < 6; i++)
            x[check_int(c, 0, count - 1)] = i % 3 ? -INFINITY : INFINITY;
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const int shapes[][4] = {{FX_REDUCE_SUM, 1, 1 << 20, 1},       {FX_REDUCE_MEAN, 197, 768, 1},
                                    {FX_REDUCE_MEAN, 1, 3136, 256},       {FX_REDUCE_MAX, 1, 196, 1024},
                                    {FX_REDUCE_LOG_SUM_EXP, 64, 4096, 1}, {FX_REDUCE_L2, 64, 4096, 1}};
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    fx_reduce_params *p = &c->params.reduce;
    *p = (fx_reduce_params){.kind = shapes[i][0], .outer = shapes[i][1], .n = shapes[i][2], .inner = shapes[i][3]};
    *flops = 0;
    *bytes = 4.0 * p->outer * p->n * p->inner;
    snprintf(name, 64, "%s [%d, %d, %d]", fx_enum_name("reduce_kind", p->kind), p->outer, p->n, p->inner);
    return 1;
}

const check_op check_reduce = {.draw = draw, .fill = fill, .expect = expect, .is_case_exact = is_exact, .bench = bench};
