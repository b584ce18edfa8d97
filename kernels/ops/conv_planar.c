/* Convolution with few output channels: much of a panel of FX_NR channels would be empty, so vectors hold pixels.
 *
 * The rows of the map that an output row sees stand in the workspace by channel, and by x modulo the stride, with zeros
 * beside the map; the next output row finds most of them there. An output row is computed in pieces, by channel as
 * well, and then turned. */
#include "conv.h"

#include <string.h>

#define PIECE_PIXELS 512 /* at most */
#define ROWS_BYTES (2 << 20)

typedef struct shape {
    int64_t pieces, pixels; /* of an output row; of a piece, as the kernel computes them */
    int64_t wide;           /* floats of an input row, for one channel and one x modulo the stride */
    int64_t rows;           /* that stand in the workspace: row y of the map is number y % rows */
} shape;

static int64_t rows_of(const fx_conv_params *p) {
    return (int64_t)(p->kh - 1) * p->dh + 1;
}

static shape shape_of(const fx_conv_params *p) {
    shape s = {.pieces = fx_div_up(p->ow, PIECE_PIXELS), .rows = rows_of(p)};
    s.pixels = fx_round_up(fx_div_up(p->ow, s.pieces), FX_PLANAR_PIXELS);
    /* An odd number of lines: rows that lie a power of two apart share few sets of a cache. */
    s.wide = fx_round_up(s.pixels + (int64_t)(p->kw - 1) * p->dw / p->sw + 1, FX_PLANAR_PIXELS) | FX_PLANAR_PIXELS;
    return s;
}

int fx_conv_planar_fits(const fx_conv_params *p) {
    if (p->group != 1 || p->cout > FX_PLANAR_COLUMNS || p->cin > FX_GEMM_RUN || p->cin_block < p->cin ||
        p->sums != FX_DTYPE_F32)
        return 0;
    if (p->kh > 1024 || p->kw > 1024 || p->dh > 1024 || p->dw > 1024 || p->sw > 16)
        return 0;
    /* At the most, whatever the sizes of the map: plans serve several. */
    const int64_t wide = PIECE_PIXELS + (int64_t)(p->kw - 1) * p->dw / p->sw + 2 * FX_PLANAR_PIXELS;
    return rows_of(p) * p->cin * p->sw * wide * (int64_t)sizeof(float) <= ROWS_BYTES;
}

typedef struct workspace {
    const float **x; /* [kh][cin] */
    int32_t *at;     /* [kw] */
    int64_t *held;   /* [rows]: the row of the map that each holds, or -1 */
    float *rows;     /* [rows][cin][sw][wide] */
    float *zeros;    /* [sw][wide] */
    float *y;        /* [cout][pixels] */
    float *r;        /* [cout][pixels], or NULL: the residual */
    float *panel;
    int64_t bytes;
} workspace;

static workspace workspace_at(void *base, const fx_conv_params *p) {
    const shape z = shape_of(p);
    int64_t at = 0;
    workspace s;
    FX_TAKE(s.x, base, at, (int64_t)p->kh * p->cin);
    FX_TAKE(s.at, base, at, p->kw);
    FX_TAKE(s.held, base, at, z.rows);
    FX_TAKE(s.rows, base, at, z.rows * p->cin * p->sw * z.wide);
    FX_TAKE(s.zeros, base, at, p->sw * z.wide);
    FX_TAKE(s.y, base, at, p->cout * z.pixels);
    FX_TAKE(s.r, base, at, p->has_residual ? p->cout * z.pixels : 0);
    FX_TAKE(s.panel, base, at, fx_panels_room(p->act, p->wtype, (int64_t)p->kh * p->kw * p->cin * FX_NR, 1));
    s.bytes = at;
    return s;
}

int64_t fx_conv_planar_workspace(const fx_conv_params *p) {
    return workspace_at(NULL, p).bytes;
}

static fx_cut cut_window(const fx_conv_params *p, fx_window w, int threads) {
    return fx_cut_window((w.y1 - w.y0) * shape_of(p).pieces, 1, 1, threads);
}

uint32_t fx_conv_planar_units(const fx_conv_params *p, fx_window w, int threads) {
    return (uint32_t)cut_window(p, w, threads).parts;
}

/* y[j * y_row + i] = x[i * x_row + j] for i < rows, j < columns. */
static void turn(const fx_kernels *k, const float *x, int64_t x_row, float *y, int64_t y_row, int64_t rows,
                 int64_t columns) {
    const fx_transpose t = {.x = (const uint32_t *)(const void *)x,
                            .y = (uint32_t *)(void *)y,
                            .rows = rows,
                            .columns = columns,
                            .x_row = x_row,
                            .y_row = y_row};
    if (columns == 1 && x_row == 1)
        memcpy(y, x, (size_t)rows * sizeof(float));
    else if (rows == 1 && y_row == 1)
        memcpy(y, x, (size_t)columns * sizeof(float));
    else
        k->transpose_u32(&t);
}

