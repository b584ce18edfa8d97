/* Pads: every element looked up by its indices, the way ONNX words it. */
#include "boxes.h"

#include <stdio.h>
#include <string.h>

/* Shrinks a box until it has at most this many elements. */
static void shrink(int32_t *d, int64_t most) {
    int64_t elements = 1;
    for (int i = FX_DIMS - 1; i >= 0; i--) {
        if (elements * d[i] > most)
            d[i] = 1;
        elements *= d[i];
    }
}

static void draw(check_case *c) {
    fx_pad_params *p = &c->params.pad;
    int32_t *d = BOX(c, pad, d), *xd = BOX(c, pad, xd), *b = BOX(c, pad, b), *interior = BOX(c, pad, interior);
    p->mode = check_int(c, 0, FX_PAD_COUNT - 1);
    p->elem_bytes = check_one_in(c, 2) ? 4 : CHECK_PICK(c, 1, 2, 8);
    check_draw_box(c, xd, BOX(c, pad, xs));
    shrink(xd, 2000);
    check_draw_strides(c, xd, BOX(c, pad, xs));
    for (int i = 0; i < FX_DIMS; i++) {
        d[i] = xd[i];
        if (!check_one_in(c, 3))
            continue;
        if (p->mode == FX_PAD_CONSTANT && check_one_in(c, 3))
            interior[i] = check_int(c, 1, 3);
        b[i] = check_one_in(c, 4) ? check_int(c, -xd[i], 40) : check_int(c, -2, 4);
        d[i] = (xd[i] - 1) * (interior[i] + 1) + 1 + b[i] + (check_one_in(c, 4) ? check_int(c, -3, 40) : check_int(c, 0, 3));
        d[i] = d[i] < 1 ? 1 : d[i];
    }
    shrink(d, 30000);
    /* Dense, in order or with every line spread. */
    const int32_t spread = check_one_in(c, 3) ? check_int(c, 1, 5) : 0;
    int32_t step = check_one_in(c, 6) ? 2 : 1;
    for (int i = FX_DIMS - 1; i >= 0; i--) {
        BOX(c, pad, ys)[i] = step;
        step = step * d[i] + (i == FX_DIMS - 1 ? spread : 0);
    }
    if (p->elem_bytes == 4 && check_one_in(c, 2))
        p->value = check_real(c);
    else
        p->value_int = check_one_in(c, 2) ? check_int(c, -100, 100) : 0;
}

static void fill(check_case *c) {
    for (int64_t i = c->in_lo[0]; i < c->in_hi[0]; i++)
        ((unsigned char *)c->in[0])[i] = (unsigned char)check_int(c, 0, 255);
}

/* Walks from index i towards [0, n), turning at its ends. */
static int32_t reflected(int32_t i, int32_t n) {
    if (n == 1)
        return 0;
    while (i < 0 || i >= n)
        i = i < 0 ? -i : 2 * (n - 1) - i;
    return i;
}

/* Index of x for index i of y along dimension k, or -1: the fill. */
static int32_t source(const check_case *c, int k, int32_t i) {
    check_case *own = (check_case *)c; /* BOX gives writable fields */
    const int32_t n = BOX(own, pad, xd)[k], gap = BOX(own, pad, interior)[k];
    i -= BOX(own, pad, b)[k];
    switch (c->params.pad.mode) {
    case FX_PAD_REFLECT:
        return reflected(i, n);
    case FX_PAD_EDGE:
        return i < 0 ? 0 : i >= n ? n - 1 : i;
    default:
        for (int32_t x = 0; x < n; x++)
            if (x * (gap + 1) == i)
                return x;
        return -1;
    }
}

static void expect(const check_case *c, check_expected *e) {
    const fx_pad_params *p = &c->params.pad;
    check_case *own = (check_case *)c;
    const int64_t bytes = p->elem_bytes, integer = p->value_int;
    const void *filling = p->value_int || bytes != 4 ? (const void *)&integer : (const void *)&p->value;
    check_walk w = {{0}};
    do {
        check_walk from;
        int is_fill = 0;
        for (int k = 0; k < FX_DIMS; k++) {
            from.at[k] = source(c, k, w.at[k]);
            is_fill |= from.at[k] < 0;
        }
        const int64_t to = check_at(&w, BOX(own, pad, ys)) * bytes - c->out_lo;
        const char *x = (const char *)c->in[0] + (is_fill ? 0 : check_at(&from, BOX(own, pad, xs)) * bytes);
        memcpy(e->bytes + to, is_fill ? filling : x, (size_t)bytes); /* an integer's low bytes first */
        memset(e->written + to, 1, (size_t)bytes);
    } while (check_step(&w, BOX(own, pad, d)));
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const struct {
        int size, c;
    } shapes[] = {{224, 3}, {112, 64}, {28, 256}};
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    const int size = shapes[i].size, channels = shapes[i].c;
    memcpy(BOX(c, pad, d), (int32_t[]){1, 1, 1, size + 2, size + 2, channels}, 6 * sizeof(int32_t));
    memcpy(BOX(c, pad, xd), (int32_t[]){1, 1, 1, size, size, channels}, 6 * sizeof(int32_t));
    memcpy(BOX(c, pad, b), (int32_t[]){0, 0, 0, 1, 1, 0}, 6 * sizeof(int32_t));
    memcpy(BOX(c, pad, xs), (int32_t[]){0, 0, 0, size * channels, channels, 1}, 6 * sizeof(int32_t));
    memcpy(BOX(c, pad, ys), (int32_t[]){0, 0, 0, (size + 2) * channels, channels, 1}, 6 * sizeof(int32_t));
    c->params.pad.elem_bytes = 4;
    *flops = 0;
    *bytes = 4.0 * channels * ((double)size * size + (double)(size + 2) * (size + 2));
    snprintf(name, 64, "%dx%dx%d by 1", size, size, channels);
    return 1;
}

const check_op check_pad = {.draw = draw, .fill = fill, .expect = expect, .is_exact = 1, .bench = bench};
