/* Depthwise convolution of 8-bit activations: strips of neighbouring output pixels, pointers to their input pixels made
 * per strip. */
#include "bytes.h"

#include <string.h>

static fx_window full_window(const fx_params *u) {
    const fx_dwconv_u8_params *p = &u->dwconv_u8;
    return (fx_window){0, p->n * p->oh, 0, p->c};
}

static int64_t panel_bytes(const fx_params *u) {
    const fx_dwconv_u8_params *p = &u->dwconv_u8;
    return fx_byte_panel_head(p->to) + p->kw * fx_div_up(p->kh, 4) * FX_FOUR_BYTES;
}

static int32_t panels(const fx_params *u) {
    return (int32_t)fx_div_up(u->dwconv_u8.c, FX_NR);
}

static fx_maps maps_of(const fx_dwconv_u8_params *p) {
    return FX_MAPS_OF(p, p->c, p->c);
}

/* Input pixels that a row of taps sees for a strip of this many output pixels. */
static int64_t positions(const fx_dwconv_u8_params *p, int64_t pixels) {
    return (pixels - 1) * p->sw + (int64_t)(p->kw - 1) * p->dw + 1;
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_dwconv_u8_params *p = &u->dwconv_u8;
    const int32_t positive[] = {p->n, p->h, p->w, p->c, p->oh, p->ow, p->kh, p->kw, p->sh, p->sw, p->dh, p->dw};
    for (size_t i = 0; i < sizeof positive / sizeof *positive; i++)
        if (positive[i] < 1)
            return FX_ERR_PARAMS;
    const fx_byte_finish finish = FX_BYTE_FINISH_OF(p);
    if (kernel != 0 || p->nr != FX_NR || p->pt < 0 || p->pl < 0 || p->x_zero < 0 || p->x_zero > UINT8_MAX ||
        !fx_byte_finish_fits(&finish, p->has_residual) || p->is_dynamic < 0 || p->is_dynamic > 2 ||
        (p->is_dynamic && p->to != FX_DTYPE_F32))
        return FX_ERR_PARAMS;
    if ((int64_t)p->n * p->oh > INT32_MAX || (int64_t)p->kh * p->kw > 1 << 20 ||
        ((int64_t)(p->kh + 3) * p->kw + 16) * FX_NR * fx_div_up(p->c, FX_NR) > FX_ELEMENTS_MAX ||
        positions(p, FX_DW_U8_PIXELS) > INT32_MAX / p->kh || !fx_taps_fit(p->oh, p->sh, p->kh, p->dh) ||
        !fx_taps_fit(p->ow, p->sw, p->kw, p->dw))
        return FX_ERR_PARAMS;
    const fx_maps maps = maps_of(p);
    return fx_maps_fit(&maps) ? FX_OK : FX_ERR_PARAMS;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_dwconv_u8_params *p = &u->dwconv_u8;
    const fx_maps maps = maps_of(p);
    if (p->is_dynamic && (operand == 1 || operand == 2))
        *hi = fx_steps_bytes(operand, p->is_dynamic);
    else if (operand != 2)
        fx_byte_maps_extent(&maps, operand, p->to, lo, hi);
}

static int64_t output_bytes(const fx_params *u) {
    const fx_maps maps = maps_of(&u->dwconv_u8);
    return fx_byte_maps_bytes(&maps, u->dwconv_u8.to);
}

static int64_t element_bytes(const fx_params *u, int operand) {
    const fx_dwconv_u8_params *p = &u->dwconv_u8;
    return operand == FX_OUTPUT ? fx_byte_or_float(p->to) : operand == 1 && p->is_dynamic ? (int64_t)sizeof(float) : 1;
}

/* The workspace: pointers, then a pixel of zero points; where steps are dynamic, then panels with a run's own heads. */
static int64_t pointer_bytes(const fx_dwconv_u8_params *p) {
    const int64_t pixels = positions(p, fx_min64(FX_DW_U8_PIXELS, p->ow));
    return fx_round_up((int64_t)sizeof(uint8_t *) * p->kh * pixels, 64);
}

static int64_t workspace(const fx_kernels *k, uint32_t kernel, const fx_params *u) {
    (void)k, (void)kernel;
    const int64_t copied = u->dwconv_u8.is_dynamic ? panels(u) * panel_bytes(u) : 0;
    return pointer_bytes(&u->dwconv_u8) + fx_round_up(u->dwconv_u8.c, 64) + copied;
}

/* Items: strips of one row after the other. */
static fx_cut cut_window(const fx_dwconv_u8_params *p, fx_window w, int threads) {
    const int64_t strips = (int64_t)(w.y1 - w.y0) * fx_div_up(p->ow, FX_DW_U8_PIXELS);
    return fx_cut_window(strips, fx_div_up(w.c1 - w.c0, FX_NR), 1, threads);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    if (w.y0 >= w.y1 || w.c0 >= w.c1)
        return 0;
    const fx_cut cut = cut_window(&u->dwconv_u8, w, threads);
    return (uint32_t)(cut.parts * cut.cuts);
}

