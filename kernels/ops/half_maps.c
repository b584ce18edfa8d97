/* Convolutions and pools over maps of 16 bits. A unit is a strip of rows of one image and a piece of the channels: the
 * rows that the strip sees are widened into the workspace, the operator's own driver computes the strip there, and what
 * it stored is narrowed into the map. It finds the strip's rows where it looks for the map's: only the strides and the
 * addresses of its operands are others. */
#include "conv.h"
#include "half_sums.h"
#include "resize.h"

#include <string.h>

/* Floats of a strip's input and of its output: with a kernel's workspace they stay in L2. */
#define STRIP_FLOATS (64 << 10)
#define STRIP_CHANNELS 64 /* that a strip's rows are chosen for */
#define STRIP_ROWS 4      /* a strip's rows are a multiple, as tiles of Winograd and pairs of rows end with it */
#define UNITS_PER_THREAD 4

/* A map operator as strips see it. */
typedef struct shape {
    uint32_t plain;
    const fx_op_impl *impl;
    int64_t h, w, in, oh, ow, out; /* in, out: channels */
    int64_t sh, pt, reach;         /* reach: rows from the first tap to the last */
    int32_t f16, has_residual, by_channel;
    int32_t sums;                   /* fx_dtype */
    const fx_resize_params *resize; /* of RESIZE; it has no taps */
} shape;

#define SHAPE_OF(op, p, channels_in, channels_out, residual, apart)                                                    \
    {.plain = FX_OP_##op,                                                                                              \
     .h = (p)->h,                                                                                                      \
     .w = (p)->w,                                                                                                      \
     .in = (channels_in),                                                                                              \
     .oh = (p)->oh,                                                                                                    \
     .ow = (p)->ow,                                                                                                    \
     .out = (channels_out),                                                                                            \
     .sh = (p)->sh,                                                                                                    \
     .pt = (p)->pt,                                                                                                    \
     .reach = ((int64_t)(p)->kh - 1) * (p)->dh,                                                                        \
     .f16 = (p)->f16,                                                                                                  \
     .has_residual = (residual),                                                                                       \
     .by_channel = (apart)}

static shape conv_shape(const fx_params *u) {
    const fx_conv_f16_params *p = &u->conv_f16;
    shape s = SHAPE_OF(CONV, p, p->cin, p->cout, p->has_residual, 0);
    s.impl = &fx_conv_impl, s.sums = p->sums;
    return s;
}

static shape dwconv_shape(const fx_params *u) {
    const fx_dwconv_f16_params *p = &u->dwconv_f16;
    shape s = SHAPE_OF(DWCONV, p, p->c, p->c, p->has_residual, 1);
    s.impl = &fx_dwconv_impl, s.sums = p->sums;
    return s;
}

static shape pool_shape(const fx_params *u) {
    const fx_pool_f16_params *p = &u->pool_f16;
    shape s = SHAPE_OF(POOL, p, p->c, p->c, 0, 1);
    s.impl = &fx_pool_impl;
    return s;
}

static shape resize_shape(const fx_params *u) {
    const fx_resize_f16_params *p = &u->resize_f16;
    return (shape){.plain = FX_OP_RESIZE,
                   .impl = &fx_resize_impl,
                   .h = p->h,
                   .w = p->w,
                   .in = p->c,
                   .oh = p->oh,
                   .ow = p->ow,
                   .out = p->c,
                   /* About what a row of the output is further down; a file may say that there is no row. */
                   .sh = fx_max64(fx_div_up(p->h, fx_max64(p->oh, 1)), 1),
                   .reach = 1,
                   .f16 = p->f16,
                   .by_channel = 1,
                   .resize = &u->resize};
}

static int has_strip_in(const shape *s) {
    return fx_is_half(s->f16, 0);
}

static int has_strip_out(const shape *s) {
    return fx_is_half(s->f16, FX_OUTPUT) || (s->has_residual && fx_is_half(s->f16, 1));
}

/* The rows that a strip of output rows sees: one at least, whatever it holds, where all are padding. Tiles of Winograd
 * may see those of outputs behind the strip's last one. */
typedef struct rows {
    int64_t y0, y1;
} rows;

