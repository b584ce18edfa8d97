/* One of `depth` elements set for each index, element by element. */
#include "typed.h"

#include <string.h>

static void draw(check_case *c) {
    fx_one_hot_params *p = &c->params.one_hot;
    p->elem_bytes = CHECK_PICK(c, 1, 2, 4, 8), p->index_bytes = CHECK_PICK(c, 4, 8);
    p->outer = check_int(c, 1, 40), p->depth = check_int(c, 1, 40);
    p->inner = check_one_in(c, 2) ? 1 : check_int(c, 2, 40);
}

static int32_t index_type(const fx_one_hot_params *p) {
    return p->index_bytes == 4 ? FX_DTYPE_I32 : FX_DTYPE_I64;
}

static void fill(check_case *c) {
    const fx_one_hot_params *p = &c->params.one_hot;
    for (int64_t i = 0; i < (int64_t)p->outer * p->inner; i++) {
        const int64_t wild = CHECK_PICK(c, INT32_MIN, INT32_MAX, -41, 41);
        const int64_t index = check_one_in(c, 9) ? wild : check_int(c, -p->depth - 1, p->depth);
        memcpy((char *)c->in[0] + i * p->index_bytes, &index, (size_t)p->index_bytes);
    }
    check_fill_typed(c, c->in[1], c->in_hi[1], FX_DTYPE_U8, 0);
}

static void expect(const check_case *c, check_expected *e) {
    const fx_one_hot_params *p = &c->params.one_hot;
    int64_t at = 0;
    for (int64_t outer = 0; outer < p->outer; outer++)
        for (int64_t d = 0; d < p->depth; d++)
            for (int64_t j = 0; j < p->inner; j++) {
                const int64_t index = check_integer_at(c->in[0], index_type(p), outer * p->inner + j);
                const int is_on = index == d || index + p->depth == d;
                for (int b = 0; b < p->elem_bytes; b++, at++) {
                    e->bytes[at] = ((const unsigned char *)c->in[1])[is_on * p->elem_bytes + b];
                    e->written[at] = 1;
                }
            }
}

const check_op check_one_hot = {.draw = draw, .fill = fill, .expect = expect, .is_exact = 1};
