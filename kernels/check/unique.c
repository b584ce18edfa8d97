/* Numbers of groups of equal rows, each row compared with all others. */
#include "numbers.h"

#include <stdio.h>

static void draw(check_case *c) {
    fx_unique_params *p = &c->params.unique;
    p->dtype =
        CHECK_PICK(c, FX_DTYPE_F32, FX_DTYPE_I64, FX_DTYPE_I32, FX_DTYPE_BOOL, FX_DTYPE_U8, FX_DTYPE_I8, FX_DTYPE_F64);
    p->inner = check_one_in(c, 2) ? 1 : check_int(c, 2, 5);
    p->n = check_one_in(c, 3) ? check_int(c, 20, 150) : check_int(c, 1, 20);
    p->is_sorted = check_int(c, 0, 1);
}

static void fill(check_case *c) {
    const fx_unique_params *p = &c->params.unique;
    check_fill_numbers(c, p->dtype, c->in[0], (int64_t)p->n * p->inner, 2);
}

static int compare(const check_case *c, int64_t a, int64_t b) {
    const fx_unique_params *p = &c->params.unique;
    for (int64_t i = 0; i < p->inner; i++) {
        const double va = check_number(p->dtype, c->in[0], a * p->inner + i);
        const double vb = check_number(p->dtype, c->in[0], b * p->inner + i);
        if (va != vb)
            return va < vb ? -1 : 1;
    }
    return 0;
}

/* 1 if no earlier row equals this one. */
static int is_first(const check_case *c, int64_t row) {
    for (int64_t i = 0; i < row; i++)
        if (!compare(c, i, row))
            return 0;
    return 1;
}

static void expect(const check_case *c, check_expected *e) {
    const fx_unique_params *p = &c->params.unique;
    int64_t groups = 0;
    for (int64_t row = 0; row < p->n; row++) {
        int64_t first = row, before = 0;
        for (int64_t i = row; i >= 0; i--)
            first = compare(c, i, row) ? first : i;
        for (int64_t i = 0; i < p->n; i++)
            before += is_first(c, i) && (p->is_sorted ? compare(c, i, row) < 0 : i < first);
        check_set_index(e, row, before);
        groups += first == row;
    }
    check_set_index(e, p->n, groups);
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const fx_unique_params shapes[] = {{FX_DTYPE_F32, 100000, 1, 1}, {FX_DTYPE_I64, 20000, 3, 0}};
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    c->params.unique = shapes[i];
    *flops = 0;
    *bytes = (double)shapes[i].n * (shapes[i].inner * (double)fx_dtype_bytes(shapes[i].dtype) + 8);
    snprintf(name, 64, "%d rows of %d", shapes[i].n, shapes[i].inner);
    return 1;
}

const check_op check_unique = {.draw = draw, .fill = fill, .expect = expect, .is_exact = 1, .bench = bench};
