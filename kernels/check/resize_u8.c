/* Resizing of bytes, coordinate by coordinate, at ratios whose coordinates are exact (check/resize.c has the others).
 */
#include "bytes.h"
#include "resize.h"

#include <stdio.h>

static double source(const fx_resize_u8_params *p, int i, int in, int out) {
    const double ratio = (double)in / out;
    switch (p->coord) {
    case FX_COORD_PYTORCH_HALF_PIXEL:
        return out > 1 ? (i + 0.5) * ratio - 0.5 : 0;
    case FX_COORD_ALIGN_CORNERS:
        return out == 1 ? 0 : (double)i * (in - 1) / (out - 1);
    case FX_COORD_ASYMMETRIC:
        return i * ratio;
    default:
        return (i + 0.5) * ratio - 0.5;
    }
}

static double rounded(int32_t nearest, double x) {
    switch (nearest) {
    case FX_NEAREST_ROUND_PREFER_FLOOR:
        return ceil(x - 0.5);
    case FX_NEAREST_ROUND_PREFER_CEIL:
        return floor(x + 0.5);
    case FX_NEAREST_FLOOR:
        return floor(x);
    default:
        return ceil(x);
    }
}

/* Rows of the whole input, of which a case may have a part. */
static int rows_in(const fx_resize_u8_params *p) {
    return p->all_h ? p->all_h : p->h;
}

static float at(const check_case *c, int n, int iy, int ix, int j) {
    const fx_resize_u8_params *p = &c->params.resize_u8;
    const int h = rows_in(p);
    iy = (iy < 0 ? 0 : iy >= h ? h - 1 : iy) - p->x_row;
    ix = ix < 0 ? 0 : ix >= p->w ? p->w - 1 : ix;
    return ((const uint8_t *)c->in[0])[n * (int64_t)p->x_sn + iy * (int64_t)p->x_sh + ix * (int64_t)p->x_sw + j];
}

static float value(const check_case *c, int n, int oy, int ox, int j) {
    const fx_resize_u8_params *p = &c->params.resize_u8;
    const int h = rows_in(p), oh = p->all_oh ? p->all_oh : p->oh;
    const double y = source(p, oy + p->y_row, h, oh), x = source(p, ox, p->w, p->ow);
    if (p->mode == FX_RESIZE_NEAREST)
        return at(c, n, (int)rounded(p->nearest, y), (int)rounded(p->nearest, x), j);
    const double in_y = fmax(0, fmin(y, h - 1)), in_x = fmax(0, fmin(x, p->w - 1));
    const int iy = (int)in_y, ix = (int)in_x;
    const float v = (float)(in_y - iy), u = (float)(in_x - ix);
    const float a = at(c, n, iy, ix, j), b = at(c, n, iy + 1, ix, j);
    const float top = fmaf(at(c, n, iy, ix + 1, j) - a, u, a), bottom = fmaf(at(c, n, iy + 1, ix + 1, j) - b, u, b);
    return fmaf(bottom - top, v, top);
}

static void expect(const check_case *c, check_expected *e) {
    const fx_resize_u8_params *p = &c->params.resize_u8;
    for (int n = 0; n < p->n; n++)
        for (int oy = 0; oy < p->oh; oy++)
            for (int ox = 0; ox < p->ow; ox++)
                for (int j = 0; j < p->c; j++) {
                    const int64_t to = n * (int64_t)p->y_sn + oy * (int64_t)p->y_sh + ox * (int64_t)p->y_sw + j;
                    e->bytes[to] = (unsigned char)nearbyintf(value(c, n, oy, ox, j));
                    e->written[to] = 1;
                }
}

static void draw(check_case *c) {
    fx_resize_u8_params *p = &c->params.resize_u8;
    p->mode = check_int(c, 0, FX_RESIZE_COUNT - 1), p->coord = check_int(c, 0, FX_COORD_COUNT - 1);
    p->nearest = check_int(c, 0, FX_NEAREST_COUNT - 1);
    p->n = check_one_in(c, 4) ? check_int(c, 2, 3) : 1, p->c = check_int(c, 1, 80);
    p->h = 4 * check_int(c, 1, 3), p->w = 4 * check_int(c, 1, 3);
    const int32_t taller = CHECK_PICK(c, 1, 2, 4, 8), wider = CHECK_PICK(c, 1, 2, 4, 8);
    p->oh = p->h * taller / 4, p->ow = p->w * wider / 4;
    p->scale_h = (float)taller / 4, p->scale_w = (float)wider / 4;
    if (check_one_in(c, 3))
        check_resize_part(c);
    p->x_sw = p->c + (check_one_in(c, 3) ? check_int(c, 1, 20) : 0);
    p->x_sh = p->x_sw * p->w + (check_one_in(c, 5) ? check_int(c, 1, 9) : 0), p->x_sn = p->x_sh * p->h;
    p->y_sw = p->c + (check_one_in(c, 3) ? check_int(c, 1, 20) : 0);
    p->y_sh = p->y_sw * p->ow + (check_one_in(c, 5) ? check_int(c, 1, 9) : 0), p->y_sn = p->y_sh * p->oh;
}

static void fill(check_case *c) {
    check_fill_bytes(c, c->in[0], c->in_hi[0]);
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const struct {
        int mode, size, c, factor;
    } shapes[] = {{FX_RESIZE_NEAREST, 40, 96, 2}, {FX_RESIZE_LINEAR, 64, 64, 2}};
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    fx_resize_u8_params *p = &c->params.resize_u8;
    *p = (fx_resize_u8_params){
        .mode = shapes[i].mode, .coord = FX_COORD_ASYMMETRIC, .nearest = FX_NEAREST_FLOOR, .n = 1};
    p->h = p->w = shapes[i].size, p->c = shapes[i].c, p->oh = p->ow = p->h * shapes[i].factor;
    p->scale_h = p->scale_w = (float)shapes[i].factor;
    p->x_sw = p->c, p->x_sh = p->w * p->c, p->x_sn = p->h * p->x_sh;
    p->y_sw = p->c, p->y_sh = p->ow * p->c, p->y_sn = p->oh * p->y_sh;
    *flops = 0;
    *bytes = p->c * ((double)p->h * p->w + (double)p->oh * p->ow);
    snprintf(name, 64, "%s %d@%d x%d", fx_enum_name("resize_mode", p->mode), p->c, p->h, shapes[i].factor);
    return 1;
}

const check_op check_resize_u8 = {.draw = draw, .fill = fill, .expect = expect, .is_exact = 1, .bench = bench};
