/* Gather, element by element; some cases hold one index that is out of range and must fail. */
#include "check.h"

#include <stdio.h>
#include <string.h>

static void draw(check_case *c) {
    fx_gather_params *p = &c->params.gather;
    p->elem_bytes = CHECK_PICK(c, 1, 2, 4, 8);
    p->index_bytes = CHECK_PICK(c, 4, 8);
    p->outer = check_one_in(c, 2) ? 1 : check_int(c, 2, 5);
    p->axis = check_int(c, 1, 20);
    p->inner = check_one_in(c, 3) ? check_int(c, 100, 3000) : check_int(c, 1, 20);
    p->count = check_one_in(c, 5) ? check_int(c, 20, 200) : check_int(c, 1, 9);
}

static int64_t get_index(const check_case *c, int64_t i) {
    if (c->params.gather.index_bytes == 4)
        return ((const int32_t *)c->in[1])[i];
    return ((const int64_t *)c->in[1])[i];
}

static void set_index(const check_case *c, int64_t i, int64_t index) {
    if (c->params.gather.index_bytes == 4)
        ((int32_t *)c->in[1])[i] = (int32_t)index;
    else
        ((int64_t *)c->in[1])[i] = index;
}

static void fill(check_case *c) {
    const fx_gather_params *p = &c->params.gather;
    for (int64_t i = 0; i < c->in_hi[0]; i++)
        ((unsigned char *)c->in[0])[i] = (unsigned char)check_int(c, 0, 255);
    for (int64_t i = 0; i < p->count; i++)
        set_index(c, i, check_int(c, -p->axis, p->axis - 1));
    if (check_one_in(c, 4)) {
        const int64_t far = p->index_bytes == 8 && check_one_in(c, 2) ? INT64_C(1) << check_int(c, 33, 62) : p->axis;
        set_index(c, check_int(c, 0, p->count - 1), check_one_in(c, 2) ? far : -far - 1);
    }
}

static fx_status status(const check_case *c) {
    const fx_gather_params *p = &c->params.gather;
    for (int64_t i = 0; i < p->count; i++)
        if (get_index(c, i) < -p->axis || get_index(c, i) >= p->axis)
            return FX_ERR_INDEX;
    return FX_OK;
}

static void expect(const check_case *c, check_expected *e) {
    const fx_gather_params *p = &c->params.gather;
    const unsigned char *x = c->in[0];
    int64_t at = 0;
    for (int outer = 0; outer < p->outer; outer++)
        for (int i = 0; i < p->count; i++)
            for (int j = 0; j < p->inner; j++) {
                const int64_t index = get_index(c, i), row = index < 0 ? index + p->axis : index;
                for (int b = 0; b < p->elem_bytes; b++, at++) {
                    e->bytes[at] = x[(((int64_t)outer * p->axis + row) * p->inner + j) * p->elem_bytes + b];
                    e->written[at] = 1;
                }
            }
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const fx_gather_params shapes[] = {{4, 8, 1, 512, 768, 64}, {4, 8, 1, 64, 20000, 64}};
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    const fx_gather_params *p = &shapes[i];
    c->params.gather = *p;
    *flops = 0;
    *bytes = 2.0 * p->outer * p->count * p->inner * p->elem_bytes;
    snprintf(name, 64, "%d rows of %d", p->count, p->inner);
    return 1;
}

const check_op check_gather = {
    .draw = draw, .fill = fill, .expect = expect, .is_exact = 1, .bench = bench, .status = status};
