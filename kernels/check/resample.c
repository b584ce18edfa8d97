/* Cubic and antialiased resizing against ONNX's definition: every neighbour of each output, by its distance. */
#include "resize.h"

#include <math.h>
#include <stdio.h>

/* Rows of the whole input and output, of which a case may have a part. */
static int rows_in(const fx_resample_params *p) {
    return p->all_h ? p->all_h : p->h;
}

static int rows_out(const fx_resample_params *p) {
    return p->all_oh ? p->all_oh : p->oh;
}

static double narrow(const fx_resample_params *p, float scale) {
    return p->is_antialiased && scale < 1 ? scale : 1;
}

static double reach(const fx_resample_params *p, float scale) {
    return (p->is_cubic ? 2 : 1) / narrow(p, scale);
}

static double share(const fx_resample_params *p, double d) {
    const double a = p->a, x = fabs(d);
    if (!p->is_cubic)
        return x < 1 ? 1 - x : 0;
    if (x < 1)
        return (a + 2) * x * x * x - (a + 3) * x * x + 1;
    return x < 2 ? a * x * x * x - 5 * a * x * x + 8 * a * x - 4 * a : 0;
}

/* Shares of the places low .. high of an axis, which may be outside; they add up to 1. */
static void shares(const fx_resample_params *p, double x, int in, float scale, int low, int high, double *each) {
    double sum = 0;
    for (int i = low; i <= high; i++) {
        const int is_out = p->is_exclusive && (i < 0 || i >= in);
        each[i - low] = is_out ? 0 : share(p, (i - x) * narrow(p, scale));
        sum += each[i - low];
    }
    for (int i = low; i <= high; i++)
        each[i - low] /= sum;
}

typedef struct span {
    int low, high;
    double each[256];
} span;

static void span_of(const fx_resample_params *p, int i, int in, int out, float scale, span *s) {
    const double x = in == out && scale == 1 ? i : check_resize_source(p->coord, i, in, out, scale);
    s->low = (int)floor(x - reach(p, scale));
    s->high = (int)ceil(x + reach(p, scale));
    shares(p, x, in, scale, s->low, s->high, s->each);
}

static int inside(int i, int n) {
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

static void expect_one(const check_case *c, check_expected *e, int n, int oy, int ox, const span *down,
                       const span *on) {
    const fx_resample_params *p = &c->params.resample;
    const float *x = (const float *)c->in[0] + n * (int64_t)p->x_sn;
    for (int j = 0; j < p->c; j++) {
        double sum = 0, magnitude = 0;
        for (int iy = down->low; iy <= down->high; iy++)
            for (int ix = on->low; ix <= on->high; ix++) {
                const double both = down->each[iy - down->low] * on->each[ix - on->low];
                const int64_t row = inside(iy, rows_in(p)) - p->x_row;
                if (both != 0)
                    sum += both * x[row * p->x_sh + inside(ix, p->w) * (int64_t)p->x_sw + j];
                magnitude += fabs(both);
            }
        const int64_t to = n * (int64_t)p->y_sn + oy * (int64_t)p->y_sh + ox * (int64_t)p->y_sw + j;
        /* A scale in float moves the coordinate by some units in the last place of its size. */
        const double moved = 1e-6 * (4 + p->oh + p->y_row + p->ow) * (2 + fabs(p->a));
        check_set(c, e, to, sum, moved * (1 + magnitude));
    }
}

static void expect(const check_case *c, check_expected *e) {
    const fx_resample_params *p = &c->params.resample;
    span down, on;
    for (int oy = 0; oy < p->oh; oy++) {
        span_of(p, oy + p->y_row, rows_in(p), rows_out(p), p->scale_h, &down);
        for (int ox = 0; ox < p->ow; ox++) {
            span_of(p, ox, p->w, p->ow, p->scale_w, &on);
            for (int n = 0; n < p->n; n++)
                expect_one(c, e, n, oy, ox, &down, &on);
        }
    }
}

/* Some rows of the output, and those of the input that they may need. */
static void draw_part(check_case *c) {
    fx_resample_params *p = &c->params.resample;
    const int h = p->h, oh = p->oh;
    p->all_h = h, p->all_oh = oh;
    p->y_row = check_int(c, 0, oh - 1);
    p->oh = check_int(c, 1, oh - p->y_row);
    const double far = reach(p, p->scale_h) + 1;
    const int is_same = h == oh && p->scale_h == 1, last = p->y_row + p->oh - 1;
    const double from = is_same ? p->y_row : check_resize_source(p->coord, p->y_row, h, oh, p->scale_h);
    const double to = is_same ? last : check_resize_source(p->coord, last, h, oh, p->scale_h);
    p->x_row = inside((int)floor(from - far), h);
    p->h = inside((int)ceil(to + far), h) - p->x_row + 1;
}

static void lay_out(fx_resample_params *p, int x_gap, int y_gap) {
    p->x_sw = p->c + x_gap, p->x_sh = p->x_sw * p->w + x_gap / 2, p->x_sn = p->x_sh * p->h + x_gap / 3;
    p->y_sw = p->c + y_gap, p->y_sh = p->y_sw * p->ow + y_gap / 2, p->y_sn = p->y_sh * p->oh + y_gap / 3;
}

static void draw(check_case *c) {
    fx_resample_params *p = &c->params.resample;
    p->is_cubic = check_one_in(c, 2), p->is_antialiased = check_one_in(c, 2), p->is_exclusive = check_one_in(c, 3);
    p->coord = check_int(c, 0, FX_COORD_COUNT - 1);
    p->a = check_one_in(c, 2) ? -0.75f : check_one_in(c, 2) ? -0.5f : check_real(c) * 0.5f;
    p->n = check_one_in(c, 4) ? check_int(c, 2, 3) : 1;
    p->h = check_int(c, 1, 12), p->w = check_int(c, 1, 12), p->c = check_int(c, 1, 80);
    check_resize_scale(c, p->h, &p->oh, &p->scale_h);
    check_resize_scale(c, p->w, &p->ow, &p->scale_w);
    lay_out(p, check_one_in(c, 3) ? check_int(c, 1, 20) : 0, check_one_in(c, 3) ? check_int(c, 1, 20) : 0);
    if (check_one_in(c, 3))
        draw_part(c);
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const struct {
        int size, c, to;
    } shapes[] = {{64, 64, 128}, {37, 384, 16}, {160, 3, 320}};
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    fx_resample_params *p = &c->params.resample;
    *p = (fx_resample_params){.is_cubic = 1, .coord = FX_COORD_HALF_PIXEL, .a = -0.75f, .n = 1};
    p->h = p->w = shapes[i].size, p->c = shapes[i].c, p->oh = p->ow = shapes[i].to;
    p->scale_h = p->scale_w = (float)((double)p->oh / p->h);
    lay_out(p, 0, 0);
    *flops = 8.0 * p->c * ((double)p->oh * p->w + (double)p->oh * p->ow);
    *bytes = 4.0 * p->c * ((double)p->h * p->w + (double)p->oh * p->ow);
    snprintf(name, 64, "cubic %d@%d to %d", p->c, p->h, p->oh);
    return 1;
}

const check_op check_resample = {.draw = draw, .expect = expect, .bench = bench};