static rows rows_seen(const shape *s, int64_t y0, int64_t y1) {
    if (s->resize)
        return (rows){fx_resize_row(s->resize, y0).low, fx_resize_row(s->resize, y1 - 1).high + 1};
    const int64_t last = fx_min64(y0 + fx_round_up(y1 - y0, STRIP_ROWS), s->oh) - 1;
    const int64_t first = fx_min64(fx_max64(y0 * s->sh - s->pt, 0), s->h - 1);
    return (rows){first, fx_max64(fx_min64(last * s->sh - s->pt + s->reach + 1, s->h), first + 1)};
}

/* Most rows that a strip of so many rows sees. */
static int64_t most_seen(const shape *s, int64_t rows_made) {
    if (!s->resize)
        return fx_min64(s->h, (fx_round_up(rows_made, STRIP_ROWS) - 1) * s->sh + s->reach + 1);
    int64_t most = 1;
    for (int64_t y = 0; y < s->oh; y += rows_made) {
        const rows r = rows_seen(s, y, fx_min64(y + rows_made, s->oh));
        most = fx_max64(most, r.y1 - r.y0);
    }
    return most;
}

/* How a node is cut, whatever the window: rows of a strip, and most panels of a piece. */
typedef struct strips {
    int64_t rows, panels;
    int64_t in_rows; /* most that a strip sees */
    int64_t in_floats, out_floats;
} strips;

static strips strips_of(const shape *s) {
    const int64_t whole_in = s->by_channel ? fx_min64(s->in, STRIP_CHANNELS) : s->in;
    const int64_t seen = fx_max64(STRIP_FLOATS / (s->w * whole_in) - s->reach, 0) / s->sh;
    const int64_t made = STRIP_FLOATS / (s->ow * fx_min64(s->out, STRIP_CHANNELS));
    const int64_t wanted = fx_max64(fx_min64(seen, made) / STRIP_ROWS, 1) * STRIP_ROWS;
    strips t = {.rows = fx_min64(wanted, s->oh)};
    t.in_rows = most_seen(s, t.rows);
    const int64_t row_floats = fx_max64(t.rows * s->ow, s->by_channel ? t.in_rows * s->w : 0) * FX_NR;
    t.panels = fx_min64(fx_max64(STRIP_FLOATS / row_floats / 2, 1) * 2, fx_div_up(s->out, FX_NR));
    const int64_t piece = fx_min64(t.panels * FX_NR, s->out);
    t.in_floats = has_strip_in(s) ? fx_round_up(t.in_rows * s->w * (s->by_channel ? piece : s->in), FX_NR) : 0;
    t.out_floats = has_strip_out(s) ? fx_round_up(t.rows * s->ow * piece, FX_NR) : 0;
    return t;
}

static int strips_fit(const shape *s) {
    return s->sums == FX_DTYPE_F32 && s->w * s->in <= INT32_MAX / 4 && s->ow * s->out <= INT32_MAX / 4 &&
           s->h <= INT32_MAX / 8 && s->oh <= INT32_MAX / 8;
}

static int64_t workspace_of(const shape *s, const fx_kernels *k, uint32_t kernel, const fx_params *u) {
    const strips t = strips_of(s);
    return (t.in_floats + t.out_floats) * (int64_t)sizeof(float) +
           (s->impl->workspace ? s->impl->workspace(k, kernel, u) : 0);
}

/* A window as strips and pieces: unit = strip * pieces + piece. */
typedef struct cut {
    int64_t of_image;      /* strips */
    int64_t first, strips; /* number of the window's first one; how many it meets */
    int64_t panels, pieces;
} cut;

static cut cut_of(const shape *s, fx_window w, int threads) {
    const strips t = strips_of(s);
    cut c = {.of_image = fx_div_up(s->oh, t.rows), .panels = fx_div_up(w.c1 - w.c0, FX_NR)};
    const int64_t last = w.y1 - 1;
    c.first = w.y0 / s->oh * c.of_image + w.y0 % s->oh / t.rows;
    c.strips = last / s->oh * c.of_image + last % s->oh / t.rows + 1 - c.first;
    const int64_t wanted = threads > 1 ? fx_div_up((int64_t)threads * UNITS_PER_THREAD, c.strips) : 1;
    c.pieces = fx_max64(fx_div_up(c.panels, t.panels), fx_min64(wanted, fx_div_up(c.panels, 2)));
    return c;
}

