/* Copy, element by element, with strides of any kind; and the transposes between layouts, which take another way. */
#include "boxes.h"

#include <stdio.h>
#include <string.h>

/* [outer][rows][columns] to [outer][columns][rows], with gaps now and then. */
static void draw_transpose(check_case *c) {
    int32_t *d = BOX(c, copy, d), *xs = BOX(c, copy, xs), *ys = BOX(c, copy, ys);
    const int32_t rows = check_one_in(c, 3) ? check_int(c, 60, 150) : check_int(c, 2, 40);
    const int32_t columns = check_one_in(c, 3) ? check_int(c, 60, 150) : check_int(c, 2, 40);
    const int at = check_int(c, 0, FX_DIMS - 3); /* dimensions of size 1 before, between and after */
    const int i = at + 1, j = check_int(c, i + 1, FX_DIMS - 1);
    for (int k = 0; k < FX_DIMS; k++)
        d[k] = 1;
    d[at] = check_int(c, 1, 3), d[i] = columns, d[j] = rows;
    xs[i] = 1, xs[j] = columns + (check_one_in(c, 3) ? check_int(c, 1, 9) : 0), xs[at] = xs[j] * rows;
    ys[j] = 1, ys[i] = rows + (check_one_in(c, 3) ? check_int(c, 1, 9) : 0), ys[at] = ys[i] * columns;
}

static void draw(check_case *c) {
    c->params.copy.elem_bytes = check_one_in(c, 2) ? 4 : CHECK_PICK(c, 1, 2, 8);
    if (check_one_in(c, 2)) {
        draw_transpose(c);
        return;
    }
    check_draw_box(c, BOX(c, copy, d), BOX(c, copy, ys));
    check_draw_strides(c, BOX(c, copy, d), BOX(c, copy, xs));
}

static void fill(check_case *c) {
    for (int64_t i = c->in_lo[0]; i < c->in_hi[0]; i++)
        ((unsigned char *)c->in[0])[i] = (unsigned char)check_int(c, 0, 255);
}

static void expect(const check_case *c, check_expected *e) {
    check_case *own = (check_case *)c; /* BOX gives writable fields */
    const int64_t bytes = c->params.copy.elem_bytes;
    check_walk w = {{0}};
    do {
        const int64_t to = check_at(&w, BOX(own, copy, ys)) * bytes - c->out_lo;
        memcpy(e->bytes + to, (const char *)c->in[0] + check_at(&w, BOX(own, copy, xs)) * bytes, (size_t)bytes);
        memset(e->written + to, 1, (size_t)bytes);
    } while (check_step(&w, BOX(own, copy, d)));
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const struct {
        int rows, columns, elem_bytes;
    } shapes[] = {{3, 224 * 224, 4},  {224 * 224, 3, 4}, {64, 56 * 56, 4},    {56 * 56, 64, 4}, {512, 14 * 14, 4},
                  {14 * 14, 512, 4}, {197, 64, 4},      {64, 112 * 112, 4}, {3, 224 * 224, 1}};
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    int32_t *d = BOX(c, copy, d), *xs = BOX(c, copy, xs), *ys = BOX(c, copy, ys);
    const int rows = shapes[i].rows, columns = shapes[i].columns;
    for (int k = 0; k < FX_DIMS; k++)
        d[k] = 1;
    d[4] = columns, d[5] = rows;
    xs[4] = 1, xs[5] = columns, ys[4] = rows, ys[5] = 1;
    c->params.copy.elem_bytes = shapes[i].elem_bytes;
    *flops = 0;
    *bytes = 2.0 * rows * columns * shapes[i].elem_bytes;
    snprintf(name, 64, "%dx%d transposed, %d bytes", rows, columns, shapes[i].elem_bytes);
    return 1;
}

const check_op check_copy = {.draw = draw, .fill = fill, .expect = expect, .is_exact = 1, .bench = bench};
