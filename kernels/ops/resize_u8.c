/* Resizing of bytes: nearest and linear. Its parameters are those of resize. */
#include "bytes.h"
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
    const fx_operand o = operand_of(&u->resize, operand);
    fx_box_extent(4, o.d, o.s, 1, lo, hi);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_operand_bytes(operand_of(&u->resize, FX_OUTPUT)) / (int64_t)sizeof(float);
}

static int64_t element_bytes(const fx_params *u, int operand) {
    (void)u, (void)operand;
    return 1;
}

static int64_t workspace(const fx_kernels *k, uint32_t kernel, const fx_params *u) {
    (void)k, (void)kernel;
    return fx_round_up((int64_t)sizeof(fx_resize_place) * u->resize.ow, 64);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    return fx_units_of(w.y1 - w.y0, (int64_t)u->resize.ow * (w.c1 - w.c0), threads);
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_resize_params *p = &call->params->resize;
    const fx_window *w = &call->window;
    const fx_resize_way way = {p->mode, p->coord, p->nearest};
    const int64_t rows = w->y1 - w->y0, pieces = units(call->kernels, call->kernel, call->params, *w, threads);
    fx_resize_place *columns = call->workspace;
    for (int32_t i = 0; i < p->ow; i++)
        columns[i] = fx_resize_place_of(way, i, p->w, p->ow, p->scale_w);
    fx_resize_u8 r = {.channels = w->c1 - w->c0};
    const int64_t last = w->y0 + fx_cut_at(rows, pieces, u1);
    for (int64_t row = w->y0 + fx_cut_at(rows, pieces, u0); row < last; row++) {
        const int64_t batch = row / p->oh, oy = row % p->oh;
        const fx_resize_place at = fx_resize_row(p, oy);
        const uint8_t *map = (const uint8_t *)call->in[0] + batch * p->x_sn + w->c0;
        const uint8_t *low = map + (int64_t)at.low * p->x_sh, *high = map + (int64_t)at.high * p->x_sh;
        r.row = at.fraction;
        r.y = (uint8_t *)call->out + batch * p->y_sn + oy * p->y_sh + w->c0;
        for (int64_t i = 0; i < p->ow; i++, r.y += p->y_sw) {
            const int64_t left = (int64_t)columns[i].low * p->x_sw, right = (int64_t)columns[i].high * p->x_sw;
            if (p->mode == FX_RESIZE_NEAREST) {
                memcpy(r.y, low + left, (size_t)r.channels);
                continue;
            }
            r.x[0] = low + left, r.x[1] = low + right, r.x[2] = high + left, r.x[3] = high + right;
            r.column = columns[i].fraction;
            call->kernels->bytes->resize_u8(&r);
        }
    }
    return FX_OK;
}

FX_DRIVER(resize_u8, .traits = FX_TRAIT_ROWS | FX_TRAIT_CHANNELS, .workspace = workspace,
          .element_bytes = element_bytes);
