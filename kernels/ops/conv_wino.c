/* Convolution by Winograd F(2x2, 3x3) and F(4x4, 3x3), and F(4, r) along a row or a column of pixels, weights
 * transformed in cache from the raw panels.
 *
 * A unit is a block of tiles and a range of panels: the block's input is transformed once, into V; then for each tile
 * of panels, some channels at a time, the weights into U and the products, plane by plane, into S; then S into the
 * output. */
#include "conv.h"
#include "wino_line.h"

#include <math.h>

/* Planes that lie a power of two apart share cache sets: measured up to 10 times slower. */
#define PLANE_PAD 48

/* U: it is read once for each tile of rows, from L2. */
#define U_BYTES (296 << 10)

/* Channels that are summed in one chain: rounding errors grow with its length (docs/decisions/0022). */
#define CHAIN_MAX 64

typedef struct sizes {
    int32_t mh, mw, columns; /* output pixels of a tile; tiles of a row */
    int32_t wide, planes;    /* input pixels of a tile in a row, and in all */
    int32_t taps, is_line;
    int32_t tiles;             /* of a block at most */
    int32_t chunk;             /* channels whose weights are transformed at once */
    int64_t v, u, s, w, bytes; /* floats of each buffer; bytes of all */
} sizes;

static sizes sizes_of(const fx_kernels *k, uint32_t kernel, const fx_conv_params *p) {
    sizes z;
    const int m = kernel == FX_CONV_WINO2 ? 2 : 4;
    z.is_line = kernel == FX_CONV_WINO_LINE;
    z.taps = p->kh * p->kw;
    z.mh = p->kh > 1 ? m : 1;
    z.mw = p->kw > 1 ? m : 1;
    z.wide = z.mw + p->kw - 1;
    z.planes = z.wide * (z.mh + p->kh - 1);
    z.columns = (int32_t)fx_div_up(p->ow, z.mw);
    const int64_t all = (int64_t)p->n * fx_div_up(p->oh, z.mh) * z.columns;
    z.tiles = (int32_t)fx_min64(p->tile_block, all);
    const int64_t channel_bytes = (int64_t)z.planes * k->panels * FX_NR * (int64_t)sizeof(float);
    const int64_t fit = fx_min64(CHAIN_MAX, fx_max64(8, U_BYTES / channel_bytes / 8 * 8));
    z.chunk = (int32_t)fx_round_up(fx_div_up(p->cin, fx_div_up(p->cin, fit)), 8);
    z.v = fx_round_up(z.planes * ((int64_t)z.tiles * p->cin + fx_div_up(p->cin, z.chunk) * PLANE_PAD), 16);
    z.u = fx_round_up(z.planes * ((int64_t)z.chunk * k->panels * FX_NR + PLANE_PAD), 16);
    z.s = fx_round_up(z.planes * ((int64_t)z.tiles * k->panels * FX_NR + PLANE_PAD), 16);
    z.w = fx_panels_room(p->act, p->wtype, (int64_t)z.taps * p->cin * FX_NR, k->panels);
    z.bytes = (z.v + z.u + z.s + z.w) * (int64_t)sizeof(float);
    return z;
}

int64_t fx_conv_wino_workspace(const fx_kernels *k, uint32_t kernel, const fx_conv_params *p) {
    return sizes_of(k, kernel, p).bytes;
}

/* ---- tiles of a window: rows of tiles start anew at each image ---- */

typedef struct tile_rows {
    int64_t first, middle, all; /* rows of tiles in the window's first image, in a whole image, in the window */
} tile_rows;

static tile_rows tile_rows_of(const fx_conv_params *p, fx_window w, int m) {
    const int64_t rows = w.y1 - w.y0;
    const int64_t head = fx_min64(rows, p->oh - w.y0 % p->oh);
    tile_rows t = {fx_div_up(head, m), fx_div_up(p->oh, m), 0};
    t.all = t.first + (rows - head) / p->oh * t.middle + fx_div_up((rows - head) % p->oh, m);
    return t;
}

/* Batch and first output row of a row of tiles; returns the output rows it has. */
static int32_t locate(const fx_conv_params *p, fx_window w, int m, tile_rows t, int64_t row, int64_t *batch,
                      int64_t *oy) {
    *batch = w.y0 / p->oh;
    if (row < t.first) {
        *oy = w.y0 % p->oh + row * m;
    } else {
        *batch += 1 + (row - t.first) / t.middle;
        *oy = (row - t.first) % t.middle * m;
    }
    return (int32_t)fx_min64(m, fx_min64(p->oh, w.y1 - *batch * p->oh) - *oy);
}

