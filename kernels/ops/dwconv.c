/* Depthwise convolution: strips of neighbouring output pixels, pointers to their input pixels made per strip. */
#include "conv.h"

#include <math.h>

static fx_window full_window(const fx_params *u) {
    const fx_dwconv_params *p = &u->dwconv;
    return (fx_window){0, p->n * p->oh, 0, p->c};
}

static int64_t panel_floats(const fx_dwconv_params *p) {
    return fx_panel_head(p->act) + (int64_t)p->kh * p->kw * FX_NR;
}

static int64_t panel_bytes(const fx_params *u) {
    return panel_floats(&u->dwconv) * (int64_t)sizeof(float);
}

static int32_t panels(const fx_params *u) {
    return (int32_t)fx_div_up(u->dwconv.c, FX_NR);
}

/* Input pixels that a row of taps sees for a strip of this many output pixels. */
static int64_t positions(const fx_dwconv_params *p, int64_t pixels) {
    return (pixels - 1) * p->sw + (int64_t)(p->kw - 1) * p->dw + 1;
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_dwconv_params *p = &u->dwconv;
    const int32_t positive[] = {p->n, p->h, p->w, p->c, p->oh, p->ow, p->kh, p->kw, p->sh, p->sw, p->dh, p->dw};
    for (size_t i = 0; i < sizeof positive / sizeof *positive; i++)
        if (positive[i] < 1)
            return FX_ERR_PARAMS;
    if (kernel != 0 || p->nr != FX_NR || p->pt < 0 || p->pl < 0 || p->act < 0 || p->act >= FX_ACT_COUNT ||
        p->has_residual < 0 || p->has_residual > 1 || isnan(p->alpha) || isnan(p->beta))
        return FX_ERR_PARAMS;
    if ((int64_t)p->n * p->oh > INT32_MAX || (int64_t)p->kh * p->kw > 1 << 20 ||
        ((int64_t)p->kh * p->kw + 2) * FX_NR * fx_div_up(p->c, FX_NR) > FX_ELEMENTS_MAX ||
        positions(p, FX_DW_PIXELS) > INT32_MAX / p->kh || !fx_taps_fit(p->oh, p->sh, p->kh, p->dh) ||
        !fx_taps_fit(p->ow, p->sw, p->kw, p->dw))
        return FX_ERR_PARAMS;
    if (!fx_span_fits(4, (int32_t[]){p->n, p->h, p->w, p->c}, (int32_t[]){p->x_sn, p->x_sh, p->x_sw, 1}) ||
        !fx_span_is_injective(4, (int32_t[]){p->n, p->oh, p->ow, p->c}, (int32_t[]){p->y_sn, p->y_sh, p->y_sw, 1}))
        return FX_ERR_PARAMS;
    if (p->has_residual &&
        !fx_span_fits(4, (int32_t[]){p->n, p->oh, p->ow, p->c}, (int32_t[]){p->r_sn, p->r_sh, p->r_sw, 1}))
        return FX_ERR_PARAMS;
    return FX_OK;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_dwconv_params *p = &u->dwconv;
    if (operand == 1 && !p->has_residual)
        return;
    if (operand == 0)
        fx_box_extent(4, (int32_t[]){p->n, p->h, p->w, p->c}, (int32_t[]){p->x_sn, p->x_sh, p->x_sw, 1}, lo, hi);
    else if (operand == 1)
        fx_box_extent(4, (int32_t[]){p->n, p->oh, p->ow, p->c}, (int32_t[]){p->r_sn, p->r_sh, p->r_sw, 1}, lo, hi);
    else
        fx_box_extent(4, (int32_t[]){p->n, p->oh, p->ow, p->c}, (int32_t[]){p->y_sn, p->y_sh, p->y_sw, 1}, lo, hi);
    *lo *= (int64_t)sizeof(float);
    *hi *= (int64_t)sizeof(float);
}

static int64_t scratch(const fx_kernels *k, uint32_t kernel, const fx_params *u) {
    (void)k, (void)kernel;
    const fx_dwconv_params *p = &u->dwconv;
    return fx_round_up((int64_t)sizeof(float *) * p->kh * positions(p, fx_min64(FX_DW_PIXELS, p->ow)), 64);
}

static int64_t zeros(const fx_params *u) {
    return u->dwconv.c;
}

static fx_cut cut_window(const fx_dwconv_params *p, fx_window w, int threads) {
    const int64_t strips = (int64_t)(w.y1 - w.y0) * fx_div_up(p->ow, FX_DW_PIXELS);
    return fx_cut_window(strips, fx_div_up(w.c1 - w.c0, FX_NR), 1, threads);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    if (w.y0 >= w.y1 || w.c0 >= w.c1)
        return 0;
    const fx_cut cut = cut_window(&u->dwconv, w, threads);
    return (uint32_t)(cut.parts * cut.cuts);
}

