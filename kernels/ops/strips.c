/* Convolution of channels that see few others: strips of neighbouring output pixels, pointers to their input pixels
 * made per strip. */
#include "strips.h"
#include "sums.h"

/* Input pixels that a row of taps sees for a strip of this many output pixels. */
static int64_t positions(const fx_dwconv_params *p, int64_t pixels) {
    return (pixels - 1) * p->sw + (int64_t)(p->kw - 1) * p->dw + 1;
}

int fx_strips_fit(const fx_dwconv_params *p) {
    return positions(p, FX_DW_PIXELS) <= INT32_MAX / p->kh;
}

/* Output rows that one call of the micro kernel computes, if there are as many. */
static int32_t rows_at_once(const fx_dwconv_params *p, int32_t wide) {
    return wide == 1 && fx_dw_pairs(p->kh, p->kw, p->sh, p->sw, p->dh, p->dw) ? 2 : 1;
}

static int64_t pointer_bytes(const fx_dwconv_params *p, int32_t wide) {
    const int64_t rows = p->kh + (rows_at_once(p, wide) - 1) * (int64_t)p->sh;
    return fx_round_up((int64_t)sizeof(float *) * rows * positions(p, fx_min64(FX_DW_PIXELS, p->ow)), 64);
}

int64_t fx_strips_workspace(const fx_dwconv_params *p, int32_t wide) {
    const int64_t weights = (int64_t)p->kh * p->kw * wide * FX_NR;
    const int64_t room = fx_panels_room(p->act, p->wtype, weights, fx_div_up(p->c, FX_NR));
    return pointer_bytes(p, wide) + fx_round_up(room * (int64_t)sizeof(float), 64);
}

/* Items: strips of one row after the other, or of one pair of rows after the other. */
static fx_cut cut_window(const fx_dwconv_params *p, int32_t wide, fx_window w, int threads) {
    const int64_t strips = fx_div_up(w.y1 - w.y0, rows_at_once(p, wide)) * fx_div_up(p->ow, FX_DW_PIXELS);
    return fx_cut_window(strips, fx_div_up(w.c1 - w.c0, FX_NR), 1, threads);
}

uint32_t fx_strips_units(const fx_dwconv_params *p, int32_t wide, fx_window w, int threads) {
    const fx_cut cut = cut_window(p, wide, w, threads);
    return (uint32_t)(cut.parts * cut.cuts);
}

/* Bytes of both maps from which on prefetching pixels pays: for depthwise convolutions, and for groups, whose lines are
 * read in an order that no hardware prefetcher follows. */
#define ASK_DEPTHWISE_BYTES (8 << 20)
#define ASK_GROUPS_BYTES (3 << 20)

static int32_t asks(const fx_dwconv_params *p, int32_t wide) {
    const int64_t pixels = (int64_t)p->n * p->h * p->w + (int64_t)p->n * p->oh * p->ow;
    return pixels * p->c * (int64_t)sizeof(float) >= (wide == 1 ? ASK_DEPTHWISE_BYTES : ASK_GROUPS_BYTES);
}

/* Pointers to input pixels [ix, ix + count) of one row, to zeros outside the map. There is no test for each pixel: with
 * few channels a strip's pointers take a sixth of the time of its products. */
static void point_row(const fx_call *call, const fx_dwconv_params *p, const float *row, int64_t ix, int32_t count,
                      const float **x) {
    const int32_t left = (int32_t)fx_min64(ix < 0 ? -ix : 0, count);
    const int32_t right = (int32_t)fx_min64(fx_max64(p->w - ix, left), count);
    for (int32_t i = 0; i < left; i++)
        x[i] = call->zeros;
    for (int32_t i = left; i < right; i++)
        x[i] = row + (ix + i) * p->x_sw;
    for (int32_t i = right; i < count; i++)
        x[i] = call->zeros;
}

