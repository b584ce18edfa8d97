/* Panels of weights: their width, how a kernel finishes the sums it makes of them, and the micro kernels that read them
 * in every stored form. Part of the list of kernels.h. */
#ifndef FLEXNN_PANEL_H
#define FLEXNN_PANEL_H

#include <stdint.h>

/* Panel width of packed weights, for every level (docs/decisions/0001): AVX-512 computes two panels at once, NEON a
 * panel as four vectors. */
#define FX_NR 16

/* How a sum v of row i, column j is finished: v + r[i][j] if there is a residual, then the activation. NONE, RELU, CLIP
 * clamp to [lo, hi] (infinite for NONE; a NaN stays); LEAKY_RELU has its slope in lo; PRELU takes the panel's slopes.
 * The driver applies the other activations to what the kernel stored. */
typedef struct fx_finish {
    int32_t act; /* fx_act */
    float lo, hi;
} fx_finish;

/* Product of a few rows, at the speed of memory: as fx_gemm, but for any number of panels, whose weights have the form
 * wtype (fx_wtype). `head` floats precede them, or none: bias, slopes of PRELU and what the form needs (weight_form.h),
 * with the scales from float `scales` on, and the minima from float `minimum` on. For the same all_rows the result does
 * not depend on how rows are cut into calls. */
#define FX_FEW_ROWS 7 /* most rows */
typedef struct fx_gemv {
    const float *const *a; /* [taps][rows] */
    const float *w;        /* first panel */
    int64_t w_panel;       /* from one panel to the next, in floats */
    float *const *c;       /* [rows] */
    const float *const *r; /* [rows], or NULL */
    int64_t c_at;          /* first column written */
    int64_t head;          /* floats before a panel's weights */
    int32_t rows, columns, taps, k, block, scales, minimum, wtype;
    int32_t all_rows; /* of the whole product, at least `rows` */
    fx_finish finish;
} fx_gemv;

/* Weights as floats: to[i] is weight i of a panel, for i < n, a multiple of FX_NR. */
typedef struct fx_weights {
    const void *from;
    float *to;
    const void *scale, *minimum; /* [block][FX_NR], as the form has them */
    int64_t n;
    int32_t wtype;
} fx_weights;

#endif
