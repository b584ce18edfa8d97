/* Where the largest or smallest number is, against a search of one column after the other. */
#include "typed.h"

#include <math.h>
#include <stdio.h>

static void draw(check_case *c) {
    fx_argmax_params *p = &c->params.argmax;
    do
        p->dtype = check_int(c, 0, FX_DTYPE_COUNT - 1);
    while (p->dtype == FX_DTYPE_F16);
    p->outer = check_one_in(c, 4) ? check_int(c, 10, 100) : check_int(c, 1, 9);
    p->n = check_one_in(c, 3) ? check_int(c, 1, 700) : check_int(c, 1, 40);
    p->inner = check_one_in(c, 2) ? 1 : check_int(c, 2, 150);
    p->is_min = check_int(c, 0, 1), p->is_last = check_int(c, 0, 1);
}

static void fill(check_case *c) {
    check_fill_typed(c, c->in[0], c->in_hi[0], c->params.argmax.dtype, check_one_in(c, 2));
}

/* -1, 0 or 1: whether number a comes before b when the one that is sought comes first. */
static int order(const check_case *c, int64_t a, int64_t b) {
    const fx_argmax_params *p = &c->params.argmax;
    const int sign = p->is_min ? 1 : -1;
    if (check_is_float(p->dtype)) {
        const double v = check_double_at(c->in[0], p->dtype, a), w = check_double_at(c->in[0], p->dtype, b);
        if (isnan(v) || isnan(w))
            return !!isnan(w) - !!isnan(v);
        return sign * ((v > w) - (v < w));
    }
    const int64_t v = check_integer_at(c->in[0], p->dtype, a), w = check_integer_at(c->in[0], p->dtype, b);
    if (p->dtype == FX_DTYPE_U64)
        return sign * (((uint64_t)v > (uint64_t)w) - ((uint64_t)v < (uint64_t)w));
    return sign * ((v > w) - (v < w));
}

static void expect(const check_case *c, check_expected *e) {
    const fx_argmax_params *p = &c->params.argmax;
    for (int outer = 0; outer < p->outer; outer++)
        for (int j = 0; j < p->inner; j++) {
            const int64_t first = (int64_t)outer * p->n * p->inner + j;
            int64_t best = 0;
            for (int64_t q = 1; q < p->n; q++) {
                const int found = order(c, first + q * p->inner, first + best * p->inner);
                best = found < 0 || (found == 0 && p->is_last) ? q : best;
            }
            check_set_integer(e, FX_DTYPE_I64, (int64_t)outer * p->inner + j, (uint64_t)best);
        }
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const fx_argmax_params shapes[] = {
        {FX_DTYPE_F32, 1, 50257, 1, 0, 0}, {FX_DTYPE_F32, 1, 21, 16384, 0, 0}, {FX_DTYPE_F32, 16384, 21, 1, 0, 0}};
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    const fx_argmax_params *p = &shapes[i];
    c->params.argmax = *p;
    *flops = 0;
    *bytes = (double)p->outer * p->n * p->inner * (double)fx_dtype_bytes(p->dtype);
    snprintf(name, 64, "[%d, %d, %d]", p->outer, p->n, p->inner);
    return 1;
}

const check_op check_argmax = {.draw = draw, .fill = fill, .expect = expect, .is_exact = 1, .bench = bench};
