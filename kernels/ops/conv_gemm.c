/* Convolution as an implicit matrix product: a row for each output pixel, pointers to its taps made per tile.
 *
 * DIRECT (Dukhan, "The Indirect Convolution Algorithm", 2019, without the stored indirection buffer): a pointer for
 * each tap and pixel, to zeros outside the map. IM2COL: a pointer for each row of taps, whose kw * cin floats are one
 * run of the input; only runs that leave the map, or are not contiguous, are gathered into the workspace. Where a tile
 * is a strip of one output row, its pixels' runs lie at a step, and one pointer serves them all. A tap outside the map
 * for all pixels of a tile costs nothing (conv_taps.c).
 *
 * Inside a unit tiles are the outer loop and panels the inner one: a tile's input stays in L1 while the unit's panels,
 * at most cache_bytes unless one tile of panels is bigger, come from L2. */
#include "conv.h"
#include "conv_taps.h"
#include "sums.h"

typedef struct workspace {
    const float **a; /* [taps][rows] */
    float **c;       /* [rows] */
    const float **r; /* [rows] */
    float *gathered; /* IM2COL: [rows][kh][kw * cin], or [kh] strips */
    float *panels;   /* of a unit, where they are not stored as floats */
    fx_pairs pairs;  /* this or part where sums are int32 */
    fx_part_tile part;
    int64_t size;
} workspace;

/* Pixels a multiple of 4 KiB apart share one set of an L1 cache, mostly of 8 ways: with more rows in a tile their lines
 * push each other out (measured: 87 against 115 GFLOP/s with 14 and 7 rows of 1024 channels). */
#define ROWS_ON_ONE_SET 7

static int is_sums_of_pairs(const fx_kernels *k, const fx_conv_params *p) {
    return p->sums == FX_DTYPE_I32 && k->gemm_s16;
}

static int64_t rows_at_most(const fx_kernels *k, const fx_conv_params *p) {
    const int64_t pixel_bytes = (int64_t)p->x_sw * p->sw * (int64_t)sizeof(float);
    return pixel_bytes % 4096 ? k->mr : fx_min64(k->mr, ROWS_ON_ONE_SET);
}

/* Maps of this many bytes together leave L2 before they are read again. */
#define LARGE_MAPS_BYTES (4 << 20)

static int has_large_maps(const fx_conv_params *p) {
    const int64_t in = (int64_t)p->n * p->h * p->w * p->cin, out = (int64_t)p->n * p->oh * p->ow * p->cout;
    return (in + out * (1 + p->has_residual)) * (int64_t)sizeof(float) >= LARGE_MAPS_BYTES;
}

/* Weights that stay in L2. CPUs with vectors of 64 bytes have 1 MiB of it or more for each core: twice the panels, read
 * where they lie, halve the times that large maps are read (measured: 6.9 ms for 8.1 at 1x1, 768 -> 768, @32^2). */
static int64_t cache_bytes(const fx_kernels *k, const fx_conv_params *p) {
    const int is_in_place = p->wtype == FX_WTYPE_F32 && p->sums == FX_DTYPE_F32;
    return is_in_place && k->width == 16 && has_large_maps(p) ? 2 * FX_CACHE_BYTES : FX_CACHE_BYTES;
}

/* Tiles of panels that stay in a cache. */
static int64_t groups_at_most(const fx_kernels *k, const fx_conv_params *p) {
    const int64_t weight_bytes = is_sums_of_pairs(k, p) ? sizeof(int16_t) : sizeof(float);
    const int64_t group_bytes = (int64_t)p->kh * p->kw * p->cin_panel * FX_NR * k->panels * weight_bytes;
    return fx_max64(1, cache_bytes(k, p) / group_bytes);
}

/* 1: a tile is a strip of an output row. Shorter rows than half of a tile are left to tiles that cross them. */
static int is_stepped(const fx_kernels *k, uint32_t kernel, const fx_conv_params *p) {
    return kernel == FX_CONV_IM2COL && p->dw == 1 && p->sw <= p->kw && 2 * p->ow >= k->mr && p->sums == FX_DTYPE_F32;
}

