/* Convolution of 8-bit activations as an implicit matrix product (conv_gemm.c): a row for each output pixel, pointers
 * to its runs made per tile. A run that is outside the map is one of zero points in the workspace; one that leaves it
 * in part, or whose channels up to a multiple of 4 pass the map's last byte, is copied there.
 *
 * Inside a unit tiles are the outer loop and panels the inner one, as there. */
#include "bytes.h"

#include <string.h>

static fx_window full_window(const fx_params *u) {
    const fx_conv_u8_params *p = &u->conv_u8;
    return (fx_window){0, p->n * p->oh, 0, p->cout};
}

/* Channels of a run, and the runs of a pixel. */
static int64_t run_channels(const fx_conv_u8_params *p) {
    return p->is_by_rows ? (int64_t)p->kw * p->cin : p->cin;
}

static int64_t run_bytes(const fx_conv_u8_params *p) {
    return fx_round_up(run_channels(p), 4);
}

static int64_t runs(const fx_conv_u8_params *p) {
    return p->is_by_rows ? p->kh : (int64_t)p->kh * p->kw;
}

static int64_t panel_bytes(const fx_params *u) {
    const fx_conv_u8_params *p = &u->conv_u8;
    return fx_byte_panel_head(p->to) + runs(p) * run_bytes(p) * FX_NR;
}

static int32_t panels(const fx_params *u) {
    return (int32_t)fx_div_up(u->conv_u8.cout, FX_NR);
}

static fx_maps maps_of(const fx_conv_u8_params *p) {
    return FX_MAPS_OF(p, p->cin, p->cout);
}

/* Whether there is a residual of floats, input 2. */
static int is_added(const fx_conv_u8_params *p) {
    return p->is_dynamic == 2 && p->has_residual == 1 && p->sum_lo <= p->sum_hi;
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_conv_u8_params *p = &u->conv_u8;
    const int32_t positive[] = {p->n,  p->h,  p->w,  p->cin, p->oh, p->ow, p->cout,
                                p->kh, p->kw, p->sh, p->sw,  p->dh, p->dw};
    for (size_t i = 0; i < sizeof positive / sizeof *positive; i++)
        if (positive[i] < 1)
            return FX_ERR_PARAMS;
    if (p->is_by_rows < 0 || p->is_by_rows > 1 || p->is_dynamic < 0 || p->is_dynamic > 2)
        return FX_ERR_PARAMS;
    const fx_byte_finish finish = FX_BYTE_FINISH_OF(p);
    if (kernel != 0 || p->nr != FX_NR || p->pt < 0 || p->pl < 0 || p->x_zero < 0 || p->x_zero > UINT8_MAX ||
        !fx_byte_finish_fits(&finish, is_added(p) ? 0 : p->has_residual) || (p->is_by_rows && p->dw != 1))
        return FX_ERR_PARAMS;
    if (p->is_dynamic && p->to != FX_DTYPE_F32)
        return FX_ERR_PARAMS;
    if ((int64_t)p->n * p->oh > INT32_MAX || (int64_t)p->n * p->oh * p->ow > FX_ELEMENTS_MAX)
        return FX_ERR_PARAMS;
    if (!fx_taps_fit(p->oh, p->sh, p->kh, p->dh) || !fx_taps_fit(p->ow, p->sw, p->kw, p->dw))
        return FX_ERR_PARAMS;
    const int64_t taps = (int64_t)p->kh * p->kw;
    if (taps > 1 << 20 || taps * p->cin > INT32_MAX - 4 * (1 << 20) ||
        (taps * (p->cin + 3) + 16) * FX_NR * fx_div_up(p->cout, FX_NR) > FX_ELEMENTS_MAX)
        return FX_ERR_PARAMS;
    const fx_maps maps = maps_of(p);
    return fx_maps_fit(&maps) ? FX_OK : FX_ERR_PARAMS;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_conv_u8_params *p = &u->conv_u8;
    const fx_maps maps = maps_of(p);
    if (operand == 2 && is_added(p))
        fx_box_extent(4, maps.residual.d, maps.residual.s, (int64_t)sizeof(float), lo, hi);
    else if (p->is_dynamic && (operand == 1 || operand == 2))
        *hi = fx_steps_bytes(operand, p->is_dynamic);
    else if (operand != 2)
        fx_byte_maps_extent(&maps, operand, p->to, lo, hi);
}

static int64_t output_bytes(const fx_params *u) {
    const fx_maps maps = maps_of(&u->conv_u8);
    return fx_byte_maps_bytes(&maps, u->conv_u8.to);
}

