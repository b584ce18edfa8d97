/* Blocks of pixels from channels, element by element. */
#include "check.h"

#include <stdio.h>

static void draw(check_case *c) {
    fx_depth_to_space_params *p = &c->params.depth_to_space;
    p->elem_bytes = CHECK_PICK(c, 1, 2, 4, 8);
    p->n = check_one_in(c, 4) ? check_int(c, 2, 3) : 1;
    p->c = check_one_in(c, 4) ? check_int(c, 30, 70) : check_int(c, 1, 9);
    p->h = check_int(c, 1, 6), p->w = check_int(c, 1, 9);
    p->sh = check_int(c, 1, 4), p->sw = check_one_in(c, 4) ? check_int(c, 5, 9) : check_int(c, 1, 4);
    p->top = check_int(c, 0, p->sh - 1), p->left = check_int(c, 0, p->sw - 1);
    const int rows = p->h * p->sh - p->top, columns = p->w * p->sw - p->left;
    p->oh = check_one_in(c, 3) ? check_int(c, 1, rows) : rows;
    p->ow = check_one_in(c, 3) ? check_int(c, 1, columns) : columns;
    p->x_sw = p->sh * p->sw * p->c + (check_one_in(c, 3) ? check_int(c, 1, 9) : 0);
    p->x_sh = p->x_sw * p->w + (check_one_in(c, 5) ? check_int(c, 1, 9) : 0);
    p->x_sn = p->x_sh * p->h + (check_one_in(c, 5) ? check_int(c, 1, 9) : 0);
    p->y_sw = p->c + (check_one_in(c, 3) ? check_int(c, 1, 20) : 0);
    p->y_sh = p->y_sw * p->ow + (check_one_in(c, 5) ? check_int(c, 1, 9) : 0);
    p->y_sn = p->y_sh * p->oh + (check_one_in(c, 5) ? check_int(c, 1, 9) : 0);
}

static void expect(const check_case *c, check_expected *e) {
    const fx_depth_to_space_params *p = &c->params.depth_to_space;
    const int64_t bytes = p->elem_bytes;
    for (int64_t n = 0; n < p->n; n++)
        for (int64_t oy = 0; oy < p->oh; oy++)
            for (int64_t ox = 0; ox < p->ow; ox++)
                for (int64_t j = 0; j < p->c; j++) {
                    const int64_t y = oy + p->top, x = ox + p->left;
                    const int64_t tap = y % p->sh * p->sw + x % p->sw;
                    const int64_t from = n * p->x_sn + y / p->sh * p->x_sh + x / p->sw * p->x_sw + tap * p->c + j;
                    const int64_t to = n * p->y_sn + oy * p->y_sh + ox * p->y_sw + j;
                    memcpy(e->bytes + to * bytes, (const char *)c->in[0] + from * bytes, (size_t)bytes);
                    memset(e->written + to * bytes, 1, (size_t)bytes);
                }
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const struct {
        int h, w, c, sh, sw;
    } shapes[] = {
        {128, 128, 4, 2, 2}, {64, 64, 32, 2, 2}, {16, 16, 256, 2, 2}, {1, 200, 128, 1, 8}, {120, 160, 1, 4, 4}};
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    fx_depth_to_space_params *p = &c->params.depth_to_space;
    *p = (fx_depth_to_space_params){.elem_bytes = 4, .n = 1, .h = shapes[i].h, .w = shapes[i].w, .c = shapes[i].c};
    p->sh = shapes[i].sh, p->sw = shapes[i].sw, p->top = p->sh / 2, p->left = p->sw / 2;
    p->oh = p->h * p->sh - p->sh + 1, p->ow = p->w * p->sw - p->sw + 1;
    p->x_sw = p->sh * p->sw * p->c, p->x_sh = p->x_sw * p->w, p->x_sn = p->x_sh * p->h;
    p->y_sw = p->c, p->y_sh = p->y_sw * p->ow, p->y_sn = p->y_sh * p->oh;
    *flops = 0;
    *bytes = 8.0 * p->c * p->oh * p->ow;
    snprintf(name, 64, "%dx%d@%dx%d %d channels", p->sh, p->sw, p->h, p->w, p->c);
    return 1;
}

const check_op check_depth_to_space = {.draw = draw, .expect = expect, .is_exact = 1, .bench = bench};
