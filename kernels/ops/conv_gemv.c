/* Convolution with a few output pixels only (a fully connected layer, a token): reading the weights takes all the time.
 * So the panels are read once, in order and in their stored form, and each is used for all pixels. */
#include "conv.h"
#include "sums.h"
#include "units.h"

int fx_conv_is_gemv(uint32_t kernel, const fx_conv_params *p) {
    return kernel == FX_CONV_DIRECT && p->group == 1 && (int64_t)p->n * p->oh <= FX_FEW_ROWS / p->ow;
}

typedef struct workspace {
    const float **a;      /* [taps][rows] */
    float **c;            /* [rows] */
    const float **r;      /* [rows] */
    const float **part_a; /* [taps][rows]; this and part where sums are int32 */
    fx_part_tile part;
    fx_rows_s8 row; /* where it is cut into digits */
    int64_t bytes;
} workspace;

/* Whether products of the row's digits are faster than those of its floats. */
static int has_digits(const fx_kernels *k, const fx_conv_params *p) {
    return k->bytes->dot_digits_s8 && fx_multiplies_digits(p->wtype) && p->sums == FX_DTYPE_F32 &&
           (int64_t)p->n * p->oh * p->ow == 1 && p->kh == 1 && p->kw == 1 && p->cin % FX_ROUNDED == 0;
}

static workspace workspace_at(const fx_kernels *k, void *base, const fx_conv_params *p) {
    int64_t at = 0;
    workspace s;
    FX_TAKE(s.a, base, at, (int64_t)p->kh * p->kw * FX_FEW_ROWS);
    FX_TAKE(s.c, base, at, FX_FEW_ROWS);
    FX_TAKE(s.r, base, at, FX_FEW_ROWS);
    const int64_t part_rows = p->sums == FX_DTYPE_I32 ? FX_FEW_ROWS : 0;
    s.part.columns = FX_NR;
    FX_TAKE(s.part.floats, base, at, part_rows * FX_NR);
    FX_TAKE(s.part.row, base, at, part_rows);
    FX_TAKE(s.part_a, base, at, (int64_t)p->kh * p->kw * part_rows);
    const int64_t blocks = has_digits(k, p) ? p->cin / FX_ROUNDED : 0;
    s.row = (fx_rows_s8){.a = s.a, .rows = 1, .blocks = (int32_t)blocks, .wtype = p->wtype};
    FX_TAKE(s.row.to, base, at, FX_DIGITS * FX_ROUNDED * blocks);
    FX_TAKE(s.row.starts, base, at, FX_DIGITS * blocks);
    FX_TAKE(s.row.scales, base, at, blocks);
    FX_TAKE(s.row.sums, base, at, blocks);
    s.bytes = at;
    return s;
}

int64_t fx_conv_gemv_workspace(const fx_kernels *k, const fx_conv_params *p) {
    return workspace_at(k, NULL, p).bytes;
}

static fx_panel_layout layout_of(const fx_conv_params *p) {
    return fx_panel_layout_of(p->act, p->wtype, (int64_t)p->kh * p->kw * p->cin * FX_NR);
}

static uint32_t units_of(const fx_conv_params *p, fx_window w, int threads) {
    return fx_units_of(fx_div_up(w.c1 - w.c0, FX_NR), layout_of(p).bytes, threads);
}

uint32_t fx_conv_gemv_units(const fx_conv_params *p, fx_window w, int threads) {
    return units_of(p, w, threads);
}

/* Pointers to row i of `rows`: output row `row` of all images, pixel ox. */
static void point(const fx_call *call, const workspace *s, int i, int rows, int64_t row, int64_t ox) {
    const fx_conv_params *p = &call->params->conv;
    const int64_t batch = row / p->oh, oy = row % p->oh;
    const float *x = (const float *)call->in[0] + batch * p->x_sn;
    const float **a = s->a + i;
    for (int ky = 0; ky < p->kh; ky++) {
        const int64_t iy = oy * p->sh - p->pt + (int64_t)ky * p->dh;
        for (int kx = 0; kx < p->kw; kx++, a += rows) {
            const int64_t ix = ox * p->sw - p->pl + (int64_t)kx * p->dw;
            *a = iy >= 0 && iy < p->h && ix >= 0 && ix < p->w ? x + iy * p->x_sh + ix * p->x_sw : call->zeros;
        }
    }
    s->c[i] = (float *)call->out + batch * p->y_sn + oy * p->y_sh + ox * p->y_sw;
    if (p->has_residual)
        s->r[i] = (const float *)call->in[1] + batch * p->r_sn + oy * p->r_sh + ox * p->r_sw;
}

