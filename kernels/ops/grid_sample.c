/* A picture read at places that a grid names, its nearest pixel or between its four neighbours:
 * https://onnx.ai/onnx/operators/onnx__GridSample.html. */
#include "units.h"

#include <math.h>
#include <string.h>

#define SIDE_MAX (1 << 24) /* pixels whose numbers a float tells apart */

static fx_window full_window(const fx_params *u) {
    return (fx_window){0, u->grid_sample.n * u->grid_sample.oh, 0, u->grid_sample.c};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_grid_sample_params *p = &u->grid_sample;
    if (kernel != 0 || p->h > SIDE_MAX || p->w > SIDE_MAX || p->mode < 0 || p->mode >= FX_RESIZE_COUNT ||
        p->border < 0 || p->border >= FX_BORDER_COUNT || p->is_aligned < 0 || p->is_aligned > 1)
        return FX_ERR_PARAMS;
    const fx_operand x = {{p->n, p->h, p->w, p->c}, {0}}, y = {{p->n, p->oh, p->ow, p->c > 2 ? p->c : 2}, {0}};
    if (!fx_operand_fits(x, 0) || !fx_operand_fits(y, 0))
        return FX_ERR_PARAMS;
    return (int64_t)p->n * p->oh <= INT32_MAX ? FX_OK : FX_ERR_PARAMS;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_grid_sample_params *p = &u->grid_sample;
    const int64_t pixels = (int64_t)p->n * p->oh * p->ow;
    *lo = 0;
    *hi = 4 * (operand == 0 ? (int64_t)p->n * p->h * p->w * p->c : pixels * (operand == 1 ? 2 : p->c));
}

static int64_t output_bytes(const fx_params *u) {
    return fx_contiguous_bytes(extent, u);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    const fx_grid_sample_params *p = &u->grid_sample;
    if (w.y0 >= w.y1 || w.c0 >= w.c1)
        return 0;
    return fx_units_of((int64_t)p->n * p->oh * p->ow, 20 * (int64_t)p->c + 100, threads);
}

/* Where a place of the grid, -1 to 1, lies among `size` pixels; a number that no pixel is near is brought closer. */
static float pixel_of(float place, int32_t size, const fx_grid_sample_params *p) {
    const float n = (float)size;
    float at = p->is_aligned ? (place + 1) / 2 * (n - 1) : ((place + 1) * n - 1) / 2;
    if (p->border == FX_BORDER_REFLECTION) {
        const float lo = p->is_aligned ? 0 : -0.5f, span = p->is_aligned ? n - 1 : n;
        float turned = span > 0 ? fmodf(fabsf(at - lo), 2 * span) : 0;
        turned = turned > span ? 2 * span - turned : turned;
        at = turned + lo;
    }
    if (p->border != FX_BORDER_ZEROS) {
        at = at < n - 1 ? at : n - 1;
        return at > 0 ? at : 0;
    }
    at = at < n + 1 ? at : n + 1; /* no number, too, is beyond the last pixel */
    return at > -2 ? at : -2;
}

/* The pixels that a place is read from, and their shares: NULL for one outside, or with nothing to add. */
typedef struct taps {
    const float *x[4];
    float share[4];
} taps;

static taps taps_of(const fx_grid_sample_params *p, const float *picture, float x, float y) {
    taps t;
    const float left = p->mode == FX_RESIZE_NEAREST ? rintf(x) : floorf(x);
    const float top = p->mode == FX_RESIZE_NEAREST ? rintf(y) : floorf(y);
    for (int i = 0; i < 4; i++) {
        const int32_t column = (int32_t)left + i % 2, row = (int32_t)top + i / 2;
        const float wide = i % 2 ? x - left : 1 - (x - left), high = i / 2 ? y - top : 1 - (y - top);
        t.share[i] = p->mode == FX_RESIZE_NEAREST ? (float)(i == 0) : wide * high;
        const int is_inside = column >= 0 && column < p->w && row >= 0 && row < p->h && t.share[i] != 0;
        t.x[i] = is_inside ? picture + ((int64_t)row * p->w + column) * p->c : NULL;
    }
    return t;
}

static void add(float *restrict y, const float *restrict x, int64_t n, float share) {
    for (int64_t i = 0; i < n; i++)
        y[i] += share * x[i];
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_grid_sample_params *p = &call->params->grid_sample;
    const uint32_t count = units(call->kernels, 0, call->params, call->window, threads);
    const int64_t each = (int64_t)p->oh * p->ow, pixels = each * p->n, end = fx_box_cut(pixels, count, u1);
    for (int64_t i = fx_box_cut(pixels, count, u0); i < end; i++) {
        const float *grid = (const float *)call->in[1] + 2 * i;
        const float *picture = (const float *)call->in[0] + i / each * p->h * p->w * p->c;
        const taps t = taps_of(p, picture, pixel_of(grid[0], p->w, p), pixel_of(grid[1], p->h, p));
        float *y = (float *)call->out + i * p->c;
        memset(y, 0, (size_t)p->c * sizeof *y);
        for (int k = 0; k < 4; k++)
            if (t.x[k])
                add(y, t.x[k], p->c, t.share[k]);
    }
    return FX_OK;
}

FX_DRIVER(grid_sample, .traits = 0);