/* Cost of transforms in multiply-adds at the products' rate (measured with AVX-512): of a channel of a tile, in or out,
 * and of a pair of channels of the weights. */
typedef struct costs {
    double tile, weight;
} costs;
static costs costs_of(const sizes *z) {
    return z->is_line ? (costs){130, 130} : z->mh == 2 ? (costs){350, 120} : (costs){1000, 200};
}

#define TRIED_MAX 16

/* Cuts tiles into blocks and panels into parts so that the last thread finishes as early as possible: every block
 * transforms the weights again, every part the input. */
static fx_cut cut_window(const fx_kernels *k, const sizes *z, const fx_conv_params *p, fx_window w, int threads) {
    const int64_t tiles = tile_rows_of(p, w, z->mh).all * z->columns;
    const int64_t groups = fx_div_up(fx_div_up(w.c1 - w.c0, FX_NR), k->panels);
    const int64_t least = fx_div_up(tiles, z->tiles), tried = threads > 1 ? fx_min64(2 * threads, TRIED_MAX) : 0;
    fx_cut best = {tiles, groups, least, 1};
    const costs of = costs_of(z);
    double best_cost = INFINITY;
    for (int64_t parts = least; parts < least + tried && parts <= tiles; parts++)
        for (int64_t cuts = 1; cuts <= tried && cuts <= groups; cuts++) {
            const double block = (double)fx_div_up(tiles, parts);
            const double columns = (double)(fx_div_up(groups, cuts) * k->panels * FX_NR);
            const double unit =
                block * of.tile * (p->cin + columns) + p->cin * columns * (block * z->planes + of.weight);
            const double cost = unit * (double)fx_div_up(parts * cuts, threads);
            if (cost < best_cost) {
                best.parts = parts, best.cuts = cuts;
                best_cost = cost;
            }
        }
    return best;
}

uint32_t fx_conv_wino_units(const fx_kernels *k, uint32_t kernel, const fx_conv_params *p, fx_window w, int threads) {
    const sizes z = sizes_of(k, kernel, p);
    const fx_cut cut = cut_window(k, &z, p, w, threads);
    return (uint32_t)(cut.parts * cut.cuts);
}

/* ---- a unit ---- */

typedef struct block {
    const fx_call *call;
    const fx_conv_params *p;
    sizes z;
    fx_wino_line line; /* WINO_LINE */
    tile_rows rows;
    int64_t first; /* tile of the window */
    int32_t tiles;
    int64_t s_plane;
    float *v, *u, *s, *w; /* w: raw panels, where they are not stored as floats */
} block;

/* Planes of `count` channels of every tile. */
static int64_t v_plane(const block *b, int32_t count) {
    return (int64_t)b->tiles * count + PLANE_PAD;
}

/* Where the planes of the channels from c0 on begin: the product reads them from end to end. */
static float *v_chunk(const block *b, int32_t c0) {
    return b->v + c0 / b->z.chunk * b->z.planes * v_plane(b, b->z.chunk);
}

static void transform_input(const block *b) {
    const fx_conv_params *p = b->p;
    const sizes *z = &b->z;
    const float *pixels[FX_WINO_PLANES_MAX];
    float *to[FX_MIX_MAX];
    fx_wino_input t = {.x = pixels, .m = z->mh};
    fx_mix line = {.x = pixels, .y = to, .m = b->line.input, .from = z->planes, .to = z->planes};
    for (int32_t i = 0; i < b->tiles; i++) {
        int64_t batch, oy;
        locate(p, b->call->window, z->mh, b->rows, (b->first + i) / z->columns, &batch, &oy);
        const float *x = (const float *)b->call->in[0] + batch * p->x_sn;
        const int64_t iy = oy - p->pt, ix = (b->first + i) % z->columns * z->mw - p->pl;
        for (int q = 0; q < z->planes; q++) {
            const int64_t y = iy + q / z->wide, at = ix + q % z->wide;
            pixels[q] = y >= 0 && y < p->h && at >= 0 && at < p->w ? x + y * p->x_sh + at * p->x_sw : b->call->zeros;
        }
        for (int32_t c0 = 0; c0 < p->cin; c0 += z->chunk) {
            const int32_t count = (int32_t)fx_min64(z->chunk, p->cin - c0);
            t.plane = v_plane(b, count);
            t.v = v_chunk(b, c0) + (int64_t)i * count;
            t.channels = count;
            if (!z->is_line) {
                b->call->kernels->wino_input_f32(&t);
            } else {
                for (int q = 0; q < z->planes; q++)
                    to[q] = t.v + q * t.plane;
                line.n = count;
                b->call->kernels->mix_f32(&line);
            }
            for (int q = 0; q < z->planes; q++)
                pixels[q] += count;
        }
    }
}

