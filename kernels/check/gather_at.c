/* Rows picked by indices of their own, byte for byte; some cases hold an index out of range and must fail. */
#include "picks.h"

#include <stdio.h>
#include <string.h>

#define PICKS(c) CHECK_PICKS((check_case *)(c), gather_at)

static void draw(check_case *c) {
    c->params.gather_at.elem_bytes = CHECK_PICK(c, 1, 2, 4, 8);
    check_draw_picks(c, PICKS(c));
}

static void fill(check_case *c) {
    for (int64_t i = 0; i < c->in_hi[0]; i++)
        ((unsigned char *)c->in[0])[i] = (unsigned char)check_int(c, 0, 255);
    check_fill_picks(c, PICKS(c));
}

static fx_status status(const check_case *c) {
    return check_picks_status(c, PICKS(c));
}

static void expect(const check_case *c, check_expected *e) {
    const int64_t row_bytes = (int64_t)c->params.gather_at.inner * c->params.gather_at.elem_bytes;
    for (int64_t row = 0; row < check_picks_rows(PICKS(c)); row++) {
        const int64_t at = check_picks_at(c, PICKS(c), row) * c->params.gather_at.elem_bytes;
        memcpy(e->bytes + row * row_bytes, (const char *)c->in[0] + at, (size_t)row_bytes);
        memset(e->written + row * row_bytes, 1, (size_t)row_bytes);
    }
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const struct {
        const char *name;
        int rows, n, inner;
    } shapes[] = {{"elements", 100000, 1, 1}, {"rows of 64", 2000, 8, 64}};
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    fx_gather_at_params *p = &c->params.gather_at;
    *p = (fx_gather_at_params){.elem_bytes = 4,
                               .index_bytes = 8,
                               .depth = 1,
                               .inner = shapes[i].inner,
                               .d0 = 1,
                               .d1 = 1,
                               .d2 = 1,
                               .d3 = 1,
                               .d4 = 1,
                               .d5 = shapes[i].rows,
                               .n0 = shapes[i].n,
                               .n1 = 1,
                               .n2 = 1,
                               .n3 = 1,
                               .n4 = 1,
                               .n5 = 1,
                               .xs5 = shapes[i].inner,
                               .ns0 = shapes[i].inner};
    *flops = 0;
    *bytes = p->d5 * (8.0 * p->inner + 8);
    snprintf(name, 64, "%s", shapes[i].name);
    return 1;
}

const check_op check_gather_at = {
    .draw = draw, .fill = fill, .expect = expect, .is_exact = 1, .bench = bench, .status = status};
