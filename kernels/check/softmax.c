/* Softmax against the formula in double precision. */
#include "check.h"

#include <math.h>
#include <stdio.h>

static void expect_column(const check_case *c, check_expected *e, int64_t at) {
    const fx_softmax_params *p = &c->params.softmax;
    const float *x = (const float *)c->in[0] + at;
    double max = -INFINITY, sum = 0;
    int is_nan = 0;
    for (int q = 0; q < p->n; q++) {
        is_nan |= isnan(x[(int64_t)q * p->inner]);
        max = fmax(max, x[(int64_t)q * p->inner]);
    }
    is_nan |= isinf(max);
    for (int q = 0; q < p->n; q++)
        sum += exp(x[(int64_t)q * p->inner] - max);
    for (int q = 0; q < p->n; q++) {
        const double v = x[(int64_t)q * p->inner] - max, y = p->log ? v - log(sum) : exp(v) / sum;
        const double rounding = check_sum_tolerance(p->n, sum) / sum + 4e-7;
        const double tolerance =
            p->log ? rounding * (1 + fabs(v) + fabs(log(sum))) : rounding * y * (1 + fabs(v)) + 1e-37;
        check_set(c, e, at + (int64_t)q * p->inner, is_nan ? NAN : y, tolerance);
    }
}

static void expect(const check_case *c, check_expected *e) {
    const fx_softmax_params *p = &c->params.softmax;
    for (int outer = 0; outer < p->outer; outer++)
        for (int j = 0; j < p->inner; j++)
            expect_column(c, e, (int64_t)outer * p->n * p->inner + j);
}

static void draw(check_case *c) {
    fx_softmax_params *p = &c->params.softmax;
    p->outer = check_int(c, 1, 9);
    p->n = check_one_in(c, 3) ? check_int(c, 1, 300) : check_int(c, 1, 40);
    p->inner = check_one_in(c, 2) ? 1 : check_int(c, 2, check_one_in(c, 2) ? 15 : 150);
    p->log = check_int(c, 0, 1);
}

static void fill(check_case *c) {
    float *x = c->in[0];
    const int32_t count = (int32_t)(c->in_hi[0] / 4);
    const float scale = (float)CHECK_PICK(c, 1, 10, 100);
    for (int32_t i = 0; i < count; i++)
        x[i] = check_real(c) * scale;
    if (check_one_in(c, 5))
        x[check_int(c, 0, count - 1)] = NAN;
    for (int i = check_one_in(c, 5) ? 5 : 0; i > 0; i--)
        x[check_int(c, 0, count - 1)] = -INFINITY;
    if (check_one_in(c, 8))
        x[check_int(c, 0, count - 1)] = INFINITY;
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const int shapes[][3] = {{1, 1000, 1},  {2364, 197, 1}, {40, 6625, 1}, {1, 21, 40000},
                                    {16, 64, 196}, {197, 196, 4},  {197, 196, 6}, {40, 16, 7}};
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    fx_softmax_params *p = &c->params.softmax;
    *p = (fx_softmax_params){.outer = shapes[i][0], .n = shapes[i][1], .inner = shapes[i][2]};
    *flops = 0;
    *bytes = 8.0 * p->outer * p->n * p->inner;
    snprintf(name, 64, "[%d, %d, %d]", p->outer, p->n, p->inner);
    return 1;
}

const check_op check_softmax = {.draw = draw, .fill = fill, .expect = expect, .bench = bench};