static workspace workspace_at(void *base, const fx_kernels *k, uint32_t kernel, const fx_conv_params *p) {
    const int gathers = kernel == FX_CONV_IM2COL;
    const int64_t taps = gathers ? p->kh : (int64_t)p->kh * p->kw;
    int64_t at = 0;
    workspace s;
    FX_TAKE(s.a, base, at, taps * k->mr);
    FX_TAKE(s.c, base, at, k->mr);
    FX_TAKE(s.r, base, at, k->mr);
    const int64_t pixels = is_stepped(k, kernel, p) ? fx_strip_pixels(p, k->mr) : (int64_t)k->mr * p->kw;
    FX_TAKE(s.gathered, base, at, gathers ? pixels * p->kh * p->cin : 0);
    const int64_t depth = (int64_t)p->kh * p->kw * p->cin_panel;
    const int64_t panels = fx_min64(groups_at_most(k, p) * k->panels, fx_div_up(p->cout, FX_NR));
    s.pairs = p->sums == FX_DTYPE_I32 ? fx_pairs_at(base, &at, k, depth, panels) : (fx_pairs){0};
    const int is_paired = is_sums_of_pairs(k, p);
    FX_TAKE(s.panels, base, at, fx_panels_room(p->act, p->wtype, depth * FX_NR, is_paired ? 1 : panels));
    const int64_t part_rows = p->sums == FX_DTYPE_I32 && !is_paired ? k->mr : 0;
    s.part.columns = k->panels * FX_NR;
    FX_TAKE(s.part.floats, base, at, part_rows * s.part.columns);
    FX_TAKE(s.part.row, base, at, part_rows);
    s.size = at;
    return s;
}

int64_t fx_conv_gemm_workspace(const fx_kernels *k, uint32_t kernel, const fx_conv_params *p) {
    return workspace_at(NULL, k, kernel, p).size;
}

typedef enum asking { ASK_NOTHING, ASK_NOW, ASK_AHEAD } asking; /* for lines that a tile will touch */

typedef struct walk {
    const fx_call *call;
    const fx_conv_params *p;
    workspace s;
    fx_tap_walk taps;
    asking asks;
    int64_t next_panels; /* from the unit's first one to the next unit's; 0: none is prefetched, -1: it is the last */
    int64_t tile, tiles; /* of the unit: the one that is computed, and their number */
} walk;

/* ---- the window ---- */

/* Pixels that are cut into tiles evenly, the window's or an output row's; `tile` of them end before pixel `begin`. */
typedef struct stretch {
    int64_t pixels, tiles, tile, begin;
} stretch;

static stretch stretch_of(const fx_kernels *k, uint32_t kernel, const fx_conv_params *p, fx_window w) {
    const int64_t pixels = is_stepped(k, kernel, p) ? p->ow : (int64_t)(w.y1 - w.y0) * p->ow;
    return (stretch){pixels, fx_div_up(pixels, rows_at_most(k, p)), 0, 0};
}

/* Moves to tile t of all stretches and returns its first pixel. */
static int64_t seek(stretch *s, int64_t t) {
    s->tile = t % s->tiles;
    s->begin = fx_cut_at(s->pixels, s->tiles, s->tile);
    return t / s->tiles * s->pixels + s->begin;
}

/* Moves to the next tile and returns the pixels of the one before it. */
static int32_t pass(stretch *s) {
    if (s->tile == s->tiles)
        s->tile = s->begin = 0;
    const int64_t begin = s->begin;
    s->begin = fx_cut_at(s->pixels, s->tiles, ++s->tile);
    return (int32_t)(s->begin - begin);
}

static fx_cut cut_window(const fx_kernels *k, uint32_t kernel, const fx_conv_params *p, fx_window w, int threads) {
    const stretch s = stretch_of(k, kernel, p, w);
    const int64_t tiles = (int64_t)(w.y1 - w.y0) * p->ow / s.pixels * s.tiles;
    const int64_t groups = fx_div_up(fx_div_up(w.c1 - w.c0, FX_NR), k->panels);
    return fx_cut_window(tiles, groups, fx_div_up(groups, groups_at_most(k, p)), threads);
}

