/* Resizing of h and w, as ONNX's reference does it: nearest and (bi)linear. */
#include "resize.h"
#include "units.h"

#include <math.h>
#include <string.h>

static fx_window full_window(const fx_params *u) {
    const fx_resize_params *p = &u->resize;
    return (fx_window){0, p->n * p->oh, 0, p->c};
}

static fx_operand operand_of(const fx_resize_params *p, int operand) {
    if (operand == 0)
        return (fx_operand){{p->n, p->h, p->w, p->c}, {p->x_sn, p->x_sh, p->x_sw, 1}};
    return (fx_operand){{p->n, p->oh, p->ow, p->c}, {p->y_sn, p->y_sh, p->y_sw, 1}};
}

int fx_resize_has_rows(const fx_resize_params *p) {
    if (!p->all_oh && !p->all_h)
        return p->y_row == 0 && p->x_row == 0;
    if (p->y_row < 0 || p->x_row < 0 || (int64_t)p->y_row + p->oh > p->all_oh || p->h < 1 ||
        (int64_t)p->x_row + p->h > p->all_h)
        return 0;
    return fx_resize_row(p, 0).low >= 0 && fx_resize_row(p, p->oh - 1).high < p->h;
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_resize_params *p = &u->resize;
    if (kernel != 0 || p->mode < 0 || p->mode >= FX_RESIZE_COUNT || p->coord < 0 || p->coord >= FX_COORD_COUNT ||
        p->nearest < 0 || p->nearest >= FX_NEAREST_COUNT || p->n < 1 || p->oh < 1 || (int64_t)p->n * p->oh > INT32_MAX)
        return FX_ERR_PARAMS;
    if (!(p->scale_h > 0) || !(p->scale_w > 0) || isinf(p->scale_h) || isinf(p->scale_w) || !fx_resize_has_rows(p))
        return FX_ERR_PARAMS;
    return fx_operand_fits(operand_of(p, 0), 0) && fx_operand_fits(operand_of(p, FX_OUTPUT), 1) ? FX_OK : FX_ERR_PARAMS;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    fx_operand_extent(operand_of(&u->resize, operand), lo, hi);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_operand_bytes(operand_of(&u->resize, FX_OUTPUT));
}

static int64_t workspace(const fx_kernels *k, uint32_t kernel, const fx_params *u) {
    (void)k, (void)kernel;
    return fx_round_up((int64_t)sizeof(fx_resize_tap) * u->resize.ow, 64);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    return fx_units_of(w.y1 - w.y0, (int64_t)u->resize.ow * (w.c1 - w.c0) * 4, threads);
}

/* Where output i of `out` lies in an input of `in`. A scale that is out / in but for its rounding is taken as that
 * fraction, whose ties and whole numbers come out exact; another one is used in float, as it is given. Lengths are
 * whole numbers, as in onnxruntime and PyTorch (ONNX's reference has in * scale). */
double fx_resize_source(int32_t coord, int32_t i, int32_t in, int32_t out, float scale) {
    const int is_ratio = scale == (float)((double)out / in);
    const double centre = is_ratio ? (i + 0.5) * in / out - 0.5 : ((float)i + 0.5f) / scale - 0.5f;
    switch (coord) {
    case FX_COORD_ALIGN_CORNERS:
        return out == 1 ? 0 : (double)i * (in - 1) / (out - 1);
    case FX_COORD_ASYMMETRIC:
        return is_ratio ? (double)i * in / out : (float)i / scale;
    case FX_COORD_PYTORCH_HALF_PIXEL:
        return out == 1 ? 0 : centre;
    case FX_COORD_HALF_PIXEL_SYMMETRIC:
        return is_ratio ? centre : (in - 1) / 2.0 + ((float)i + 0.5f - 0.5f * (float)out) / scale;
    default:
        return centre;
    }
}

fx_resize_place fx_resize_place_of(fx_resize_way way, int32_t i, int32_t in, int32_t out, float scale) {
    double x = fx_resize_source(way.coord, i, in, out, scale);
    if (way.mode == FX_RESIZE_NEAREST)
        switch (way.nearest) {
        case FX_NEAREST_ROUND_PREFER_FLOOR:
            x = ceil(x - 0.5);
            break;
        case FX_NEAREST_ROUND_PREFER_CEIL:
            x = floor(x + 0.5);
            break;
        case FX_NEAREST_FLOOR:
            x = floor(x);
            break;
        default:
            x = ceil(x);
        }
    x = x > 0 ? fmin(x, in - 1) : 0; /* the edge's value goes on outside; a NaN lands on it too */
    const int32_t low = (int32_t)x;
    if (low == in - 1) /* the last one is added to itself, in halves, as onnxruntime does */
        return (fx_resize_place){low, low, way.mode == FX_RESIZE_LINEAR ? 0.5f : 0};
    const float fraction = (float)(x - low);
    return (fx_resize_place){low, low + (fraction > 0), fraction};
}

fx_resize_place fx_resize_row(const fx_resize_params *p, int64_t y) {
    const int32_t h = p->all_h ? p->all_h : p->h, oh = p->all_oh ? p->all_oh : p->oh;
    const fx_resize_way way = {p->mode, p->coord, p->nearest};
    fx_resize_place at = fx_resize_place_of(way, (int32_t)y + p->y_row, h, oh, p->scale_h);
    at.low -= p->x_row;
    at.high -= p->x_row;
    return at;
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_resize_params *p = &call->params->resize;
    const fx_window *w = &call->window;
    const int64_t rows = w->y1 - w->y0;
    const int64_t pieces = units(call->kernels, call->kernel, call->params, *w, threads);
    const fx_resize_way way = {p->mode, p->coord, p->nearest};
    fx_resize_tap *taps = call->workspace;
    for (int32_t i = 0; i < p->ow; i++) {
        const fx_resize_place at = fx_resize_place_of(way, i, p->w, p->ow, p->scale_w);
        taps[i] = (fx_resize_tap){(int64_t)at.low * p->x_sw, (int64_t)at.high * p->x_sw, at.fraction};
    }
    fx_resize r = {.taps = taps, .y_pixel = p->y_sw, .pixels = p->ow, .channels = w->c1 - w->c0};
    const int64_t last = w->y0 + fx_cut_at(rows, pieces, u1);
    for (int64_t row = w->y0 + fx_cut_at(rows, pieces, u0); row < last; row++) {
        const int64_t batch = row / p->oh, oy = row % p->oh;
        const fx_resize_place at = fx_resize_row(p, oy);
        const float *map = (const float *)call->in[0] + batch * p->x_sn + w->c0;
        r.x[0] = map + (int64_t)at.low * p->x_sh;
        r.x[1] = map + (int64_t)at.high * p->x_sh;
        r.fraction = at.fraction;
        r.y = (float *)call->out + batch * p->y_sn + oy * p->y_sh + w->c0;
        if (p->mode == FX_RESIZE_LINEAR)
            call->kernels->resize_f32(&r);
        else
            for (int64_t i = 0; i < p->ow; i++)
                memcpy(r.y + i * p->y_sw, r.x[0] + taps[i].left, (size_t)r.channels * sizeof(float));
    }
    return FX_OK;
}

FX_DRIVER(resize, .traits = FX_TRAIT_ROWS | FX_TRAIT_CHANNELS, .workspace = workspace);
