/* Where the taps of output pixels lie: what conv_gemm.c walks, a tile of pixels at a time. */
#ifndef FLEXNN_OPS_CONV_TAPS_H
#define FLEXNN_OPS_CONV_TAPS_H

#include "conv_common.h"

/* Columns of the output that the same taps of a row see. */
typedef struct fx_seen_columns {
    int64_t begin, end;
} fx_seen_columns;

/* The caller sets everything down to is_single. Numbers are floats and pixels. */
typedef struct fx_tap_walk {
    const fx_conv_params *p;
    uint32_t kernel; /* DIRECT or IM2COL */
    fx_window window;
    const float *x, *r, *zeros;
    float *y;
    const float **a;         /* [taps][rows] */
    float **c;               /* [rows] */
    const float **r_row;     /* [rows] */
    float *gathered;         /* IM2COL: [rows][kh][kw * cin], or [kh] strips */
    int is_run;              /* IM2COL: taps of a row inside the map are one run of the input */
    int is_stepped;          /* a tile is a strip of an output row */
    int is_single;           /* one tap, which is inside the map for every pixel */
    int64_t batch, oy, ox;   /* the next output pixel */
    int64_t row;             /* oy and batch as one number, the window's */
    fx_seen_columns columns; /* that the pixel is in */
    int leaves;              /* a pixel of the tile has taps outside the map */
} fx_tap_walk;

/* Input pixels that a row of taps sees for a strip of `rows` output pixels. */
static inline int64_t fx_strip_pixels(const fx_conv_params *p, int64_t rows) {
    return (rows - 1) * p->sw + p->kw;
}

/* Moves to pixel number `pixel` of the window. */
void fx_taps_start(fx_tap_walk *w, int64_t pixel);

/* Points a, c and r_row to the next `rows` pixels. Taps that are outside the map for all of them have no pointer. */
void fx_taps_of_tile(fx_tap_walk *w, int rows);

#endif