static int64_t element_bytes(const fx_params *u, int operand) {
    const fx_conv_u8_params *p = &u->conv_u8;
    const int is_float = (operand == 1 && p->is_dynamic) || (operand == 2 && p->is_dynamic == 2);
    return operand == FX_OUTPUT ? fx_byte_or_float(p->to) : is_float ? (int64_t)sizeof(float) : 1;
}

/* ---- workspace ---- */

/* Bytes of a row, rounded up to what levels read at once where they lay operands out. */
static int64_t laid_depth(const fx_conv_u8_params *p) {
    return fx_round_up(runs(p) * run_bytes(p), FX_LAID_BYTES);
}

typedef struct workspace {
    const uint8_t **a; /* [runs][rows] */
    void **c;          /* [rows] */
    const uint8_t **r; /* [rows] */
    uint8_t *zero;     /* a run of zero points */
    uint8_t *ends;     /* [4] runs: the last channels of the map, as many bytes before its end */
    uint8_t *gathered; /* by rows: [rows][runs] runs */
    char *rows;        /* laid out */
    char *panels;      /* of a unit, laid out */
    int32_t *bias;     /* of a unit's panels, where they are dynamic */
    float *scales;
    float *sums; /* of a tile, before a residual of floats is added */
    void **sum_rows;
    int64_t size;
} workspace;

/* Weights of a unit's panels at most, where a level reads rows as they lie. Then units cost little, and only the first
 * one's weights are not prefetched: fewer bytes pay where there are few tiles, which read their rows anew for each
 * unit (measured: 0.111 ms for 0.119 at 1x1 1024 -> 256 @14^2, but 0.258 for 0.247 at 3x3 128 -> 128 @28^2). */
#define UNIT_BYTES (160 << 10)
#define FEW_TILES 32
#define FEW_TILES_BYTES (64 << 10)

/* Tiles of panels that stay in a cache, of a unit with this many tiles of rows. */
static int64_t groups_at_most(const fx_kernels *k, const fx_conv_u8_params *p, int64_t tiles) {
    const int64_t few = tiles < FEW_TILES ? FEW_TILES_BYTES : UNIT_BYTES;
    const int64_t bytes = k->bytes->lay_rows_u8 ? FX_CACHE_BYTES : few;
    return fx_max64(1, bytes / (runs(p) * run_bytes(p) * FX_NR * k->bytes->panels));
}

static workspace workspace_at(void *base, const fx_kernels *k, const fx_conv_u8_params *p) {
    const fx_byte_kernels *b = k->bytes;
    const int64_t n = runs(p), run = run_bytes(p);
    const int64_t panels = fx_min64(groups_at_most(k, p, FEW_TILES) * b->panels, fx_div_up(p->cout, FX_NR));
    int64_t at = 0;
    workspace s;
    FX_TAKE(s.a, base, at, n * b->rows);
    FX_TAKE(s.c, base, at, b->rows);
    FX_TAKE(s.r, base, at, b->rows);
    FX_TAKE(s.zero, base, at, run);
    FX_TAKE(s.ends, base, at, 4 * run);
    FX_TAKE(s.gathered, base, at, p->is_by_rows ? b->rows * n * run : 0);
    FX_TAKE(s.rows, base, at, b->lay_rows_u8 ? laid_depth(p) * b->row_bytes * b->rows : 0);
    FX_TAKE(s.panels, base, at, b->lay_panel_u8 ? panels * laid_depth(p) * FX_NR : 0);
    FX_TAKE(s.bias, base, at, p->is_dynamic ? panels * FX_NR : 0);
    FX_TAKE(s.scales, base, at, p->is_dynamic ? panels * FX_NR : 0);
    FX_TAKE(s.sums, base, at, is_added(p) ? (int64_t)b->rows * b->panels * FX_NR : 0);
    FX_TAKE(s.sum_rows, base, at, is_added(p) ? b->rows : 0);
    s.size = at;
    return s;
}

static int64_t workspace_bytes(const fx_kernels *k, uint32_t kernel, const fx_params *u) {
    (void)kernel;
    return workspace_at(NULL, k, &u->conv_u8).size;
}

/* ---- a tile of output pixels ---- */

typedef struct walk {
    const fx_call *call;
    const fx_conv_u8_params *p;
    const uint8_t *x, *end; /* of the map */
    int64_t run;
    workspace s;
    fx_steps steps;        /* where they are dynamic */
    int is_run;            /* by rows: taps of a row inside the map are one run of the input */
    int is_single;         /* one tap, which is inside the map for every pixel, of whole fours */
    const uint8_t *last;   /* the last place where a whole run may begin */
    int64_t batch, oy, ox; /* the next output pixel */
} walk;

