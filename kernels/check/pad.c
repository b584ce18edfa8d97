/* Padding byte for byte: each element of y looked up by ONNX's definition. */
#include "boxes.h"

#include <stdio.h>
#include <string.h>

/* Index of x along one dimension, or -1: by stepping, where the driver computes. */
static int32_t look_up(int32_t mode, int32_t at, int32_t before, int32_t size, int32_t interior) {
    int32_t i = at - before;
    if (mode == FX_PAD_CONSTANT) {
        for (int32_t k = 0; k < size; k++)
            if (k * (interior + 1) == i)
                return k;
        return -1;
    }
    if (mode == FX_PAD_EDGE)
        return i < 0 ? 0 : i >= size ? size - 1 : i;
    while (size > 1 && (i < 0 || i >= size))
        i = i < 0 ? -i : 2 * (size - 1) - i;
    return size > 1 ? i : 0;
}

static void expect(const check_case *c, check_expected *e) {
    const fx_pad_params *p = &c->params.pad;
    check_walk w = {0};
    do {
        int64_t from = 0;
        int is_fill = 0;
        for (int i = 0; i < FX_DIMS; i++) {
            const int32_t k =
                look_up(p->mode, w.at[i], BOX(c, pad, b)[i], BOX(c, pad, xd)[i], BOX(c, pad, interior)[i]);
            is_fill |= k < 0;
            from += k * (int64_t)BOX(c, pad, xs)[i];
        }
        const int64_t to = check_at(&w, BOX(c, pad, ys)) * p->elem_bytes - c->out_lo, wide = p->value_int;
        const void *fill = p->elem_bytes == 4 && !p->value_int ? (const void *)&p->value : &wide;
        memcpy(e->bytes + to, is_fill ? fill : (const char *)c->in[0] + from * p->elem_bytes, (size_t)p->elem_bytes);
        memset(e->written + to, 1, (size_t)p->elem_bytes);
    } while (check_step(&w, BOX(c, pad, d)));
}

static void draw(check_case *c) {
    fx_pad_params *p = &c->params.pad;
    int32_t *d = BOX(c, pad, d), *xd = BOX(c, pad, xd), unused[FX_DIMS];
    int64_t elements = 1;
    p->mode = check_int(c, 0, FX_PAD_COUNT - 1);
    p->elem_bytes = CHECK_PICK(c, 1, 2, 4, 4, 8);
    p->value = check_real(c);
    p->value_int = p->elem_bytes == 4 && check_one_in(c, 2) ? 0 : check_int(c, -1000000, 1000000);
    check_draw_box(c, xd, unused);
    for (int i = 0; i < FX_DIMS; i++)
        elements *= xd[i];
    for (int i = 0; i < FX_DIMS; i++) {
        const int is_plain = check_one_in(c, 2) || elements > 4000;
        const int32_t interior = !is_plain && p->mode == FX_PAD_CONSTANT && check_one_in(c, 3) ? check_int(c, 1, 3) : 0;
        const int32_t spread = (xd[i] - 1) * (interior + 1) + 1, before = is_plain ? 0 : check_int(c, -2, 5);
        const int32_t after = is_plain ? 0 : check_int(c, -2, 5);
        BOX(c, pad, b)[i] = before;
        BOX(c, pad, interior)[i] = interior;
        d[i] = spread + before + after < 1 ? 1 : spread + before + after;
        elements = elements / xd[i] * d[i];
    }
    int32_t step = 1;
    for (int i = FX_DIMS - 1; i >= 0; i--) {
        step += check_one_in(c, 8) ? check_int(c, 1, 5) : 0;
        BOX(c, pad, ys)[i] = step;
        step *= d[i];
    }
    check_draw_strides(c, xd, BOX(c, pad, xs));
}

static void fill(check_case *c) {
    for (int64_t i = c->in_lo[0]; i < c->in_hi[0]; i++)
        ((unsigned char *)c->in[0])[i] = (unsigned char)check_int(c, 0, 255);
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const struct {
        const char *name;
        int mode, high, wide, channels, pad;
    } shapes[] = {{"constant 64@56 by 1", FX_PAD_CONSTANT, 56, 56, 64, 1},
                  {"reflect 64@56 by 1", FX_PAD_REFLECT, 56, 56, 64, 1},
                  {"reflect 8@1x16000 by 3", FX_PAD_REFLECT, 1, 16000, 8, 3},
                  {"edge 3@56 by 3", FX_PAD_EDGE, 56, 56, 3, 3}};
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    const int high = shapes[i].high, wide = shapes[i].wide, n = shapes[i].channels, pad = shapes[i].pad;
    const int above = high > 1 ? pad : 0, out_high = high + 2 * above, out_wide = wide + 2 * pad;
    fx_pad_params *p = &c->params.pad;
    *p = (fx_pad_params){.mode = shapes[i].mode,
                         .elem_bytes = 4,
                         .d0 = 1,
                         .d1 = 1,
                         .d2 = 1,
                         .d3 = out_high,
                         .d4 = out_wide,
                         .d5 = n,
                         .xd0 = 1,
                         .xd1 = 1,
                         .xd2 = 1,
                         .xd3 = high,
                         .xd4 = wide,
                         .xd5 = n,
                         .b3 = above,
                         .b4 = pad,
                         .xs3 = wide * n,
                         .xs4 = n,
                         .xs5 = 1,
                         .ys3 = out_wide * n,
                         .ys4 = n,
                         .ys5 = 1};
    *flops = 0;
    *bytes = 4.0 * n * (high * wide + out_high * out_wide);
    snprintf(name, 64, "%s", shapes[i].name);
    return 1;
}

const check_op check_pad = {.draw = draw, .fill = fill, .expect = expect, .is_exact = 1, .bench = bench};