/* The product in int32: part by part of a panel, so that the panels are read in order. */
static void run_sums(const fx_call *call, const fx_gemv *g, const workspace *s) {
    const fx_part_tile *tile = &s->part;
    fx_gemv part = *g;
    part.a = s->part_a, part.c = tile->row, part.c_at = 0;
    for (int32_t i = 0; i < g->rows; i++)
        tile->row[i] = tile->floats + (int64_t)i * tile->columns;
    for (int32_t column = 0; column < g->columns; column += FX_NR, part.w += g->w_panel) {
        fx_part p = {.all_taps = g->taps, .all_k = g->k, .all_block = g->block, .terms = fx_exact_terms(g->wtype)};
        part.columns = (int32_t)fx_min64(FX_NR, g->columns - column);
        for (int is_more = 0; fx_next_part(&p); is_more = 1) {
            for (int32_t t = 0; t < p.taps; t++)
                for (int32_t i = 0; i < g->rows; i++)
                    s->part_a[t * g->rows + i] = g->a[(p.tap + t) * g->rows + i] + p.first + p.at;
            part.taps = p.taps, part.k = p.k, part.block = p.block;
            part.head = g->head + fx_weights_bytes(g->wtype, p.weight * FX_NR) / (int64_t)sizeof(float);
            call->kernels->gemv_f32(&part);
            for (int32_t i = 0; i < g->rows; i++)
                fx_add_sums(tile->row[i], (int32_t *)(void *)(g->c[i] + g->c_at + column), part.columns, is_more);
        }
    }
}

/* The product of the one row's digits; 0 where it cannot be cut. */
static int run_digits(const fx_call *call, const fx_gemv *g, const workspace *s) {
    const fx_byte_kernels *bytes = call->kernels->bytes;
    if (!s->row.blocks || !bytes->digits_s8(&s->row))
        return 0;
    const fx_dot_s8 d = {.rows = s->row,
                         .w = g->w,
                         .w_panel = g->w_panel,
                         .c = g->c,
                         .r = g->r,
                         .c_at = g->c_at,
                         .head = g->head,
                         .columns = g->columns,
                         .scales = g->scales,
                         .minimum = g->minimum,
                         .finish = g->finish};
    bytes->dot_digits_s8(&d);
    return 1;
}

fx_status fx_conv_gemv_run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_conv_params *p = &call->params->conv;
    const fx_window *win = &call->window;
    const workspace s = workspace_at(call->kernels, call->workspace, p);
    const int64_t panels = fx_div_up(win->c1 - win->c0, FX_NR), pieces = units_of(p, *win, threads);
    const int64_t first = fx_cut_at(panels, pieces, u0), last = fx_cut_at(panels, pieces, u1);
    fx_gemv g = {.a = s.a, .c = s.c, .r = p->has_residual ? s.r : NULL, .wtype = p->wtype};
    g.rows = (win->y1 - win->y0) * p->ow;
    g.all_rows = p->n * p->oh * p->ow;
    for (int32_t i = 0; i < g.rows; i++)
        point(call, &s, i, g.rows, win->y0 + i / p->ow, i % p->ow);
    const fx_panel_layout layout = layout_of(p);
    g.head = layout.weights / (int64_t)sizeof(float);
    g.scales = (int32_t)(layout.scales / (int64_t)sizeof(float));
    g.minimum = (int32_t)(layout.minimum / (int64_t)sizeof(float));
    g.w_panel = layout.bytes / (int64_t)sizeof(float);
    g.w = call->weight + first * g.w_panel;
    g.taps = p->kh * p->kw;
    g.k = p->cin;
    g.block = (int32_t)fx_min64(p->cin_block, p->cin);
    g.c_at = win->c0 + first * FX_NR;
    g.columns = (int32_t)(fx_min64(win->c1, win->c0 + last * FX_NR) - g.c_at);
    g.finish = fx_finish_of(p->act, p->alpha, p->beta);
    if (g.columns <= 0)
        return FX_OK;
    if (p->sums == FX_DTYPE_I32) {
        run_sums(call, &g, &s);
        return FX_OK;
    }
    if (!run_digits(call, &g, &s))
        call->kernels->gemv_f32(&g);
    if (fx_finish_is_partial(p->act))
        fx_activate_tile(call->kernels, (fx_activation){p->act, p->alpha, p->beta}, s.c, g.rows, g.c_at, g.columns);
    return FX_OK;
}