/* A run of `channels` bytes at `from`, which is inside the map: itself, or a copy where whole fours would pass its end.
 * Such runs end at most 3 bytes before the map does. */
static const uint8_t *whole_fours(const walk *w, const uint8_t *from, int64_t channels) {
    const int64_t left = w->end - from - channels;
    return left >= w->run - channels ? from : w->s.ends + left * w->run;
}

static void copy_ends(const walk *w) {
    const int64_t channels = run_channels(w->p);
    for (int64_t left = 0; left < 4; left++) {
        uint8_t *to = w->s.ends + left * w->run;
        memset(to, 0, (size_t)w->run);
        if (w->end - left - channels >= w->x)
            memcpy(to, w->end - left - channels, (size_t)channels);
    }
}

/* Of `count` pixels in a row, the first of which has a tap in column ix: those whose tap is inside. */
typedef struct span {
    int64_t lo, hi;
} span;

static span inside(const fx_conv_u8_params *p, int64_t ix, int64_t count) {
    const int64_t before = ix >= 0 ? 0 : p->sw == 1 ? -ix : fx_div_up(-ix, p->sw);
    const int64_t end = ix >= p->w ? 0 : p->sw == 1 ? p->w - ix : fx_div_up(p->w - ix, p->sw);
    const span s = {fx_min64(before, count), fx_min64(end, count)};
    return s.lo < s.hi ? s : (span){count, count};
}

/* Writes `count` addresses from `from` on, `step` bytes apart, to the pointers at `to`. They may be outside the map, so
 * they are numbers. */
static void point_steps(uintptr_t from, int64_t step, void *to, int64_t count) {
    uintptr_t *at = to;
    for (int64_t j = 0; j < count; j++, from += (uintptr_t)step)
        at[j] = from;
}

/* Pointers to `count` runs from `from` on. */
static void point_runs(const walk *w, const uint8_t **a, uintptr_t from, int64_t step, int64_t count) {
    uintptr_t *to = (uintptr_t *)(void *)a;
    point_steps(from, step, to, count);
    if (w->run > run_channels(w->p) && to[count - 1] > (uintptr_t)w->last)
        for (int64_t j = 0; j < count; j++)
            to[j] = (uintptr_t)whole_fours(w, a[j], run_channels(w->p));
}

static void fill(const uint8_t **a, int64_t from, int64_t to, const uint8_t *zero) {
    for (; from < to; from++)
        a[from] = zero;
}

/* Of `count` pixels in a row, the first of which has its first tap at (iy, ix): those of their taps that are outside
 * the map, from pixel i of the tile on. */
static void point_outside(const walk *w, int64_t iy, int64_t ix, int i, int64_t count, int rows) {
    const fx_conv_u8_params *p = w->p;
    const int64_t line = (int64_t)p->kw * rows;
    const uint8_t **a = w->s.a + i;
    if (ix < 0 || ix + (count - 1) * p->sw + (int64_t)(p->kw - 1) * p->dw >= p->w)
        for (int kx = 0; kx < p->kw; kx++) {
            const span in = inside(p, ix + (int64_t)kx * p->dw, count);
            for (int ky = 0; ky < p->kh; ky++) {
                fill(a + ky * line + (int64_t)kx * rows, 0, in.lo, w->s.zero);
                fill(a + ky * line + (int64_t)kx * rows, in.hi, count, w->s.zero);
            }
        }
    if (iy >= 0 && iy + (int64_t)(p->kh - 1) * p->dh < p->h)
        return;
    for (int ky = 0; ky < p->kh; ky++, iy += p->dh)
        for (int kx = 0; kx < p->kw && (iy < 0 || iy >= p->h); kx++)
            fill(a + ky * line + (int64_t)kx * rows, 0, count, w->s.zero);
}

/* Pointers to the taps of these pixels of the map at x. */
static void point_taps(const walk *w, const uint8_t *x, int64_t iy, int64_t ix, int i, int64_t count, int rows) {
    const fx_conv_u8_params *p = w->p;
    const uint8_t **a = w->s.a + i;
    uintptr_t row = (uintptr_t)x + (uintptr_t)(iy * p->x_sh + ix * p->x_sw);
    for (int ky = 0; ky < p->kh; ky++, row += (uintptr_t)((int64_t)p->dh * p->x_sh))
        for (int kx = 0; kx < p->kw; kx++, a += rows)
            point_runs(w, a, row + (uintptr_t)((int64_t)kx * p->dw * p->x_sw), (int64_t)p->sw * p->x_sw, count);
    point_outside(w, iy, ix, i, count, rows);
}

