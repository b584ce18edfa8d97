/* Helpers that drivers share: arithmetic, workspaces, stored panels, activations, extents, cuts of a window. */
#ifndef FLEXNN_OPS_CONV_COMMON_H
#define FLEXNN_OPS_CONV_COMMON_H

#include "flexnn/kernels.h"
#include "impl.h"

/* Weights that a thread keeps in its cache while it walks pixels: half of the smallest L2 we expect (Pi 5: 512 KiB). */
#define FX_CACHE_BYTES (256 << 10)

/* Work is cut into about this many units for each thread, so that a thread that is delayed costs little. */
#define FX_UNITS_PER_THREAD 8

static inline int64_t fx_min64(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static inline int64_t fx_max64(int64_t a, int64_t b) {
    return a > b ? a : b;
}
static inline int64_t fx_div_up(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}
static inline int64_t fx_round_up(int64_t a, int64_t b) {
    return fx_div_up(a, b) * b;
}

/* Lays out in a workspace the array that pointer `member` is for: `at` bytes from base; `at` moves past it. */
#define FX_TAKE(member, base, at, count)                                                                               \
    (member) = (void *)((uintptr_t)(base) + (uintptr_t)(at));                                                          \
    (at) += fx_round_up((int64_t)sizeof *(member) * (count), 64)

/* A window's panels as floats: where they lie, or expanded into `room` when they are stored in another form. */
typedef struct fx_panels {
    const fx_call *call;
    float *room;
    int64_t weights; /* of a panel */
    int32_t act, wtype;
} fx_panels;
const float *fx_panels_at(const fx_panels *p, int64_t first, int64_t count);

/* Floats of room for `count` panels. */
static inline int64_t fx_panels_room(int32_t act, int32_t wtype, int64_t weights, int64_t count) {
    return wtype == FX_WTYPE_F32 ? 0 : count * (fx_panel_head(act) + weights);
}

/* The part of an activation that the micro kernels do as they store. */
fx_finish fx_finish_of(int32_t act, float alpha, float beta);

/* Whether fx_activate_rows is still needed after fx_finish_of. */
static inline int fx_finish_is_partial(int32_t act) {
    return act > FX_ACT_PRELU;
}

/* An activation, one of the first unary kinds, with its parameters. */
typedef struct fx_activation {
    int32_t act;
    float alpha, beta;
} fx_activation;

/* Applies an activation in place to rows of n floats, row_step apart. */
static inline void fx_activate_rows(const fx_kernels *k, fx_activation a, float *y, int64_t rows, int64_t row_step,
                                    int64_t n) {
    if (row_step == n) /* one run: a short row costs more than its floats */
        n *= rows, rows = 1;
    const fx_unary u = {.x = y,
                        .y = y,
                        .rows = rows,
                        .n = n,
                        .x_row = row_step,
                        .x_step = 1,
                        .y_row = row_step,
                        .y_step = 1,
                        .kind = a.act,
                        .alpha = a.alpha,
                        .beta = a.beta};
    k->unary_f32(&u);
}

/* The same of a tile's rows: floats [at, at + n) of each. */
static inline void fx_activate_tile(const fx_kernels *k, fx_activation a, float *const *y, int64_t rows, int64_t at,
                                    int64_t n) {
    for (int64_t i = 0, end; i < rows; i = end) {
        for (end = i + 1; end < rows && y[end] == y[end - 1] + n; end++)
            ;
        fx_activate_rows(k, a, y[i] + at, end - i, n, n);
    }
}

/* (d - 1) * s added up over dims without overflow: 0 if a size is below 1, a stride below 0, or the sum too big. */
int fx_span_fits(fx_operand o);

/* 1 if, moreover, no two elements share an address: each stride is larger than the extent of the dimensions inside
 * it. */
int fx_span_is_injective(fx_operand o);

/* 1 if the last tap of the last output still has a 32-bit coordinate. */
static inline int fx_taps_fit(int32_t outputs, int32_t stride, int32_t taps, int32_t dilation) {
    return (int64_t)(outputs - 1) * stride + (int64_t)(taps - 1) * dilation <= INT32_MAX;
}

/* How a window of `items` (pixel tiles) x `groups` (of panels) is cut: unit u = group * parts + part. */
typedef struct fx_cut {
    int64_t items, groups; /* number of them */
    int64_t parts, cuts;   /* pieces of the items, pieces of the groups */
} fx_cut;

/* cuts: at least min_cuts, for the cache; more only if there are too few items for the threads. */
fx_cut fx_cut_window(int64_t items, int64_t groups, int64_t min_cuts, int threads);
static inline int64_t fx_cut_at(int64_t total, int64_t pieces, int64_t i) {
    return total * i / pieces;
}

/* 1 if the panel width, the activation with its numbers and the form of the weights are in range. */
int fx_panels_fit(int32_t nr, int32_t act, float alpha, float beta, int32_t wtype);

/* The maps of a convolution. */
typedef struct fx_maps {
    fx_operand x, residual, y;
    int32_t has_residual;
} fx_maps;

/* The maps of p, an fx_conv_params or fx_dwconv_params, from `in` channels to `out`. */
#define FX_MAPS_OF(p, in, out)                                                                                         \
    (fx_maps) {                                                                                                        \
        {{(p)->n, (p)->h, (p)->w, in}, {(p)->x_sn, (p)->x_sh, (p)->x_sw, 1}},                                          \
            {{(p)->n, (p)->oh, (p)->ow, out}, {(p)->r_sn, (p)->r_sh, (p)->r_sw, 1}},                                   \
            {{(p)->n, (p)->oh, (p)->ow, out}, {(p)->y_sn, (p)->y_sh, (p)->y_sw, 1}}, (p)->has_residual,                \
    }

/* 1 if their sizes and strides are in range and no two elements of y share an address. */
int fx_maps_fit(const fx_maps *m);

/* fx_op_extent of operand 0, 1 (the residual) or FX_OUTPUT. */
void fx_maps_extent(const fx_maps *m, int operand, int64_t *lo, int64_t *hi);

#endif
