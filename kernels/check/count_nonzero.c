/* The number of elements that are not zero. */
#include "numbers.h"

static void draw(check_case *c) {
    c->params.count_nonzero.dtype = check_int(c, 0, FX_DTYPE_COUNT - 1);
    c->params.count_nonzero.n = check_int(c, 1, check_one_in(c, 3) ? 2000 : 30);
}

static void fill(check_case *c) {
    check_fill_numbers(c, c->params.count_nonzero.dtype, c->in[0], c->params.count_nonzero.n, check_int(c, 1, 4));
}

static void expect(const check_case *c, check_expected *e) {
    int64_t found = 0;
    for (int64_t i = 0; i < c->params.count_nonzero.n; i++)
        found += check_number(c->params.count_nonzero.dtype, c->in[0], i) != 0;
    check_set_index(e, 0, found);
}

const check_op check_count_nonzero = {.draw = draw, .fill = fill, .expect = expect, .is_exact = 1};