/* One row of taps, gathered. */
static const uint8_t *gather(const walk *w, const uint8_t *row, int64_t ix, uint8_t *to) {
    const fx_conv_u8_params *p = w->p;
    const int64_t first = fx_max64(0, -ix), last = fx_min64(p->kw, p->w - ix);
    memcpy(to, w->s.zero, (size_t)w->run);
    if (w->is_run && first < last)
        memcpy(to + first * p->cin, row + (ix + first) * p->cin, (size_t)((last - first) * p->cin));
    for (int64_t kx = first; kx < last && !w->is_run; kx++)
        memcpy(to + kx * p->cin, row + (ix + kx) * p->x_sw, (size_t)p->cin);
    return to;
}

/* The same by rows of taps, gathering those that are not a run of the input. */
static void point_rows(const walk *w, const uint8_t *x, int64_t iy, int64_t ix, int i, int64_t count, int rows) {
    const fx_conv_u8_params *p = w->p;
    const span first = inside(p, ix, count), last = inside(p, ix + p->kw - 1, count);
    span in = {first.lo, last.hi}; /* whose row of taps is a run of the input */
    if (!w->is_run || in.lo >= in.hi || last.lo >= last.hi)
        in = (span){count, count};
    const uint8_t **a = w->s.a + i;
    uint8_t *to = w->s.gathered + (int64_t)i * p->kh * w->run;
    for (int ky = 0; ky < p->kh; ky++, a += rows, to += w->run, iy += p->dh) {
        const uint8_t *row = x + iy * p->x_sh;
        if (iy < 0 || iy >= p->h) {
            fill(a, 0, count, w->s.zero);
            continue;
        }
        for (int64_t j = 0; j < count; j++)
            if (j < in.lo || j >= in.hi)
                a[j] = gather(w, row, ix + j * p->sw, to + j * p->kh * w->run);
        if (in.lo < in.hi)
            point_runs(w, a + in.lo, (uintptr_t)(row + (ix + in.lo * p->sw) * p->x_sw), (int64_t)p->sw * p->x_sw,
                       in.hi - in.lo);
    }
}

static void start_walk(walk *w, int64_t pixel) {
    const int64_t row = w->call->window.y0 + pixel / w->p->ow;
    w->batch = row / w->p->oh;
    w->oy = row % w->p->oh;
    w->ox = pixel % w->p->ow;
}

/* The next `rows` pixels. */
static void point_tile(walk *w, int rows) {
    const fx_conv_u8_params *p = w->p;
    const int64_t y_bytes = fx_byte_or_float(p->to);
    for (int i = 0; i < rows;) {
        const uint8_t *x = w->x + w->batch * p->x_sn, *r = w->call->in[is_added(p) ? 2 : 1];
        char *y = (char *)w->call->out + (w->batch * p->y_sn + w->oy * p->y_sh + w->ox * p->y_sw) * y_bytes;
        const int64_t iy = w->oy * p->sh - p->pt;
        const int64_t ix = w->ox * p->sw - p->pl;
        const int first = i, last = (int)fx_min64(rows, i + p->ow - w->ox);
        if (w->is_single)
            point_steps((uintptr_t)(x + iy * p->x_sh + ix * p->x_sw), (int64_t)p->sw * p->x_sw, w->s.a + first,
                        last - first);
        else
            p->is_by_rows ? point_rows(w, x, iy, ix, first, last - first, rows)
                          : point_taps(w, x, iy, ix, first, last - first, rows);
        point_steps((uintptr_t)y, p->y_sw * y_bytes, w->s.c + first, last - first);
        if (p->has_residual) {
            r += (w->batch * p->r_sn + w->oy * p->r_sh + w->ox * p->r_sw) * y_bytes;
            point_steps((uintptr_t)r, p->r_sw * y_bytes, w->s.r + first, last - first);
        }
        i = last;
        w->ox += last - first;
        if (w->ox == p->ow) {
            w->ox = 0;
            if (++w->oy == p->oh)
                w->oy = 0, w->batch++;
        }
    }
}

/* ---- the window ---- */

