/* Copies byte for byte. */
#include "boxes.h"

#include <stdio.h>
#include <string.h>

static void expect(const check_case *c, check_expected *e) {
    const int32_t bytes = c->params.copy.elem_bytes;
    check_walk w = {0};
    do {
        const int64_t to = check_at(&w, BOX(c, copy, ys)) * bytes - c->out_lo;
        memcpy(e->bytes + to, (const char *)c->in[0] + check_at(&w, BOX(c, copy, xs)) * bytes, (size_t)bytes);
        memset(e->written + to, 1, (size_t)bytes);
    } while (check_step(&w, BOX(c, copy, d)));
}

static void draw(check_case *c) {
    c->params.copy.elem_bytes = CHECK_PICK(c, 1, 2, 4, 4, 8);
    check_draw_box(c, BOX(c, copy, d), BOX(c, copy, ys));
    check_draw_strides(c, BOX(c, copy, d), BOX(c, copy, xs));
}

static void fill(check_case *c) {
    for (int64_t i = c->in_lo[0]; i < c->in_hi[0]; i++)
        ((unsigned char *)c->in[0])[i] = (unsigned char)check_int(c, 0, 255);
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const struct {
        const char *name;
        int elem_bytes, rows, columns, x_row, x_step;
    } shapes[] = {{"nchw to nhwc 3@224", 4, 50176, 3, 1, 50176},
                  {"nhwc to nchw 3@224", 4, 3, 50176, 1, 3},
                  {"nchw to nhwc 64@112", 4, 12544, 64, 1, 12544},
                  {"nhwc to nchw 64@112", 4, 64, 12544, 1, 64},
                  {"nchw to nhwc 512@14", 4, 196, 512, 1, 196},
                  {"nhwc to nchw 512@14", 4, 512, 196, 1, 512},
                  {"nchw to nhwc 64@112 bytes", 1, 12544, 64, 1, 12544},
                  {"nchw to nhwc 64@112 int64", 8, 12544, 64, 1, 12544},
                  {"rows of 64", 4, 12544, 64, 100, 1},
                  {"rows of 6", 4, 100000, 6, 12, 1},
                  {"expand", 4, 12544, 64, 1, 0},
                  {"backwards", 4, 100, 5000, 5000, -1}};
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    fx_copy_params *p = &c->params.copy;
    *p = (fx_copy_params){.elem_bytes = shapes[i].elem_bytes,
                          .d0 = 1,
                          .d1 = 1,
                          .d2 = 1,
                          .d3 = 1,
                          .d4 = shapes[i].rows,
                          .d5 = shapes[i].columns,
                          .xs4 = shapes[i].x_row,
                          .xs5 = shapes[i].x_step,
                          .ys4 = shapes[i].columns,
                          .ys5 = 1};
    *flops = 0;
    *bytes = 2.0 * p->elem_bytes * p->d4 * p->d5;
    snprintf(name, 64, "%s", shapes[i].name);
    return 1;
}

const check_op check_copy = {.draw = draw, .fill = fill, .expect = expect, .is_exact = 1, .bench = bench};