uint32_t fx_conv_gemm_units(const fx_kernels *k, uint32_t kernel, const fx_conv_params *p, fx_window w, int threads) {
    const fx_cut cut = cut_window(k, kernel, p, w, threads);
    return (uint32_t)(cut.parts * cut.cuts);
}

#define FX_LINE_FLOATS 16
/* Of large maps a tile's output and residual, and the input of one tap, are prefetched into L2 while the tile before it
 * is computed, a part with each call for that tile's panels (measured: 7.0 ms for 8.5 at 128 -> 128 @147^2). Of others
 * output and residual are prefetched right before they are computed: stores wait in a queue, which fills up where they
 * miss L1 (measured: 2.8 ms for 3.1 at 3 -> 64, 7x7, @224^2). */
#define ASK_PRODUCTS_MIN 64 /* of an output, and of a prefetched input: fewer take less time than prefetching */
#define ASK_AHEAD_PRODUCTS_MIN 24

static asking asking_of(const fx_conv_params *p, const fx_gemm *g) {
    const int64_t products = (int64_t)g->taps * g->k;
    if (has_large_maps(p))
        return products >= ASK_AHEAD_PRODUCTS_MIN ? ASK_AHEAD : ASK_NOTHING;
    return products >= ASK_PRODUCTS_MIN ? ASK_NOW : ASK_NOTHING;
}

/* Without the empty volatile asm in both, gcc drops calls of a function that only prefetches, as if it did nothing. */
static void ask_now(const fx_gemm *g) {
    __asm__ volatile("");
    for (int i = 0; i < g->rows; i++)
        for (int32_t j = 0; j < g->columns; j += FX_LINE_FLOATS) {
            __builtin_prefetch(g->c[i] + g->c_at + j, 1);
            if (g->r)
                __builtin_prefetch(g->r[i] + g->c_at + j);
        }
}

/* Prefetches `floats` floats, `ahead` floats after p. That may be past the map's end: an address, not a pointer. */
static void ask(const float *p, int64_t ahead, int64_t floats) {
    const uintptr_t at = (uintptr_t)p + (uintptr_t)ahead * sizeof(float);
    __asm__ volatile("");
    for (int64_t i = 0; i < floats; i += FX_LINE_FLOATS)
        __builtin_prefetch((const void *)(at + (uintptr_t)i * sizeof(float)), 0, 2);
}

/* Prefetches a part of the next tile; panels [panel, panel + g->panels) of [first, last) are computed next. */
static void ask_ahead(const walk *w, const fx_gemm *g, int32_t first, int32_t panel, int32_t last) {
    const fx_conv_params *p = w->p;
    for (int i = 0; i < g->rows; i++) {
        ask(g->c[i] + g->c_at, (int64_t)g->rows * p->y_sw, g->columns);
        if (g->r)
            ask(g->r[i] + g->c_at, (int64_t)g->rows * p->r_sw, g->columns);
    }
    if (!w->taps.is_single || w->call->kernel != FX_CONV_DIRECT || g->k < ASK_PRODUCTS_MIN)
        return;
    const int64_t lines = fx_div_up(g->k, FX_LINE_FLOATS);
    const int64_t line = fx_cut_at(lines, last - first, panel - first) * FX_LINE_FLOATS;
    const int64_t end = fx_cut_at(lines, last - first, panel + g->panels - first) * FX_LINE_FLOATS;
    for (int i = 0; i < g->rows; i++)
        ask(g->a[i] + g->a_at, (int64_t)g->rows * p->sw * p->x_sw + line, end - line);
}

/* Floats from a weight to one that is prefetched while a unit's only tile is computed. */
#define WEIGHTS_AHEAD 512

