/* Pictures read at places of a grid, pixel by pixel. Places are drawn so that none lies in the middle of two pixels. */
#include "check.h"

#include <math.h>
#include <stdio.h>

static void draw(check_case *c) {
    fx_grid_sample_params *p = &c->params.grid_sample;
    p->mode = check_int(c, 0, FX_RESIZE_COUNT - 1);
    p->border = check_int(c, 0, FX_BORDER_COUNT - 1);
    p->is_aligned = check_int(c, 0, 1);
    p->n = check_int(c, 1, 3);
    p->h = check_int(c, 1, 9);
    p->w = check_int(c, 1, 9);
    p->c = check_one_in(c, 2) ? check_int(c, 1, 4) : check_int(c, 5, 40);
    p->oh = check_int(c, 1, 6);
    p->ow = check_int(c, 1, 6);
}

static float place(check_case *c, int32_t size) {
    const float at = (float)check_int(c, -40, 16 * size + 40) / 16 + 1.0f / 32;
    if (check_one_in(c, 30))
        return check_one_in(c, 2) ? NAN : 1e30f;
    return c->params.grid_sample.is_aligned ? (size > 1 ? 2 * at / (float)(size - 1) - 1 : at)
                                            : (2 * at + 1) / (float)size - 1;
}

static void fill(check_case *c) {
    const fx_grid_sample_params *p = &c->params.grid_sample;
    check_fill(c, c->in[0], c->in_hi[0]);
    for (int64_t i = 0; i < c->in_hi[1] / 4; i++)
        ((float *)c->in[1])[i] = place(c, i % 2 ? p->h : p->w);
}

/* The pixel coordinate of a place; NaN is beyond the last pixel. */
static double pixel(const check_case *c, double v, int32_t size) {
    const fx_grid_sample_params *p = &c->params.grid_sample;
    double at = p->is_aligned ? (v + 1) / 2 * (size - 1) : ((v + 1) * size - 1) / 2;
    const double lo = p->is_aligned ? 0 : -0.5, hi = p->is_aligned ? size - 1 : size - 0.5;
    if (p->border == FX_BORDER_REFLECTION && hi > lo) {
        const double turns = fmod(fabs(at - lo), 2 * (hi - lo));
        at = lo + (turns > hi - lo ? 2 * (hi - lo) - turns : turns);
    } else if (p->border == FX_BORDER_REFLECTION)
        at = lo;
    if (!(at < 1e6))
        at = 1e6;
    return p->border == FX_BORDER_ZEROS ? at : fmin(fmax(at, 0), size - 1);
}

static double value(const check_case *c, int64_t n, double row, double column, int channel) {
    const fx_grid_sample_params *p = &c->params.grid_sample;
    if (row < 0 || row >= p->h || column < 0 || column >= p->w)
        return 0;
    return ((const float *)c->in[0])[((n * p->h + (int64_t)row) * p->w + (int64_t)column) * p->c + channel];
}

/* fmod of a place far away has no digits left. */
static int is_far(const check_case *c, double v) {
    return c->params.grid_sample.border == FX_BORDER_REFLECTION && !(fabs(v) < 1e6);
}

static void expect(const check_case *c, check_expected *e) {
    const fx_grid_sample_params *p = &c->params.grid_sample;
    const float *grid = c->in[1];
    for (int64_t i = 0; i < (int64_t)p->n * p->oh * p->ow; i++) {
        const int64_t n = i / p->oh / p->ow;
        const double x = pixel(c, grid[2 * i], p->w), y = pixel(c, grid[2 * i + 1], p->h);
        const double left = floor(x), top = floor(y), dx = x - left, dy = y - top;
        const double tolerance = is_far(c, grid[2 * i]) || is_far(c, grid[2 * i + 1]) ? 9 : 1e-4;
        for (int k = 0; k < p->c; k++) {
            double v = (1 - dy) * ((1 - dx) * value(c, n, top, left, k) + dx * value(c, n, top, left + 1, k)) +
                       dy * ((1 - dx) * value(c, n, top + 1, left, k) + dx * value(c, n, top + 1, left + 1, k));
            if (p->mode == FX_RESIZE_NEAREST)
                v = value(c, n, rint(y), rint(x), k);
            check_set(c, e, i * p->c + k, v, tolerance);
        }
    }
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    if (i > 0)
        return 0;
    fx_grid_sample_params *p = &c->params.grid_sample;
    *p = (fx_grid_sample_params){FX_RESIZE_LINEAR, FX_BORDER_ZEROS, 0, 1, 64, 64, 32, 64, 64};
    *flops = 8.0 * p->oh * p->ow * p->c;
    *bytes = 20.0 * p->oh * p->ow * p->c;
    snprintf(name, 64, "linear 32@64");
    return 1;
}

const check_op check_grid_sample = {.draw = draw, .fill = fill, .expect = expect, .bench = bench};
