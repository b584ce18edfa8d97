/* Triangles of matrices, element by element. */
#include "check.h"

static void draw(check_case *c) {
    fx_trilu_params *p = &c->params.trilu;
    p->elem_bytes = CHECK_PICK(c, 1, 2, 4, 8);
    p->outer = check_int(c, 1, 5);
    p->rows = check_int(c, 1, 40), p->columns = check_int(c, 1, 40);
    p->k = check_one_in(c, 8) ? CHECK_PICK(c, INT32_MIN, INT32_MAX) : check_int(c, -p->rows - 1, p->columns + 1);
    p->is_upper = check_int(c, 0, 1);
}

static void expect(const check_case *c, check_expected *e) {
    const fx_trilu_params *p = &c->params.trilu;
    int64_t at = 0;
    for (int outer = 0; outer < p->outer; outer++)
        for (int64_t row = 0; row < p->rows; row++)
            for (int64_t column = 0; column < p->columns; column++)
                for (int b = 0; b < p->elem_bytes; b++, at++) {
                    const int is_kept = p->is_upper ? column - row >= p->k : column - row <= p->k;
                    e->bytes[at] = is_kept ? ((const unsigned char *)c->in[0])[at] : 0;
                    e->written[at] = 1;
                }
}

const check_op check_trilu = {.draw = draw, .expect = expect, .is_exact = 1};