/* Weights of channels [c0, c0 + count) of one panel: part by part, as the panel's blocks have them. */
static void transform_weights(const block *b, const float *weights, int32_t c0, int32_t count, float *u,
                              int64_t u_plane) {
    const fx_conv_params *p = b->p;
    const float *from[FX_MIX_MAX];
    float *to[FX_MIX_MAX];
    fx_wino_weight t = {.plane = u_plane, .m = b->z.mh};
    fx_mix line = {.x = from, .y = to, .m = b->line.weight, .from = b->z.taps, .to = b->z.planes};
    for (int32_t c = c0; c < c0 + count; c += t.channels) {
        const int32_t first = c / p->cin_block * p->cin_block;
        const int32_t wide = (int32_t)fx_min64(p->cin_block, p->cin - first);
        t.channels = (int32_t)fx_min64(first + wide, c0 + count) - c;
        t.tap = (int64_t)wide * FX_NR;
        t.g = weights + ((int64_t)first * b->z.taps + (c - first)) * FX_NR;
        t.u = u + (int64_t)(c - c0) * FX_NR;
        if (!b->z.is_line) {
            b->call->kernels->wino_weight_f32(&t);
            continue;
        }
        for (int i = 0; i < b->z.taps; i++)
            from[i] = t.g + i * t.tap;
        for (int q = 0; q < b->z.planes; q++)
            to[q] = t.u + q * u_plane;
        line.n = (int64_t)t.channels * FX_NR;
        b->call->kernels->mix_f32(&line);
    }
}

/* Channels of a chain of sums. F(2 x 2, 3 x 3) is chosen where errors count: half a chunk (docs/decisions/0022). */
static int32_t chain_of(const block *b, int32_t count) {
    return b->z.planes == FX_WINO_PLANES(2) ? (int32_t)fx_min64(count, 32) : count;
}

static void multiply(const block *b, int32_t c0, int32_t count, int32_t panels, int64_t u_plane) {
    const int64_t mr = b->call->kernels->mr, pieces = fx_div_up(b->tiles, mr);
    const int32_t chain = chain_of(b, count);
    fx_wino_gemm g = {.lda = count, .ldc = (int64_t)panels * FX_NR, .panels = panels};
    g.w_panel = (int64_t)count * FX_NR;
    for (int q = 0; q < b->z.planes; q++)
        for (int32_t k0 = 0; k0 < count; k0 += chain) {
            g.k = fx_min64(chain, count - k0);
            g.w = b->u + q * u_plane + (int64_t)k0 * FX_NR;
            g.is_first = c0 + k0 == 0;
            for (int64_t i = 0; i < pieces; i++) {
                const int64_t t0 = fx_cut_at(b->tiles, pieces, i);
                g.rows = (int32_t)(fx_cut_at(b->tiles, pieces, i + 1) - t0);
                g.a = v_chunk(b, c0) + q * v_plane(b, count) + t0 * count + k0;
                g.c = b->s + q * b->s_plane + t0 * g.ldc;
                b->call->kernels->wino_gemm_f32(&g);
            }
        }
}

/* The outputs of one tile and one panel along a line: as many as t has pixels, or rows. */
static void finish_line(const block *b, const fx_wino_output *t) {
    const float *from[FX_MIX_MAX], *r[FX_LINE_OUT];
    float *to[FX_LINE_OUT];
    const int is_row = b->z.mw > 1;
    const fx_mix line = {.x = from,
                         .y = to,
                         .r = t->r ? r : NULL,
                         .m = b->line.output,
                         .panel = t->panel,
                         .n = t->columns,
                         .from = b->z.planes,
                         .to = is_row ? t->pixels : t->rows,
                         .finish = t->finish};
    for (int q = 0; q < b->z.planes; q++)
        from[q] = t->s + q * t->plane;
    for (int l = 0; l < line.to; l++) {
        to[l] = t->y + l * (is_row ? t->y_pixel : t->y_row);
        if (t->r)
            r[l] = t->r + l * (is_row ? t->r_pixel : t->r_row);
    }
    b->call->kernels->mix_f32(&line);
}