static fx_cut cut_window(const fx_kernels *k, const fx_conv_u8_params *p, fx_window w, int threads) {
    const int64_t tiles = fx_div_up((int64_t)(w.y1 - w.y0) * p->ow, k->bytes->rows);
    const int64_t groups = fx_div_up(fx_div_up(w.c1 - w.c0, FX_NR), k->bytes->panels);
    return fx_cut_window(tiles, groups, fx_div_up(groups, groups_at_most(k, p, tiles)), threads);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)kernel;
    if (w.y0 >= w.y1 || w.c0 >= w.c1)
        return 0;
    const fx_cut cut = cut_window(k, &u->conv_u8, w, threads);
    return (uint32_t)(cut.parts * cut.cuts);
}

/* A unit's panels: laid out, and with the biases and scales of a run that only it knows. */
static void lay_panels(const walk *w, const char *panel, int64_t bytes, int64_t count) {
    const fx_conv_u8_params *p = w->p;
    const fx_byte_kernels *b = w->call->kernels->bytes;
    const int64_t weights = runs(p) * w->run * FX_NR;
    for (int64_t i = 0; i < count; i++, panel += bytes) {
        if (b->lay_panel_u8) {
            const fx_lay_panel_u8 l = {.from = (const int8_t *)panel + fx_byte_panel_head(p->to),
                                       .to = (int8_t *)w->s.panels + i * laid_depth(p) * FX_NR,
                                       .fours = weights / FX_FOUR_BYTES};
            b->lay_panel_u8(&l);
        }
        if (p->is_dynamic)
            fx_steps_head(panel, w->steps, w->s.bias + i * FX_NR, w->s.scales + i * FX_NR);
    }
}

/* Whether no weight of these panels is -128. */
static int is_symmetric(const char *weights, int64_t panel, int64_t bytes, int64_t count) {
    int8_t least = 0;
    for (int64_t i = 0; i < count; i++, weights += panel)
        for (int64_t b = 0; b < bytes; b++)
            least = ((const int8_t *)weights)[b] < least ? ((const int8_t *)weights)[b] : least;
    return least > INT8_MIN;
}

/* A unit's first tile reads its panels from memory, the others from a cache. So that memory is busy all the time, the
 * calls of all tiles prefetch those of a later unit, `distance` bytes behind this one's, an equal part each. */
typedef struct asking {
    int64_t distance, tile, tiles; /* distance: 0 where there is no later unit */
} asking;

static void ask_weights(const walk *w, fx_dot_u8 *d, const asking *asks, const char *panels, int64_t panel,
                        int64_t count) {
    const int64_t fours = runs(w->p) * w->run / 4, calls = fx_div_up(count, w->call->kernels->bytes->panels);
    d->ahead_step = fx_div_up(2 * FX_FOUR_BYTES, asks->tiles);
    const int64_t call = asks->tile * calls + panel / w->call->kernels->bytes->panels;
    d->ahead = (const char *)((uintptr_t)panels + (uintptr_t)(asks->distance + call * fours * d->ahead_step));
}

/* Multiplies into the workspace, and from there adds to a residual, which y may lie over. */
static void multiply_and_add(const walk *w, fx_dot_u8 d) {
    const fx_conv_u8_params *p = w->p;
    void *const *to = d.c;
    const int64_t width = (int64_t)d.panels * FX_NR;
    point_steps((uintptr_t)w->s.sums - (uintptr_t)d.c_at * sizeof(float), width * (int64_t)sizeof(float), w->s.sum_rows,
                d.rows);
    d.c = w->s.sum_rows, d.r = NULL;
    w->call->kernels->bytes->dot_u8(&d);
    for (int32_t i = 0; i < d.rows; i++) {
        const float *v = w->s.sums + i * width, *r = (const float *)(const void *)w->s.r[i] + d.c_at;
        float *y = (float *)to[i] + d.c_at;
        for (int32_t j = 0; j < d.columns; j++) {
            const float sum = v[j] + r[j], low = sum < p->sum_lo ? p->sum_lo : sum;
            y[j] = low > p->sum_hi ? p->sum_hi : low;
        }
    }
}

/* All panels of [first, first + count), of which the first is at d->w, for the tile whose pointers stand in the
 * workspace. */