/* Lays a row of the map out from the first tap of output pixel x0 on. */
static void lay_row(const fx_call *call, const shape *z, const float *row, int64_t x0, float *to) {
    const fx_conv_params *p = &call->params->conv;
    for (int64_t f = 0; f < p->sw; f++) {
        const int64_t ix = x0 * p->sw - p->pl + f; /* of float 0; of float i: ix + i * sw */
        const int64_t left = fx_min64(ix < 0 ? fx_div_up(-ix, p->sw) : 0, z->wide);
        const int64_t right = fx_min64(fx_max64(ix < p->w ? fx_div_up(p->w - ix, p->sw) : 0, left), z->wide);
        for (int64_t q = 0; q < p->cin; q++) {
            float *plane = to + (q * p->sw + f) * z->wide;
            memset(plane, 0, (size_t)left * sizeof(float));
            memset(plane + right, 0, (size_t)(z->wide - right) * sizeof(float));
        }
        if (right > left)
            turn(call->kernels, row + (ix + left * p->sw) * p->x_sw, (int64_t)p->sw * p->x_sw, to + f * z->wide + left,
                 p->sw * z->wide, right - left, p->cin);
    }
}

/* Pointers to the taps of output row `row` of all images, from output pixel x0 on. */
static void point(const fx_call *call, const shape *z, const workspace *s, int64_t row, int64_t x0) {
    const fx_conv_params *p = &call->params->conv;
    const float *map = (const float *)call->in[0] + row / p->oh * p->x_sn;
    const int64_t plane = p->sw * z->wide;
    for (int64_t ky = 0; ky < p->kh; ky++) {
        const int64_t iy = row % p->oh * p->sh - p->pt + ky * p->dh;
        const int is_inside = iy >= 0 && iy < p->h;
        const int64_t number = is_inside ? iy % z->rows : 0;
        float *at = is_inside ? s->rows + number * p->cin * plane : s->zeros;
        if (is_inside && s->held[number] != iy) {
            lay_row(call, z, map + iy * p->x_sh, x0, at);
            s->held[number] = iy;
        }
        for (int64_t q = 0; q < p->cin; q++, at += is_inside ? plane : 0)
            s->x[ky * p->cin + q] = at;
    }
}

/* Output pixels [x0, x1) of a row, whose taps are pointed at; `r` is room for their residual. */
static void run_piece(const fx_call *call, fx_planar *g, float *r, int64_t row, int64_t x0, int64_t x1) {
    const fx_conv_params *p = &call->params->conv;
    g->pixels = (int32_t)fx_round_up(x1 - x0, FX_PLANAR_PIXELS);
    if (p->has_residual) {
        const float *from = (const float *)call->in[1] + row / p->oh * p->r_sn + row % p->oh * p->r_sh + x0 * p->r_sw;
        turn(call->kernels, from, p->r_sw, r, g->y_row, x1 - x0, g->columns);
        g->r = r;
    }
    call->kernels->planar_f32(g);
    if (fx_finish_is_partial(p->act))
        fx_activate_rows(call->kernels, (fx_activation){p->act, p->alpha, p->beta}, g->y, g->columns, g->y_row,
                         x1 - x0);
    float *y = (float *)call->out + row / p->oh * p->y_sn + row % p->oh * p->y_sh + x0 * p->y_sw;
    turn(call->kernels, g->y, g->y_row, y, p->y_sw, g->columns, x1 - x0);
}

fx_status fx_conv_planar_run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_conv_params *p = &call->params->conv;
    const fx_window *win = &call->window;
    const shape z = shape_of(p);
    const fx_cut cut = cut_window(p, *win, threads);
    const workspace s = workspace_at(call->workspace, p);
    const int64_t high = win->y1 - win->y0, weights = (int64_t)p->kh * p->kw * p->cin * FX_NR;
    const fx_panels panels = {.call = call, .room = s.panel, .weights = weights, .act = p->act, .wtype = p->wtype};
    fx_planar g = {.x = s.x, .at = s.at, .w = fx_panels_at(&panels, 0, 1), .y = s.y, .y_row = z.pixels};
    g.columns = win->c1 - win->c0, g.kh = p->kh, g.kw = p->kw, g.cin = p->cin, g.head = fx_panel_head(p->act);
    g.finish = fx_finish_of(p->act, p->alpha, p->beta);
    for (int64_t kx = 0; kx < p->kw; kx++)
        s.at[kx] = (int32_t)(kx * p->dw % p->sw * z.wide + kx * p->dw / p->sw);
    memset(s.zeros, 0, (size_t)(p->sw * z.wide) * sizeof(float));
    int64_t piece = -1, batch = -1;
    for (int64_t item = fx_cut_at(cut.items, cut.parts, u0); item < fx_cut_at(cut.items, cut.parts, u1); item++) {
        const int64_t row = win->y0 + item % high;
        if (item / high != piece || row / p->oh != batch)
            for (int64_t i = 0; i < z.rows; i++)
                s.held[i] = -1;
        piece = item / high, batch = row / p->oh;
        const int64_t x0 = fx_cut_at(p->ow, z.pieces, piece);
        point(call, &z, &s, row, x0);
        run_piece(call, &g, s.r, row, x0, fx_cut_at(p->ow, z.pieces, piece + 1));
    }
    return FX_OK;
}