/* Pointers to input pixels [ix, ix + count) of one row, to zeros outside the map. */
static void point_row(const fx_call *call, const float *row, int64_t ix, int32_t count, const float **x) {
    const fx_dwconv_params *p = &call->params->dwconv;
    if (ix >= 0 && ix + count <= p->w) {
        const float *at = row + ix * p->x_sw;
        for (int32_t i = 0; i < count; i++, at += p->x_sw)
            x[i] = at;
        return;
    }
    for (int32_t i = 0; i < count; i++, ix++)
        x[i] = ix >= 0 && ix < p->w ? row + ix * p->x_sw : call->zeros;
}

/* Output pixels [x0, x0 + d->pixels) of row oy of an image. */
static void run_strip(const fx_call *call, fx_dwconv *d, int64_t batch, int64_t oy, int64_t x0) {
    const fx_dwconv_params *p = &call->params->dwconv;
    const float *map = (const float *)call->in[0] + batch * p->x_sn;
    const float **x = call->scratch;
    d->positions = (int32_t)positions(p, d->pixels);
    for (int ky = 0; ky < p->kh; ky++, x += d->positions) {
        const int64_t iy = oy * p->sh - p->pt + (int64_t)ky * p->dh;
        if (iy >= 0 && iy < p->h)
            point_row(call, map + iy * p->x_sh, x0 * p->sw - p->pl, d->positions, x);
        else
            for (int32_t i = 0; i < d->positions; i++)
                x[i] = call->zeros;
    }
    d->y = (float *)call->out + batch * p->y_sn + oy * p->y_sh + x0 * p->y_sw;
    if (p->has_residual)
        d->r = (const float *)call->in[1] + batch * p->r_sn + oy * p->r_sh + x0 * p->r_sw;
    call->kernels->dwconv_f32(d);
    if (fx_finish_is_partial(p->act))
        fx_activate_rows(call->kernels, p->act, p->alpha, p->beta, d->y + d->at, d->pixels, d->y_step, d->channels);
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_dwconv_params *p = &call->params->dwconv;
    const fx_window *win = &call->window;
    const fx_cut cut = cut_window(p, *win, threads);
    const int64_t strips = fx_div_up(p->ow, FX_DW_PIXELS); /* of a row */
    fx_dwconv d = {.x = call->scratch, .y_step = p->y_sw, .r_step = p->r_sw};
    d.head = fx_panel_head(p->act);
    d.w_panel = panel_floats(p);
    d.kh = p->kh, d.kw = p->kw, d.stride = p->sw, d.dilation = p->dw;
    d.finish = fx_finish_of(p->act, p->alpha, p->beta);
    for (uint32_t u = u0; u < u1; u++) {
        const int64_t part = u % cut.parts, group = u / cut.parts;
        const int64_t panel0 = fx_cut_at(cut.groups, cut.cuts, group),
                      panel1 = fx_cut_at(cut.groups, cut.cuts, group + 1);
        d.at = win->c0 + panel0 * FX_NR;
        d.channels = (int32_t)(fx_min64(win->c1, win->c0 + panel1 * FX_NR) - d.at);
        d.w = call->weight + panel0 * d.w_panel;
        int64_t left = fx_cut_at(cut.items, cut.parts, part + 1) - fx_cut_at(cut.items, cut.parts, part);
        int64_t strip = fx_cut_at(cut.items, cut.parts, part) % strips;
        const int64_t row = win->y0 + fx_cut_at(cut.items, cut.parts, part) / strips;
        int64_t batch = row / p->oh, oy = row % p->oh, x0 = fx_cut_at(p->ow, strips, strip);
        for (; left > 0; left--) {
            d.pixels = (int32_t)(fx_cut_at(p->ow, strips, ++strip) - x0);
            run_strip(call, &d, batch, oy, x0);
            x0 += d.pixels;
            if (strip == strips) {
                strip = x0 = 0;
                if (++oy == p->oh)
                    oy = 0, batch++;
            }
        }
    }
    return FX_OK;
}

const fx_op_impl fx_dwconv_impl = {
    .traits = FX_TRAIT_ROWS | FX_TRAIT_CHANNELS | FX_TRAIT_PANELS,
    .full_window = full_window,
    .check = check,
    .extent = extent,
    .panel_bytes = panel_bytes,
    .panels = panels,
    .scratch = scratch,
    .zeros = zeros,
    .units = units,
    .run = run,
};