static uint32_t units_of(const shape *s, fx_window w, int threads) {
    if (w.y0 >= w.y1 || w.c0 >= w.c1)
        return 0;
    const cut c = cut_of(s, w, threads);
    return (uint32_t)(c.strips * c.pieces);
}

/* The operands' strides, in elements; NULL where there is none. */
typedef struct strides {
    int32_t *n, *h, *w;
} strides;

static strides strides_of(const shape *s, fx_params *u, int operand) {
#define STRIDES(p, o) ((strides){&(p)->o##_sn, &(p)->o##_sh, &(p)->o##_sw})
    if (s->plain == FX_OP_POOL)
        return operand ? STRIDES(&u->pool, y) : STRIDES(&u->pool, x);
    if (s->plain == FX_OP_RESIZE)
        return operand ? STRIDES(&u->resize, y) : STRIDES(&u->resize, x);
    if (s->plain == FX_OP_CONV)
        return operand == 0 ? STRIDES(&u->conv, x) : operand == 1 ? STRIDES(&u->conv, r) : STRIDES(&u->conv, y);
    return operand == 0 ? STRIDES(&u->dwconv, x) : operand == 1 ? STRIDES(&u->dwconv, r) : STRIDES(&u->dwconv, y);
#undef STRIDES
}

/* Rows and channels of one image's map, in it and in the workspace. */
typedef struct area {
    int64_t image, y0, y1, wide, c0, c1;
    float *room;
} area;

/* Has the operator look for an operand's rows in the workspace: returns where the map would begin, an address that is
 * only counted from. */
static void *moved(strides at, const area *a) {
    const int64_t channels = a->c1 - a->c0;
    *at.w = (int32_t)channels, *at.h = (int32_t)(a->wide * channels), *at.n = 0;
    return (void *)((uintptr_t)a->room - (uintptr_t)(a->y0 * *at.h + a->c0) * sizeof(float));
}

static uint16_t *row_at(const void *map, strides at, const area *a, int64_t y) {
    return (uint16_t *)(uintptr_t)map + a->image * *at.n + y * *at.h + a->c0;
}

static void widen(const fx_kernels *k, const void *map, strides at, const area *a) {
    const int64_t channels = a->c1 - a->c0;
    for (int64_t y = a->y0; y < a->y1; y++)
        k->widen_f16(&(fx_widening){row_at(map, at, a, y), a->room + (y - a->y0) * a->wide * channels, a->wide,
                                    channels, *at.w, channels});
}

static int narrow(const fx_kernels *k, void *map, strides at, const area *a) {
    const int64_t channels = a->c1 - a->c0;
    int is_beyond = 0;
    for (int64_t y = a->y0; y < a->y1; y++)
        is_beyond |= k->narrow_f16(&(fx_narrowing){a->room + (y - a->y0) * a->wide * channels, row_at(map, at, a, y),
                                                   a->wide, channels, channels, *at.w});
    return is_beyond;
}

/* What of a call lies in which place; `seen` is what the workspace holds of the input. */
typedef struct walk {
    const fx_call *call;
    shape s;
    strips t;
    area seen;
} walk;