/* Pointers to input pixels [ix, ix + count) of one row, to zero points outside the map; row: NULL for one outside. */
static void point_row(const fx_dwconv_u8_params *p, const uint8_t *row, const uint8_t *zero, int64_t ix, int32_t count,
                      const uint8_t **x) {
    const int32_t left = row ? (int32_t)fx_min64(ix < 0 ? -ix : 0, count) : count;
    const int32_t right = row ? (int32_t)fx_min64(fx_max64(p->w - ix, left), count) : count;
    for (int32_t i = 0; i < left; i++)
        x[i] = zero;
    for (int32_t i = left; i < right; i++)
        x[i] = row + (ix + i) * p->x_sw;
    for (int32_t i = right; i < count; i++)
        x[i] = zero;
}

/* Output pixels [x0, x0 + d->pixels) of row `row` of the maps. */
static void run_strip(const fx_call *call, fx_dw_u8 *d, const uint8_t *zero, int64_t row, int64_t x0) {
    const fx_dwconv_u8_params *p = &call->params->dwconv_u8;
    const int64_t batch = row / p->oh, oy = row % p->oh;
    const uint8_t *map = (const uint8_t *)call->in[0] + batch * p->x_sn, **x = call->workspace;
    d->positions = (int32_t)positions(p, d->pixels);
    for (int64_t ky = 0; ky < p->kh; ky++, x += d->positions) {
        const int64_t iy = oy * p->sh - p->pt + ky * p->dh;
        point_row(p, iy >= 0 && iy < p->h ? map + iy * p->x_sh : NULL, zero, x0 * p->sw - p->pl, d->positions, x);
    }
    const int64_t y = batch * p->y_sn + oy * p->y_sh + x0 * p->y_sw + d->at;
    d->y = (char *)call->out + y * fx_byte_or_float(p->to);
    if (p->has_residual)
        d->r = (const uint8_t *)call->in[1] + batch * p->r_sn + oy * p->r_sh + x0 * p->r_sw + d->at;
    call->kernels->bytes->dwconv_u8(d);
}

/* Panels [first, last) of the window, with the biases and scales of a run that only it knows. */
static const char *copied_panels(const fx_call *call, char *to, fx_steps steps, int64_t first, int64_t last) {
    const int64_t bytes = panel_bytes(call->params);
    memcpy(to, (const char *)call->weight + first * bytes, (size_t)((last - first) * bytes));
    for (int64_t i = 0; i < last - first; i++) {
        int32_t *words = (int32_t *)(void *)(to + i * bytes);
        fx_steps_head(words, steps, words, (float *)(void *)words + 2 * FX_NR);
    }
    return to;
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_dwconv_u8_params *p = &call->params->dwconv_u8;
    const fx_window *win = &call->window;
    const fx_cut cut = cut_window(p, *win, threads);
    const int64_t strips = fx_div_up(p->ow, FX_DW_U8_PIXELS); /* of a row */
    uint8_t *zero = (uint8_t *)call->workspace + pointer_bytes(p);
    char *copied = (char *)zero + fx_round_up(p->c, 64);
    const fx_steps steps = p->is_dynamic ? fx_steps_of(call->in, p->is_dynamic) : (fx_steps){0};
    memset(zero, p->is_dynamic ? steps.zero : p->x_zero, (size_t)p->c);
    fx_dw_u8 d = {.x = call->workspace, .y_step = p->y_sw, .r_step = p->r_sw, .w_panel = panel_bytes(call->params)};
    d.kh = p->kh, d.kw = p->kw, d.stride = p->sw, d.dilation = p->dw;
    d.finish = FX_BYTE_FINISH_OF(p);
    for (uint32_t u = u0; u < u1; u++) {
        const int64_t part = u % cut.parts, group = u / cut.parts;
        const int64_t first = fx_cut_at(cut.groups, cut.cuts, group), last = fx_cut_at(cut.groups, cut.cuts, group + 1);
        d.at = win->c0 + first * FX_NR;
        d.channels = (int32_t)(fx_min64(win->c1, win->c0 + last * FX_NR) - d.at);
        d.w = p->is_dynamic ? copied_panels(call, copied, steps, first, last)
                            : (const char *)call->weight + first * d.w_panel;
        const int64_t end = fx_cut_at(cut.items, cut.parts, part + 1);
        for (int64_t item = fx_cut_at(cut.items, cut.parts, part); item < end; item++) {
            const int64_t x0 = fx_cut_at(p->ow, strips, item % strips);
            d.pixels = (int32_t)(fx_cut_at(p->ow, strips, item % strips + 1) - x0);
            run_strip(call, &d, zero, win->y0 + item / strips, x0);
        }
    }
    return FX_OK;
}

FX_DRIVER(dwconv_u8, .traits = FX_TRAIT_ROWS | FX_TRAIT_CHANNELS | FX_TRAIT_PANELS, .element_bytes = element_bytes,
          .panel_bytes = panel_bytes, .panels = panels, .workspace = workspace);
