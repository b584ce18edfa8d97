/* Running sums and products, each taken anew from its first number on. */
#include "typed.h"

#include <math.h>

static void draw(check_case *c) {
    fx_cumulate_params *p = &c->params.cumulate;
    do
        p->dtype = check_int(c, 0, FX_DTYPE_COUNT - 1);
    while (p->dtype == FX_DTYPE_F16 || p->dtype == FX_DTYPE_BOOL);
    p->outer = check_int(c, 1, 5);
    p->n = check_int(c, 1, 60);
    p->inner = check_one_in(c, 2) ? 1 : check_int(c, 2, 150);
    p->is_product = check_int(c, 0, 1), p->is_exclusive = check_int(c, 0, 1), p->is_reverse = check_int(c, 0, 1);
}

/* Sums of floats are exact, and so are products, of 1/2, 1 and 2. */
static void fill(check_case *c) {
    const fx_cumulate_params *p = &c->params.cumulate;
    check_fill_typed(c, c->in[0], c->in_hi[0], p->dtype, 0);
    if (!p->is_product || !check_is_float(p->dtype))
        return;
    for (int64_t i = 0; i < c->in_hi[0] / fx_dtype_bytes(p->dtype); i++) {
        const double v = ldexp(check_one_in(c, 2) ? 1 : -1, check_int(c, -1, 1));
        if (p->dtype == FX_DTYPE_F32)
            ((float *)c->in[0])[i] = (float)v;
        else
            ((double *)c->in[0])[i] = v;
    }
}

static void expect_one(const check_case *c, check_expected *e, int64_t first, int at) {
    const fx_cumulate_params *p = &c->params.cumulate;
    const int from = p->is_reverse ? at + p->is_exclusive : 0;
    const int to = p->is_reverse ? p->n : at + 1 - p->is_exclusive;
    uint64_t integer = (uint64_t)p->is_product;
    double real = p->is_product;
    for (int q = from; q < to; q++) {
        const int64_t i = first + (int64_t)q * p->inner;
        if (check_is_float(p->dtype)) {
            const double v = check_double_at(c->in[0], p->dtype, i);
            real = p->is_product ? real * v : real + v;
        } else {
            const uint64_t v = (uint64_t)check_integer_at(c->in[0], p->dtype, i);
            integer = p->is_product ? integer * v : integer + v;
        }
    }
    if (check_is_float(p->dtype))
        check_set_double(e, p->dtype, first + (int64_t)at * p->inner, real);
    else
        check_set_integer(e, p->dtype, first + (int64_t)at * p->inner, integer);
}

static void expect(const check_case *c, check_expected *e) {
    const fx_cumulate_params *p = &c->params.cumulate;
    for (int outer = 0; outer < p->outer; outer++)
        for (int j = 0; j < p->inner; j++)
            for (int at = 0; at < p->n; at++)
                expect_one(c, e, (int64_t)outer * p->n * p->inner + j, at);
}

const check_op check_cumulate = {.draw = draw, .fill = fill, .expect = expect, .is_exact = 1};
