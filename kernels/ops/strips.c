/* Convolution of channels that see few others: strips of neighbouring output pixels, pointers to their input pixels
 * made per strip. */
#include "strips.h"

/* Input pixels that a row of taps sees for a strip of this many output pixels. */
static int64_t positions(const fx_dwconv_params *p, int64_t pixels) {
    return (pixels - 1) * p->sw + (int64_t)(p->kw - 1) * p->dw + 1;
}

int fx_strips_fit(const fx_dwconv_params *p) {
    return positions(p, FX_DW_PIXELS) <= INT32_MAX / p->kh;
}

static int64_t pointer_bytes(const fx_dwconv_params *p) {
    return fx_round_up((int64_t)sizeof(float *) * p->kh * positions(p, fx_min64(FX_DW_PIXELS, p->ow)), 64);
}

int64_t fx_strips_scratch(const fx_dwconv_params *p, int32_t wide) {
    const int64_t weights = (int64_t)p->kh * p->kw * wide * FX_NR;
    const int64_t room = fx_panels_room(p->act, p->wtype, weights, fx_div_up(p->c, FX_NR));
    return pointer_bytes(p) + fx_round_up(room * (int64_t)sizeof(float), 64);
}

static fx_cut cut_window(const fx_dwconv_params *p, fx_window w, int threads) {
    const int64_t strips = (int64_t)(w.y1 - w.y0) * fx_div_up(p->ow, FX_DW_PIXELS);
    return fx_cut_window(strips, fx_div_up(w.c1 - w.c0, FX_NR), 1, threads);
}

uint32_t fx_strips_units(const fx_dwconv_params *p, fx_window w, int threads) {
    const fx_cut cut = cut_window(p, w, threads);
    return (uint32_t)(cut.parts * cut.cuts);
}

/* Pointers to input pixels [ix, ix + count) of one row, to zeros outside the map. */
static void point_row(const fx_call *call, const fx_dwconv_params *p, const float *row, int64_t ix, int32_t count,
                      const float **x) {
    if (ix >= 0 && ix + count <= p->w) {
        const float *at = row + ix * p->x_sw;
        for (int32_t i = 0; i < count; i++, at += p->x_sw)
            x[i] = at;
        return;
    }
    for (int32_t i = 0; i < count; i++, ix++)
        x[i] = ix >= 0 && ix < p->w ? row + ix * p->x_sw : call->zeros;
}

/* Output pixels [x0, x0 + pixels) of row oy of an image. */
static void run_strip(const fx_call *call, const fx_dwconv_params *p, fx_gconv *g, int64_t batch, int64_t oy,
                      int64_t x0) {
    fx_dwconv *d = &g->strip;
    const float *map = (const float *)call->in[0] + batch * p->x_sn;
    const float **x = call->scratch;
    d->positions = (int32_t)positions(p, d->pixels);
    for (int ky = 0; ky < p->kh; ky++, x += d->positions) {
        const int64_t iy = oy * p->sh - p->pt + (int64_t)ky * p->dh;
        if (iy >= 0 && iy < p->h)
            point_row(call, p, map + iy * p->x_sh, x0 * p->sw - p->pl, d->positions, x);
        else
            for (int32_t i = 0; i < d->positions; i++)
                x[i] = call->zeros;
    }
    d->y = (float *)call->out + batch * p->y_sn + oy * p->y_sh + x0 * p->y_sw;
    if (p->has_residual)
        d->r = (const float *)call->in[1] + batch * p->r_sn + oy * p->r_sh + x0 * p->r_sw;
    if (g->wide == 1)
        call->kernels->dwconv_f32(d);
    else
        call->kernels->gconv_f32(g);
    if (fx_finish_is_partial(p->act))
        fx_activate_rows(call->kernels, p->act, p->alpha, p->beta, d->y + d->at, d->pixels, d->y_step, d->channels);
}

void fx_strips_run(const fx_call *call, const fx_dwconv_params *p, int32_t wide, int threads, uint32_t u0,
                   uint32_t u1) {
    const fx_window *win = &call->window;
    const fx_cut cut = cut_window(p, *win, threads);
    const int64_t strips = fx_div_up(p->ow, FX_DW_PIXELS); /* of a row */
    fx_gconv g = {.strip = {.x = call->scratch, .y_step = p->y_sw, .r_step = p->r_sw}, .wide = wide};
    fx_dwconv *const d = &g.strip;
    d->head = fx_panel_head(p->act);
    d->w_panel = d->head + (int64_t)p->kh * p->kw * wide * FX_NR;
    const fx_panels panels = {.call = call,
                              .room = (void *)((char *)call->scratch + pointer_bytes(p)),
                              .weights = d->w_panel - d->head,
                              .act = p->act,
                              .wtype = p->wtype};
    d->kh = p->kh, d->kw = p->kw, d->stride = p->sw, d->dilation = p->dw;
    d->finish = fx_finish_of(p->act, p->alpha, p->beta);
    for (uint32_t u = u0; u < u1; u++) {
        const int64_t part = u % cut.parts, group = u / cut.parts;
        const int64_t panel0 = fx_cut_at(cut.groups, cut.cuts, group),
                      panel1 = fx_cut_at(cut.groups, cut.cuts, group + 1);
        d->at = win->c0 + panel0 * FX_NR;
        d->channels = (int32_t)(fx_min64(win->c1, win->c0 + panel1 * FX_NR) - d->at);
        d->w = fx_panels_at(&panels, panel0, panel1 - panel0);
        int64_t left = fx_cut_at(cut.items, cut.parts, part + 1) - fx_cut_at(cut.items, cut.parts, part);
        int64_t strip = fx_cut_at(cut.items, cut.parts, part) % strips;
        const int64_t row = win->y0 + fx_cut_at(cut.items, cut.parts, part) / strips;
        int64_t batch = row / p->oh, oy = row % p->oh, x0 = fx_cut_at(p->ow, strips, strip);
        for (; left > 0; left--) {
            d->pixels = (int32_t)(fx_cut_at(p->ow, strips, ++strip) - x0);
            run_strip(call, p, &g, batch, oy, x0);
            x0 += d->pixels;
            if (strip == strips) {
                strip = x0 = 0;
                if (++oy == p->oh)
                    oy = 0, batch++;
            }
        }
    }
}