/* A unit's first tile reads its panels from memory, the others from L2. So that memory is busy all the time, the calls
 * for all tiles prefetch the next unit's panels, a part each (measured, 1024 -> 4096, 1 thread, weights in no cache:
 * 1.7 ms for 2.3 with 24 rows, 2.9 for 3.8 with 50). A single tile prefetches what it reads next (1.1 for 1.5 with 8).
 * `panel`: of the unit's `count`, the call's first one. */
static void ask_weights(const walk *w, fx_gemm *g, int64_t panel, int64_t count) {
    g->ahead[0] = g->ahead[1] = 0;
    if (!w->next_panels)
        return;
    if (w->tiles == 1) {
        g->ahead[0] = WEIGHTS_AHEAD, g->ahead[1] = g->w_panel + WEIGHTS_AHEAD;
        return;
    }
    if (w->next_panels < 0)
        return;
    const int64_t panels = w->call->kernels->panels, calls = fx_div_up(count, panels);
    const int64_t call = w->tile * calls + panel / panels;
    const int64_t from = fx_cut_at(count, w->tiles * calls, call), to = fx_cut_at(count, w->tiles * calls, call + 1);
    if (from == to)
        return;
    g->ahead[0] = (w->next_panels + from - panel) * g->w_panel;
    g->ahead[1] = to - from > 1 ? g->ahead[0] + g->w_panel : g->ahead[0];
}

/* All panels of [first, last), which lie at `weight`, for the tile whose pointers stand in the workspace. */
static void run_tile(const walk *w, fx_gemm *g, const float *weight, int32_t first, int32_t last) {
    const fx_conv_params *p = w->p;
    const fx_window *win = &w->call->window;
    const fx_kernels *k = w->call->kernels;
    const int is_paired = is_sums_of_pairs(k, p);
    for (int32_t panel = first; panel < last; panel += g->panels) {
        g->panels = last - panel < k->panels ? last - panel : k->panels;
        const int64_t a_at = fx_conv_panel_cin(p, panel), is_other = panel == first || a_at != g->a_at;
        g->a_at = a_at;
        if (is_paired && is_other)
            fx_pair_rows(k, g, &w->s.pairs);
        if (p->group > 1) /* panels that read other channels cannot share a tile */
            while (fx_conv_panel_cin(p, panel + g->panels - 1) != g->a_at)
                g->panels--;
        g->w = is_paired ? NULL : weight + (panel - first) * g->w_panel;
        g->c_at = (int64_t)panel * FX_NR;
        g->columns = (int32_t)fx_min64((int64_t)g->panels * FX_NR, win->c1 - g->c_at);
        if (w->asks == ASK_AHEAD)
            ask_ahead(w, g, first, panel, last);
        else if (w->asks == ASK_NOW)
            ask_now(g);
        ask_weights(w, g, panel - first, last - first);
        if (is_paired)
            fx_gemm_pairs(k, g, &w->s.pairs, panel - first);
        else if (p->sums == FX_DTYPE_I32)
            fx_gemm_sums(k, g, fx_exact_terms(p->wtype), &w->s.part);
        else
            k->gemm_f32(g);
    }
    if (!fx_finish_is_partial(p->act))
        return;
    const int64_t c0 = (int64_t)first * FX_NR, c1 = fx_min64((int64_t)last * FX_NR, win->c1);
    fx_activate_tile(k, (fx_activation){p->act, p->alpha, p->beta}, w->s.c, g->rows, c0, c1 - c0);
}

/* walk's next_panels, of the unit of tile groups number `group`: threads take units in turn. */
static int64_t panels_to_next(const walk *w, const fx_cut *cut, int64_t group, int threads) {
    const fx_conv_params *p = w->p;
    const int64_t next = group + threads;
    if (cut->parts > 1 || p->group > 1 || p->wtype != FX_WTYPE_F32 || p->sums != FX_DTYPE_F32)
        return 0;
    if (next >= cut->cuts)
        return -1;
    const int64_t groups = fx_cut_at(cut->groups, cut->cuts, next) - fx_cut_at(cut->groups, cut->cuts, group);
    return w->call->kernels->panels * groups;
}