static void run_tile(const walk *w, fx_dot_u8 d, const asking *asks, int32_t first, int32_t count) {
    const fx_byte_kernels *b = w->call->kernels->bytes;
    if (b->lay_rows_u8) {
        const fx_lay_rows_u8 l = {.a = d.a, .to = w->s.rows, .rows = d.rows, .runs = d.runs, .run = d.run};
        b->lay_rows_u8(&l);
    }
    const char *panel = d.w;
    for (int32_t i = 0; i < count; i += d.panels) {
        d.panels = count - i < b->panels ? count - i : b->panels;
        d.w = panel + i * d.w_panel;
        d.laid_w = w->s.panels + i * d.laid_panel;
        d.c_at = (int64_t)(first + i) * FX_NR;
        d.columns = (int32_t)fx_min64((int64_t)d.panels * FX_NR, w->call->window.c1 - d.c_at);
        if (w->p->is_dynamic)
            d.bias = w->s.bias + i * FX_NR, d.scales = w->s.scales + i * FX_NR;
        if (asks->distance)
            ask_weights(w, &d, asks, panel, i, count);
        is_added(w->p) ? multiply_and_add(w, d) : b->dot_u8(&d);
    }
}

static void start_run(walk *w) {
    const fx_conv_u8_params *p = w->p;
    int64_t lo, hi = 0;
    extent(w->call->params, 0, &lo, &hi);
    w->end = w->x + hi;
    w->run = run_bytes(p);
    w->last = w->end - w->run;
    w->is_run = p->x_sw == p->cin;
    w->is_single = p->kh == 1 && p->kw == 1 && p->pt == 0 && p->pl == 0 && (int64_t)(p->oh - 1) * p->sh < p->h &&
                   (int64_t)(p->ow - 1) * p->sw < p->w && p->cin % 4 == 0;
    w->s = workspace_at(w->call->workspace, w->call->kernels, p);
    if (p->is_dynamic)
        w->steps = fx_steps_of(w->call->in, p->is_dynamic);
    memset(w->s.zero, p->is_dynamic ? w->steps.zero : p->x_zero, (size_t)w->run);
    copy_ends(w);
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_conv_u8_params *p = &call->params->conv_u8;
    const fx_byte_kernels *b = call->kernels->bytes;
    const fx_window *win = &call->window;
    const fx_cut cut = cut_window(call->kernels, p, *win, threads);
    const int64_t pixels = (int64_t)(win->y1 - win->y0) * p->ow, bytes = panel_bytes(call->params);
    walk w = {.call = call, .p = p, .x = call->in[0]};
    start_run(&w);
    fx_dot_u8 d = {.a = w.s.a, .laid = w.s.rows, .c = w.s.c, .r = p->has_residual ? w.s.r : NULL, .w_panel = bytes};
    d.runs = (int32_t)runs(p), d.run = (int32_t)w.run;
    d.laid_panel = laid_depth(p) * FX_NR;
    d.finish = FX_BYTE_FINISH_OF(p);
    for (uint32_t u = u0; u < u1; u++) {
        const int64_t part = u % cut.parts, group = u / cut.parts;
        const int64_t first = b->panels * fx_cut_at(cut.groups, cut.cuts, group);
        const int64_t last =
            fx_min64(b->panels * fx_cut_at(cut.groups, cut.cuts, group + 1), fx_div_up(win->c1 - win->c0, FX_NR));
        d.w = (const char *)call->weight + first * bytes;
        lay_panels(&w, d.w, bytes, last - first);
        d.is_symmetric = b->asks && is_symmetric(d.w + fx_byte_panel_head(p->to), bytes,
                                                 bytes - fx_byte_panel_head(p->to), last - first);
        int64_t t = fx_cut_at(cut.items, cut.parts, part);
        const int64_t end = fx_cut_at(cut.items, cut.parts, part + 1);
        const int64_t next = group + (cut.parts > 1 ? 1 : threads);
        asking asks = {.tiles = cut.items};
        if (next < cut.cuts)
            asks.distance = (b->panels * fx_cut_at(cut.groups, cut.cuts, next) - first) * bytes;
        start_walk(&w, fx_cut_at(pixels, cut.items, t));
        for (; t < end; t++) {
            asks.tile = t;
            d.rows = (int32_t)(fx_cut_at(pixels, cut.items, t + 1) - fx_cut_at(pixels, cut.items, t));
            point_tile(&w, d.rows);
            run_tile(&w, d, &asks, (int32_t)(win->c0 / FX_NR + first), (int32_t)(last - first));
        }
    }
    return FX_OK;
}

FX_DRIVER(conv_u8, .traits = FX_TRAIT_ROWS | FX_TRAIT_CHANNELS | FX_TRAIT_PANELS, .element_bytes = element_bytes,
          .panel_bytes = panel_bytes, .panels = panels, .workspace = workspace_bytes);
