/* Tables of bytes, element by element. */
#include "boxes.h"
#include "bytes.h"

#include <stdio.h>

static void draw(check_case *c) {
    fx_table_u8_params *p = &c->params.table_u8;
    p->elem_bytes = CHECK_PICK(c, 1, 1, 4);
    check_draw_box(c, BOX(c, table_u8, d), BOX(c, table_u8, ys));
    check_draw_strides(c, BOX(c, table_u8, d), BOX(c, table_u8, xs));
}

static void fill(check_case *c) {
    for (int o = 0; o < 2; o++)
        check_fill_bytes(c, (char *)c->in[o] + c->in_lo[o], c->in_hi[o] - c->in_lo[o]);
}

static void expect(const check_case *c, check_expected *e) {
    const int64_t bytes = c->params.table_u8.elem_bytes;
    check_walk w = {0};
    do {
        const int64_t x = ((const uint8_t *)c->in[0])[check_at(&w, BOX(c, table_u8, xs))];
        const int64_t at = check_at(&w, BOX(c, table_u8, ys)) * bytes - c->out_lo;
        memcpy(e->bytes + at, (const char *)c->in[1] + x * bytes, (size_t)bytes);
        memset(e->written + at, 1, (size_t)bytes);
    } while (check_step(&w, BOX(c, table_u8, d)));
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    if (i > 1)
        return 0;
    fx_table_u8_params *p = &c->params.table_u8;
    *p = (fx_table_u8_params){.elem_bytes = i ? 4 : 1, .d0 = 1, .d1 = 1, .d2 = 1, .d3 = 1, .d4 = 1, .d5 = 200704};
    p->xs5 = p->ys5 = 1;
    *flops = 0;
    *bytes = 200704.0 * (i ? 5 : 2);
    snprintf(name, 64, "of %d bytes 200704", p->elem_bytes);
    return 1;
}

const check_op check_table_u8 = {.draw = draw, .fill = fill, .expect = expect, .is_exact = 1, .bench = bench};