static fx_status run_area(walk *k, const area *y) {
    const fx_call *call = k->call;
    const shape *s = &k->s;
    fx_params u = *call->params, as_is = *call->params;
    fx_call inner = *call;
    float *room = call->workspace;
    inner.op = s->plain, inner.params = &u;
    if (has_strip_in(s)) {
        area x = {.image = y->image, .wide = s->w, .c0 = 0, .c1 = s->in, .room = room};
        if (s->by_channel)
            x.c0 = y->c0, x.c1 = y->c1;
        const rows seen = rows_seen(s, y->y0, y->y1);
        x.y0 = seen.y0, x.y1 = seen.y1;
        if (memcmp(&x, &k->seen, sizeof x)) {
            widen(call->kernels, call->in[0], strides_of(s, &as_is, 0), &x);
            k->seen = x;
        }
        inner.in[0] = moved(strides_of(s, &u, 0), &x);
    }
    area out = *y;
    out.room = room + k->t.in_floats;
    if (s->has_residual && fx_is_half(s->f16, 1)) {
        widen(call->kernels, call->in[1], strides_of(s, &as_is, 1), &out);
        inner.in[1] = moved(strides_of(s, &u, 1), &out);
    }
    const int is_half = fx_is_half(s->f16, FX_OUTPUT);
    if (is_half)
        inner.out = moved(strides_of(s, &u, FX_OUTPUT), &out);
    inner.workspace = out.room + k->t.out_floats;
    inner.window = (fx_window){(int32_t)(y->image * s->oh + y->y0), (int32_t)(y->image * s->oh + y->y1), (int32_t)y->c0,
                               (int32_t)y->c1};
    const int64_t panel_bytes = s->impl->panel_bytes ? s->impl->panel_bytes(&u) : 0;
    inner.weight = (const float *)((const char *)call->weight + (y->c0 - call->window.c0) / FX_NR * panel_bytes);
    const uint32_t units = s->impl->units(call->kernels, call->kernel, &u, inner.window, 1);
    const fx_status status = s->impl->run(&inner, 1, 0, units);
    if (status != FX_OK || !is_half)
        return status;
    return narrow(call->kernels, call->out, strides_of(s, &as_is, FX_OUTPUT), &out) ? FX_ERR_RANGE : FX_OK;
}

static fx_status run_units(const fx_call *call, const shape *s, int threads, uint32_t u0, uint32_t u1) {
    const fx_window w = call->window;
    const cut c = cut_of(s, w, threads);
    walk k = {.call = call, .s = *s, .t = strips_of(s), .seen = {.image = -1}};
    fx_status status = FX_OK;
    for (uint32_t u = u0; u < u1 && status == FX_OK; u++) {
        const int64_t strip = c.first + u / c.pieces, piece = u % c.pieces;
        area y = {.image = strip / c.of_image, .y0 = strip % c.of_image * k.t.rows, .wide = s->ow};
        y.y1 = fx_min64(fx_min64(y.y0 + k.t.rows, s->oh), w.y1 - y.image * s->oh);
        y.y0 = fx_max64(y.y0, w.y0 - y.image * s->oh);
        y.c0 = w.c0 + fx_cut_at(c.panels, c.pieces, piece) * FX_NR;
        y.c1 = fx_min64(w.c0 + fx_cut_at(c.panels, c.pieces, piece + 1) * FX_NR, w.c1);
        status = run_area(&k, &y);
    }
    return status;
}

#define MAPS(name, plain)                                                                                              \
    static fx_status name##_fits(uint32_t kernel, const fx_params *u) {                                                \
        const fx_status status = name##_check(kernel, u);                                                              \
        const shape s = plain##_shape(u);                                                                              \
        return status == FX_OK && !strips_fit(&s) ? FX_ERR_PARAMS : status;                                            \
    }                                                                                                                  \
    static int64_t name##_workspace(const fx_kernels *k, uint32_t kernel, const fx_params *u) {                        \
        const shape s = plain##_shape(u);                                                                              \
        return workspace_of(&s, k, kernel, u);                                                                         \
    }                                                                                                                  \
    static uint32_t name##_units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) { \
        const shape s = plain##_shape(u);                                                                              \
        (void)k, (void)kernel;                                                                                         \
        return units_of(&s, w, threads);                                                                               \
    }                                                                                                                  \
    static fx_status name##_run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {                          \
        const shape s = plain##_shape(call->params);                                                                   \
        return run_units(call, &s, threads, u0, u1);                                                                   \
    }

#define MEMBERS(name)                                                                                                  \
    FX_HALF_MEMBERS(name), .check = name##_fits, .workspace = name##_workspace, .units = name##_units, .run = name##_run

#define PANELS(name, plain)                                                                                            \
    static int64_t name##_panel_bytes(const fx_params *u) {                                                            \
        return fx_##plain##_impl.panel_bytes(u);                                                                       \
    }                                                                                                                  \
    static int32_t name##_panels(const fx_params *u) {                                                                 \
        return fx_##plain##_impl.panels(u);                                                                            \
    }                                                                                                                  \
    static int64_t name##_zeros(const fx_params *u) {                                                                  \
        return fx_##plain##_impl.zeros(u);                                                                             \
    }

