/* Indices of the best elements, by looking for the next one among all. */
#include "numbers.h"

#include <stdio.h>

static void draw(check_case *c) {
    fx_top_k_params *p = &c->params.top_k;
    p->dtype =
        CHECK_PICK(c, FX_DTYPE_F32, FX_DTYPE_I64, FX_DTYPE_I32, FX_DTYPE_BOOL, FX_DTYPE_U8, FX_DTYPE_I8, FX_DTYPE_F64);
    p->outer = check_int(c, 1, 4);
    p->inner = check_one_in(c, 2) ? 1 : check_int(c, 2, 5);
    p->n = check_one_in(c, 3) ? check_int(c, 20, 300) : check_int(c, 1, 20);
    p->k = check_one_in(c, 3) ? p->n : check_int(c, 1, p->n);
    p->is_largest = check_int(c, 0, 1);
}

static void fill(check_case *c) {
    const fx_top_k_params *p = &c->params.top_k;
    check_fill_numbers(c, p->dtype, c->in[0], (int64_t)p->outer * p->n * p->inner, 5);
}

/* 1 if element b of a line comes after element a. */
static int comes_after(const check_case *c, int64_t first, int a, int b) {
    const fx_top_k_params *p = &c->params.top_k;
    const double va = check_number(p->dtype, c->in[0], first + (int64_t)a * p->inner);
    const double vb = check_number(p->dtype, c->in[0], first + (int64_t)b * p->inner);
    return va == vb ? b > a : p->is_largest ? vb < va : vb > va;
}

static void expect(const check_case *c, check_expected *e) {
    const fx_top_k_params *p = &c->params.top_k;
    for (int line = 0; line < p->outer * p->inner; line++) {
        const int64_t outer = line / p->inner, inner = line % p->inner, first = outer * p->n * p->inner + inner;
        for (int a = 0; a < p->n; a++) {
            int64_t before = 0;
            for (int b = 0; b < p->n; b++)
                before += b != a && !comes_after(c, first, a, b);
            if (before < p->k)
                check_set_index(e, (outer * p->k + before) * p->inner + inner, a);
        }
    }
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const fx_top_k_params shapes[] = {{FX_DTYPE_F32, 1, 8400, 1, 300, 1},
                                             {FX_DTYPE_F32, 64, 1000, 1, 5, 1},
                                             {FX_DTYPE_F32, 1, 50257, 1, 50, 1},
                                             {FX_DTYPE_F32, 1, 20000, 1, 20000, 1}};
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    const fx_top_k_params *p = &shapes[i];
    c->params.top_k = *p;
    *flops = 0;
    *bytes = 4.0 * p->outer * p->n;
    snprintf(name, 64, "%d of %d x %d", p->k, p->outer, p->n);
    return 1;
}

const check_op check_top_k = {.draw = draw, .fill = fill, .expect = expect, .is_exact = 1, .bench = bench};
