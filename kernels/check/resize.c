/* Resizing against ONNX's definition, coordinate by coordinate, with whole lengths as onnxruntime has them. */
#include "resize.h"

#include <math.h>
#include <stdio.h>

double check_resize_source(int coord, int i, int in, int out, float given) {
    const double scale = given == (float)((double)out / in) ? (double)out / in : given;
    const double length = scale * in;
    switch (coord) {
    case FX_COORD_HALF_PIXEL:
        return (i + 0.5) / scale - 0.5;
    case FX_COORD_PYTORCH_HALF_PIXEL:
        return out > 1 ? (i + 0.5) / scale - 0.5 : 0;
    case FX_COORD_ALIGN_CORNERS:
        return out == 1 ? 0 : (double)i * (in - 1) / (out - 1);
    case FX_COORD_ASYMMETRIC:
        return i / scale;
    default: /* FX_COORD_HALF_PIXEL_SYMMETRIC */
        return in / 2.0 * (1 - out / length) + (i + 0.5) / scale - 0.5;
    }
}

/* Nearest: the index, or -1 where x is so near a tie that rounding decides; not so if the scale is a fraction. */
static int nearest(const fx_resize_params *p, double x, int in, int out, float scale) {
    const int is_exact = scale == (float)((double)out / in);
    double r;
    const double tie = p->nearest <= FX_NEAREST_ROUND_PREFER_CEIL ? x - floor(x) - 0.5 : x - nearbyint(x);
    if (fabs(tie) < 1e-5 && !(is_exact && tie == 0))
        return -1;
    switch (p->nearest) {
    case FX_NEAREST_ROUND_PREFER_FLOOR:
        r = tie > 0 ? ceil(x) : floor(x);
        break;
    case FX_NEAREST_ROUND_PREFER_CEIL:
        r = tie >= 0 ? ceil(x) : floor(x);
        break;
    case FX_NEAREST_FLOOR:
        r = floor(x);
        break;
    default:
        r = ceil(x);
    }
    return r < 0 ? 0 : r > in - 1 ? in - 1 : (int)r;
}

/* Rows of the whole input and output, of which a case may have a part. */
static int rows_in(const fx_resize_params *p) {
    return p->all_h ? p->all_h : p->h;
}

static int rows_out(const fx_resize_params *p) {
    return p->all_oh ? p->all_oh : p->oh;
}

static double at(const check_case *c, int n, int iy, int ix, int j) {
    const fx_resize_params *p = &c->params.resize;
    const int h = rows_in(p);
    iy = (iy < 0 ? 0 : iy >= h ? h - 1 : iy) - p->x_row;
    ix = ix < 0 ? 0 : ix >= p->w ? p->w - 1 : ix;
    return ((const float *)c->in[0])[n * (int64_t)p->x_sn + iy * (int64_t)p->x_sh + ix * (int64_t)p->x_sw + j];
}

static void expect_one(const check_case *c, check_expected *e, int n, int oy, int ox, int j) {
    const fx_resize_params *p = &c->params.resize;
    const int h = rows_in(p), oh = rows_out(p);
    const double y = check_resize_source(p->coord, oy + p->y_row, h, oh, p->scale_h),
                 x = check_resize_source(p->coord, ox, p->w, p->ow, p->scale_w);
    const int64_t to = n * (int64_t)p->y_sn + oy * (int64_t)p->y_sh + ox * (int64_t)p->y_sw + j;
    if (p->mode == FX_RESIZE_NEAREST) {
        const int iy = nearest(p, y, h, oh, p->scale_h), ix = nearest(p, x, p->w, p->ow, p->scale_w);
        const int is_known = iy >= 0 && ix >= 0;
        check_set(c, e, to, is_known ? at(c, n, iy, ix, j) : 0, is_known ? 0 : 2);
        return;
    }
    const int iy = (int)floor(y), ix = (int)floor(x);
    const double v = y - iy, u = x - ix;
    const double top = at(c, n, iy, ix, j) * (1 - u) + at(c, n, iy, ix + 1, j) * u;
    const double bottom = at(c, n, iy + 1, ix, j) * (1 - u) + at(c, n, iy + 1, ix + 1, j) * u;
    /* A scale in float moves the coordinate by some units in the last place of its size. */
    check_set(c, e, to, top * (1 - v) + bottom * v, 1e-6 * (2 + fabs(x) + fabs(y)));
}