/* Panels [first, first + count) of the window as the tiles read them. */
static const float *lay_panels(const walk *w, const fx_panels *panels, int64_t first, int64_t count) {
    const fx_kernels *k = w->call->kernels;
    const int64_t depth = panels->weights / FX_NR;
    if (!is_sums_of_pairs(k, w->p))
        return fx_panels_at(panels, first, count);
    for (int64_t i = 0; i < count; i++)
        fx_pair_panel(k, fx_panels_at(panels, first + i, 1) + fx_panel_head(panels->act), depth, &w->s.pairs, i);
    return NULL; /* they stand in the workspace */
}

fx_status fx_conv_gemm_run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_conv_params *p = &call->params->conv;
    const fx_kernels *k = call->kernels;
    const fx_window *win = &call->window;
    const fx_cut cut = cut_window(k, call->kernel, p, *win, threads);
    stretch s = stretch_of(k, call->kernel, p, *win);
    const int gathers = call->kernel == FX_CONV_IM2COL;
    walk w = {.call = call, .p = p, .s = workspace_at(call->workspace, k, call->kernel, p)};
    w.taps = (fx_tap_walk){.p = p, .kernel = call->kernel, .window = *win, .x = call->in[0], .y = call->out};
    w.taps.zeros = call->zeros, w.taps.r = p->has_residual ? call->in[1] : NULL;
    w.taps.gathered = w.s.gathered, w.taps.a = w.s.a, w.taps.c = w.s.c, w.taps.r_row = w.s.r;
    w.taps.is_run = p->x_sw == p->cin && p->dw == 1;
    w.taps.is_stepped = is_stepped(k, call->kernel, p);
    w.taps.is_single = p->kh == 1 && p->kw == 1 && p->pt == 0 && p->pl == 0 && (int64_t)(p->oh - 1) * p->sh < p->h &&
                       (int64_t)(p->ow - 1) * p->sw < p->w;
    fx_gemm g = {.a = w.s.a, .c = w.s.c, .r = w.taps.r ? w.s.r : NULL};
    g.a_step = w.taps.is_stepped ? (int64_t)p->sw * p->cin : 0;
    g.head = fx_panel_head(p->act);
    g.w_panel = g.head + (int64_t)p->kh * p->kw * p->cin_panel * FX_NR;
    g.taps = gathers ? p->kh : p->kh * p->kw;
    g.k = gathers ? p->kw * p->cin : p->cin_panel;
    g.block = gathers ? g.k : (int32_t)fx_min64(p->cin_block, g.k);
    g.finish = fx_finish_of(p->act, p->alpha, p->beta);
    w.asks = asking_of(p, &g);
    fx_panels panels = {.call = call, .room = w.s.panels, .act = p->act, .wtype = p->wtype};
    panels.weights = g.w_panel - g.head;
    for (uint32_t u = u0; u < u1; u++) {
        const int64_t part = u % cut.parts, group = u / cut.parts;
        const int64_t panel_end = fx_div_up(win->c1, FX_NR);
        const int32_t first = (int32_t)(win->c0 / FX_NR + k->panels * fx_cut_at(cut.groups, cut.cuts, group));
        const int32_t last =
            (int32_t)fx_min64(win->c0 / FX_NR + k->panels * fx_cut_at(cut.groups, cut.cuts, group + 1), panel_end);
        const int64_t end = fx_cut_at(cut.items, cut.parts, part + 1);
        int64_t t = fx_cut_at(cut.items, cut.parts, part);
        const float *weight = lay_panels(&w, &panels, first - win->c0 / FX_NR, last - first);
        w.next_panels = panels_to_next(&w, &cut, group, threads);
        w.tiles = end - t;
        fx_taps_start(&w.taps, seek(&s, t));
        for (w.tile = 0; t < end; t++, w.tile++) {
            g.rows = pass(&s);
            fx_taps_of_tile(&w.taps, g.rows);
            run_tile(&w, &g, weight, first, last);
        }
    }
    return FX_OK;
}