#define PANEL_TRAITS FX_TRAIT_ROWS | FX_TRAIT_CHANNELS | FX_TRAIT_PANELS | FX_TRAIT_FLUSHES
#define PANEL_MEMBERS(name) .panel_bytes = name##_panel_bytes, .panels = name##_panels, .zeros = name##_zeros

FX_HALF_DRIVER(conv_f16, conv, 2)
MAPS(conv_f16, conv)
PANELS(conv_f16, conv)

static fx_status conv_fits(uint32_t kernel, const fx_params *u) {
    const int is_half = kernel == FX_CONV_HALF;
    const fx_status status = conv_f16_fits(is_half ? FX_CONV_DIRECT : kernel, u);
    return status == FX_OK && is_half && !fx_conv_half_fits(FX_OP_CONV_F16, u) ? FX_ERR_PARAMS : status;
}

/* Kernel HALF is DIRECT where the level does not add up halves. */
static uint32_t conv_kernel(const fx_kernels *k, uint32_t kernel, const fx_params *u) {
    (void)u;
    return kernel == FX_CONV_HALF && !k->gemm_f16 ? FX_CONV_DIRECT : kernel;
}

/* The only kernel of depthwise convolution adds up halves where that is what the level is for. */
static uint32_t dwconv_kernel(const fx_kernels *k, uint32_t kernel, const fx_params *u) {
    return k->halves && fx_conv_half_fits(FX_OP_DWCONV_F16, u) ? FX_CONV_HALF : kernel;
}

/* Functions of an operator that may add up halves: those of MAPS where it does not. */
#define SUMS(name, OP, plain)                                                                                          \
    static int64_t plain##_workspace(const fx_kernels *k, uint32_t kernel, const fx_params *u) {                       \
        kernel = plain##_kernel(k, kernel, u);                                                                         \
        return kernel == FX_CONV_HALF ? fx_conv_half_workspace(FX_OP_##OP, u) : name##_workspace(k, kernel, u);        \
    }                                                                                                                  \
    static uint32_t plain##_units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w,               \
                                  int threads) {                                                                       \
        kernel = plain##_kernel(k, kernel, u);                                                                         \
        return kernel == FX_CONV_HALF ? fx_conv_half_units(FX_OP_##OP, u, w, threads)                                  \
                                      : name##_units(k, kernel, u, w, threads);                                        \
    }                                                                                                                  \
    static fx_status plain##_run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {                         \
        fx_call as = *call;                                                                                            \
        as.kernel = plain##_kernel(call->kernels, call->kernel, call->params);                                         \
        return as.kernel == FX_CONV_HALF ? fx_conv_half_run(&as, threads, u0, u1) : name##_run(&as, threads, u0, u1);  \
    }

#define SUMS_MEMBERS(plain) .workspace = plain##_workspace, .units = plain##_units, .run = plain##_run

SUMS(conv_f16, CONV_F16, conv)
const fx_op_impl fx_conv_f16_impl = {
    .traits = PANEL_TRAITS, FX_HALF_MEMBERS(conv_f16), PANEL_MEMBERS(conv_f16), .check = conv_fits, SUMS_MEMBERS(conv)};

FX_HALF_DRIVER(dwconv_f16, dwconv, 2)
MAPS(dwconv_f16, dwconv)
PANELS(dwconv_f16, dwconv)
SUMS(dwconv_f16, DWCONV_F16, dwconv)
const fx_op_impl fx_dwconv_f16_impl = {.traits = PANEL_TRAITS,
                                       FX_HALF_MEMBERS(dwconv_f16),
                                       PANEL_MEMBERS(dwconv_f16),
                                       .check = dwconv_f16_fits,
                                       SUMS_MEMBERS(dwconv)};

FX_HALF_DRIVER(pool_f16, pool, 1)
MAPS(pool_f16, pool)
const fx_op_impl fx_pool_f16_impl = {.traits = FX_TRAIT_ROWS | FX_TRAIT_CHANNELS, MEMBERS(pool_f16)};

FX_HALF_DRIVER(resize_f16, resize, 1)
MAPS(resize_f16, resize)
const fx_op_impl fx_resize_f16_impl = {.traits = FX_TRAIT_ROWS | FX_TRAIT_CHANNELS, MEMBERS(resize_f16)};