static void expect(const check_case *c, check_expected *e) {
    const fx_resize_params *p = &c->params.resize;
    for (int n = 0; n < p->n; n++)
        for (int oy = 0; oy < p->oh; oy++)
            for (int ox = 0; ox < p->ow; ox++)
                for (int j = 0; j < p->c; j++)
                    expect_one(c, e, n, oy, ox, j);
}

void check_resize_scale(check_case *c, int32_t in, int32_t *out, float *scale) {
    if (check_one_in(c, 2)) {
        *scale = check_one_in(c, 2) ? (float)check_int(c, 1, 4) : 0.3f + fabsf(check_real(c)) * 3;
        *out = (int32_t)floorf((float)in * *scale);
        if (*out >= 1)
            return;
    }
    *out = check_int(c, 1, 25);
    *scale = (float)((double)*out / in);
}

void check_resize_part(check_case *c) {
    fx_resize_params *p = &c->params.resize;
    const int h = p->h, oh = p->oh;
    p->all_h = h, p->all_oh = oh;
    p->y_row = check_int(c, 0, oh - 1);
    p->oh = check_int(c, 1, oh - p->y_row);
    const int low = (int)floor(check_resize_source(p->coord, p->y_row, h, oh, p->scale_h)) - 1;
    const int high = (int)floor(check_resize_source(p->coord, p->y_row + p->oh - 1, h, oh, p->scale_h)) + 2;
    p->x_row = low < 0 ? 0 : low >= h ? h - 1 : low;
    p->h = (high < 0 ? 0 : high >= h ? h - 1 : high) - p->x_row + 1;
}

static void draw(check_case *c) {
    fx_resize_params *p = &c->params.resize;
    p->mode = check_int(c, 0, FX_RESIZE_COUNT - 1);
    p->coord = check_int(c, 0, FX_COORD_COUNT - 1);
    p->nearest = check_int(c, 0, FX_NEAREST_COUNT - 1);
    p->n = check_one_in(c, 4) ? check_int(c, 2, 3) : 1;
    p->h = check_int(c, 1, 12), p->w = check_int(c, 1, 12), p->c = check_int(c, 1, 40);
    check_resize_scale(c, p->h, &p->oh, &p->scale_h);
    check_resize_scale(c, p->w, &p->ow, &p->scale_w);
    p->x_sw = p->c + (check_one_in(c, 3) ? check_int(c, 1, 20) : 0);
    p->x_sh = p->x_sw * p->w + (check_one_in(c, 5) ? check_int(c, 1, 9) : 0);
    p->x_sn = p->x_sh * p->h + (check_one_in(c, 5) ? check_int(c, 1, 9) : 0);
    p->y_sw = p->c + (check_one_in(c, 3) ? check_int(c, 1, 20) : 0);
    p->y_sh = p->y_sw * p->ow + (check_one_in(c, 5) ? check_int(c, 1, 9) : 0);
    p->y_sn = p->y_sh * p->oh + (check_one_in(c, 5) ? check_int(c, 1, 9) : 0);
    if (check_one_in(c, 3))
        check_resize_part(c);
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const struct {
        int mode, size, c, factor;
    } shapes[] = {{FX_RESIZE_NEAREST, 40, 96, 2},
                  {FX_RESIZE_NEAREST, 160, 24, 2},
                  {FX_RESIZE_LINEAR, 64, 64, 2},
                  {FX_RESIZE_LINEAR, 160, 3, 4}};
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    fx_resize_params *p = &c->params.resize;
    *p = (fx_resize_params){.mode = shapes[i].mode, .coord = FX_COORD_ASYMMETRIC, .nearest = FX_NEAREST_FLOOR, .n = 1};
    p->h = p->w = shapes[i].size, p->c = shapes[i].c, p->oh = p->ow = p->h * shapes[i].factor;
    p->scale_h = p->scale_w = (float)shapes[i].factor;
    p->x_sw = p->c, p->x_sh = p->w * p->c, p->x_sn = p->h * p->x_sh;
    p->y_sw = p->c, p->y_sh = p->ow * p->c, p->y_sn = p->oh * p->y_sh;
    *flops = 0;
    *bytes = 4.0 * p->c * ((double)p->h * p->w + (double)p->oh * p->ow);
    snprintf(name, 64, "%s %d@%d x%d", fx_enum_name("resize_mode", p->mode), p->c, p->h, shapes[i].factor);
    return 1;
}

const check_op check_resize = {.draw = draw, .expect = expect, .bench = bench};