/* Output pixels [x0, x0 + pixels) of d->rows rows of an image from oy on. */
static void run_strip(const fx_call *call, const fx_dwconv_params *p, fx_gconv *g, int64_t batch, int64_t oy,
                      int64_t x0) {
    fx_dwconv *d = &g->strip;
    const float *map = (const float *)call->in[0] + batch * p->x_sn;
    const float **x = call->workspace;
    d->positions = (int32_t)positions(p, d->pixels);
    for (int64_t k = 0; k < p->kh + (d->rows - 1) * (int64_t)p->sh; k++, x += d->positions) {
        const int64_t iy = oy * p->sh - p->pt + k * p->dh;
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
        for (int32_t o = 0; o < d->rows; o++)
            fx_activate_rows(call->kernels, (fx_activation){p->act, p->alpha, p->beta}, d->y + o * d->y_row + d->at,
                             d->pixels, d->y_step, d->channels);
    for (int32_t o = 0; p->sums == FX_DTYPE_I32 && o < d->rows; o++)
        fx_round_rows(d->y + o * d->y_row + d->at, d->pixels, d->y_step, d->channels);
}

/* The same of `rows` rows of the window, from its row on: of one image, or the last of one and the first of the next.
 */
static void run_rows(const fx_call *call, const fx_dwconv_params *p, fx_gconv *g, int64_t row, int32_t rows,
                     int64_t x0) {
    const int is_one = row / p->oh == (row + rows - 1) / p->oh;
    g->strip.rows = is_one ? rows : 1;
    for (int32_t o = 0; o < rows; o += g->strip.rows)
        run_strip(call, p, g, (row + o) / p->oh, (row + o) % p->oh, x0);
}

void fx_strips_run(const fx_call *call, const fx_dwconv_params *p, int32_t wide, int threads, uint32_t u0,
                   uint32_t u1) {
    const fx_window *win = &call->window;
    const fx_cut cut = cut_window(p, wide, *win, threads);
    const int32_t rows = rows_at_once(p, wide);
    const int64_t strips = fx_div_up(p->ow, FX_DW_PIXELS); /* of a row */
    fx_gconv g = {
        .strip = {.x = call->workspace, .y_row = p->y_sh, .r_row = p->r_sh, .y_step = p->y_sw, .r_step = p->r_sw},
        .wide = wide};
    fx_dwconv *const d = &g.strip;
    d->head = fx_panel_head(p->act);
    d->w_panel = d->head + (int64_t)p->kh * p->kw * wide * FX_NR;
    const fx_panels panels = {.call = call,
                              .room = (void *)((char *)call->workspace + pointer_bytes(p, wide)),
                              .weights = d->w_panel - d->head,
                              .act = p->act,
                              .wtype = p->wtype};
    d->kh = p->kh, d->kw = p->kw, d->stride = p->sw, d->dilation = p->dw;
    d->asks = asks(p, wide);
    d->finish = fx_finish_of(p->act, p->alpha, p->beta);
    for (uint32_t u = u0; u < u1; u++) {
        const int64_t part = u % cut.parts, group = u / cut.parts;
        const int64_t panel0 = fx_cut_at(cut.groups, cut.cuts, group),
                      panel1 = fx_cut_at(cut.groups, cut.cuts, group + 1);
        d->at = win->c0 + panel0 * FX_NR;
        d->channels = (int32_t)(fx_min64(win->c1, win->c0 + panel1 * FX_NR) - d->at);
        d->w = fx_panels_at(&panels, panel0, panel1 - panel0);
        const int64_t end = fx_cut_at(cut.items, cut.parts, part + 1);
        for (int64_t item = fx_cut_at(cut.items, cut.parts, part); item < end; item++) {
            const int64_t row = win->y0 + item / strips * rows, strip = item % strips;
            const int64_t x0 = fx_cut_at(p->ow, strips, strip);
            d->pixels = (int32_t)(fx_cut_at(p->ow, strips, strip + 1) - x0);
            run_rows(call, p, &g, row, (int32_t)fx_min64(rows, win->y1 - row), x0);
        }
    }
}