static void transform_output(const block *b, int32_t panel, int32_t panels, const float *weight, int64_t panel_floats) {
    const fx_conv_params *p = b->p;
    const fx_kernels *k = b->call->kernels;
    fx_wino_output t = {.plane = b->s_plane, .y_row = p->y_sh, .y_pixel = p->y_sw, .r_row = p->r_sh};
    t.r_pixel = p->r_sw;
    t.m = b->z.mh;
    t.finish = fx_finish_of(p->act, p->alpha, p->beta);
    for (int32_t i = 0; i < b->tiles; i++) {
        int64_t batch, oy;
        t.rows = locate(p, b->call->window, b->z.mh, b->rows, (b->first + i) / b->z.columns, &batch, &oy);
        const int64_t ox = (b->first + i) % b->z.columns * b->z.mw;
        t.pixels = (int32_t)fx_min64(b->z.mw, p->ow - ox);
        for (int32_t j = 0; j < panels; j++) {
            const int64_t channel = (int64_t)(panel + j) * FX_NR;
            t.columns = (int32_t)fx_min64(FX_NR, b->call->window.c1 - channel);
            t.s = b->s + ((int64_t)i * panels + j) * FX_NR;
            t.panel = weight + j * panel_floats;
            t.y = (float *)b->call->out + batch * p->y_sn + oy * p->y_sh + ox * p->y_sw + channel;
            if (p->has_residual)
                t.r = (const float *)b->call->in[1] + batch * p->r_sn + oy * p->r_sh + ox * p->r_sw + channel;
            if (b->z.is_line)
                finish_line(b, &t);
            else
                k->wino_output_f32(&t);
            if (fx_finish_is_partial(p->act))
                for (int row = 0; row < t.rows; row++)
                    fx_activate_rows(k, (fx_activation){p->act, p->alpha, p->beta}, t.y + row * t.y_row, t.pixels,
                                     t.y_pixel, t.columns);
        }
    }
}

static void run_panels(block *b, int32_t first, int32_t last) {
    const fx_conv_params *p = b->p;
    const int32_t head = fx_panel_head(p->act);
    const int64_t panel_floats = head + (int64_t)b->z.taps * p->cin * FX_NR;
    const fx_panels stored = {b->call, b->w, panel_floats - head, p->act, p->wtype};
    for (int32_t panel = first, panels; panel < last; panel += panels) {
        panels = (int32_t)fx_min64(b->call->kernels->panels, last - panel);
        const float *weight = fx_panels_at(&stored, panel - b->call->window.c0 / FX_NR, panels);
        b->s_plane = (int64_t)b->tiles * panels * FX_NR + PLANE_PAD;
        for (int32_t c0 = 0; c0 < p->cin; c0 += b->z.chunk) {
            const int32_t count = (int32_t)fx_min64(b->z.chunk, p->cin - c0);
            const int64_t u_panel = (int64_t)count * FX_NR, u_plane = panels * u_panel + PLANE_PAD;
            for (int32_t j = 0; j < panels; j++)
                transform_weights(b, weight + j * panel_floats + head, c0, count, b->u + j * u_panel, u_plane);
            multiply(b, c0, count, panels, u_plane);
        }
        transform_output(b, panel, panels, weight, panel_floats);
    }
}

fx_status fx_conv_wino_run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_conv_params *p = &call->params->conv;
    const fx_kernels *k = call->kernels;
    const fx_window *win = &call->window;
    block b = {.call = call, .p = p, .z = sizes_of(k, call->kernel, p)};
    b.line = fx_wino_line_of(b.z.taps);
    b.rows = tile_rows_of(p, *win, b.z.mh);
    b.v = call->workspace;
    b.u = b.v + b.z.v;
    b.s = b.u + b.z.u;
    b.w = b.s + b.z.s;
    const fx_cut cut = cut_window(k, &b.z, p, *win, threads);
    const int64_t panel0 = win->c0 / FX_NR, panel_end = fx_div_up(win->c1, FX_NR);
    int64_t transformed = -1;
    for (uint32_t unit = u0; unit < u1; unit++) {
        const int64_t part = unit / cut.cuts, piece = unit % cut.cuts;
        if (part != transformed) {
            b.first = fx_cut_at(cut.items, cut.parts, part);
            b.tiles = (int32_t)(fx_cut_at(cut.items, cut.parts, part + 1) - b.first);
            transform_input(&b);
            transformed = part;
        }
        const int64_t first = panel0 + k->panels * fx_cut_at(cut.groups, cut.cuts, piece);
        const int64_t last = panel0 + k->panels * fx_cut_at(cut.groups, cut.cuts, piece + 1);
        run_panels(&b, (int32_t)first, (int32_t)fx_min64(last, panel_end));
    }
    return FX_OK;
}
