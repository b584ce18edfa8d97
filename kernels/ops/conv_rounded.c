/* A product whose rows are rounded to 8 bits (sums I8 of CONV): integers are multiplied, block by block, by weights as
 * they are stored. Each unit rounds the rows that it needs, which takes little beside its products. */
#include "conv.h"
#include "units.h"

#define TILE_ROWS 32

int fx_conv_is_rounded(const fx_conv_params *p) {
    return p->sums == FX_DTYPE_I8;
}

int fx_conv_rounded_fits(uint32_t kernel, const fx_conv_params *p) {
    return kernel == FX_CONV_DIRECT && fx_multiplies_rounded(p->wtype) && p->group == 1 && p->kh == 1 && p->kw == 1 &&
           p->pt == 0 && p->pl == 0 && (int64_t)(p->oh - 1) * p->sh < p->h && (int64_t)(p->ow - 1) * p->sw < p->w &&
           p->cin % FX_ROUNDED == 0;
}

typedef struct workspace {
    const float **a; /* [rows]; and so the others */
    float **c;
    const float **r;
    fx_rows_s8 rows;
    int64_t bytes;
} workspace;

static int64_t rows_of(const fx_conv_params *p) {
    return (int64_t)p->n * p->oh * p->ow;
}

static workspace workspace_at(void *base, const fx_conv_params *p) {
    const int64_t rows = fx_min64(rows_of(p), TILE_ROWS), blocks = p->cin / FX_ROUNDED;
    int64_t at = 0;
    workspace s = {.rows = {.blocks = (int32_t)blocks, .wtype = p->wtype}};
    FX_TAKE(s.a, base, at, rows);
    FX_TAKE(s.c, base, at, rows);
    FX_TAKE(s.r, base, at, rows);
    FX_TAKE(s.rows.to, base, at, rows * p->cin);
    FX_TAKE(s.rows.scales, base, at, rows * blocks);
    FX_TAKE(s.rows.sums, base, at, rows * blocks);
    FX_TAKE(s.rows.starts, base, at, rows * blocks);
    s.rows.a = s.a;
    s.bytes = at;
    return s;
}

int64_t fx_conv_rounded_workspace(const fx_conv_params *p) {
    return workspace_at(NULL, p).bytes;
}

static fx_panel_layout layout_of(const fx_conv_params *p) {
    return fx_panel_layout_of(p->act, p->wtype, (int64_t)p->cin * FX_NR);
}

/* Few units of many rows: each rounds them anew. */
#define UNITS_PER_THREAD 2

uint32_t fx_conv_rounded_units(const fx_conv_params *p, fx_window w, int threads) {
    const int64_t rows = (int64_t)(w.y1 - w.y0) * p->ow;
    const uint32_t units = fx_units_of(fx_div_up(w.c1 - w.c0, FX_NR), layout_of(p).bytes, threads);
    return rows <= FX_FEW_ROWS ? units : (uint32_t)fx_min64(units, (int64_t)threads * UNITS_PER_THREAD);
}

/* Pointers to output pixel `pixel` of the window, row i of a tile. */
static void point(const fx_call *call, const workspace *s, int i, int64_t pixel) {
    const fx_conv_params *p = &call->params->conv;
    const int64_t row = call->window.y0 + pixel / p->ow, ox = pixel % p->ow;
    const int64_t batch = row / p->oh, oy = row % p->oh;
    s->a[i] = (const float *)call->in[0] + batch * p->x_sn + oy * p->sh * p->x_sh + ox * p->sw * p->x_sw;
    s->c[i] = (float *)call->out + batch * p->y_sn + oy * p->y_sh + ox * p->y_sw;
    if (p->has_residual)
        s->r[i] = (const float *)call->in[1] + batch * p->r_sn + oy * p->r_sh + ox * p->r_sw;
}

fx_status fx_conv_rounded_run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_conv_params *p = &call->params->conv;
    const fx_window *win = &call->window;
    const int64_t panels = fx_div_up(win->c1 - win->c0, FX_NR), pieces = fx_conv_rounded_units(p, *win, threads);
    const int64_t first = fx_cut_at(panels, pieces, u0), last = fx_cut_at(panels, pieces, u1);
    const fx_panel_layout layout = layout_of(p);
    workspace s = workspace_at(call->workspace, p);
    fx_dot_s8 d = {.c = s.c, .r = p->has_residual ? s.r : NULL};
    d.head = layout.weights / (int64_t)sizeof(float);
    d.scales = (int32_t)(layout.scales / (int64_t)sizeof(float));
    d.minimum = (int32_t)(layout.minimum / (int64_t)sizeof(float));
    d.w_panel = layout.bytes / (int64_t)sizeof(float);
    d.w = call->weight + first * d.w_panel;
    d.c_at = win->c0 + first * FX_NR;
    d.columns = (int32_t)(fx_min64(win->c1, win->c0 + last * FX_NR) - d.c_at);
    d.finish = fx_finish_of(p->act, p->alpha, p->beta);
    if (d.columns <= 0)
        return FX_OK;
    const int64_t pixels = (int64_t)(win->y1 - win->y0) * p->ow;
    for (int64_t pixel = 0; pixel < pixels; pixel += TILE_ROWS) {
        s.rows.rows = (int32_t)fx_min64(TILE_ROWS, pixels - pixel);
        for (int32_t i = 0; i < s.rows.rows; i++)
            point(call, &s, i, pixel + i);
        call->kernels->bytes->rows_s8(&s.rows);
        d.rows = s.rows;
        call->kernels->bytes->dot_s8(&d);
        if (fx_finish_is_partial(p->act))
            fx_activate_tile(call->kernels, (fx_activation){p->act, p->alpha, p->beta}, s.c, s.rows.rows, d.c_at,
                             d.columns);
    }
    return FX_OK;
}
