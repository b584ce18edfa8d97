/* Micro kernels that compute with numbers of 16 bits. Part of the list of kernels.h; NULL in the tables of levels that
 * have no such instructions, and drivers compute with floats there. The scalar kernels are the definition, and others
 * make the same bits. */
#ifndef FLEXNN_HALF_KERNELS_H
#define FLEXNN_HALF_KERNELS_H

#include <stdint.h>

/* Most products that are added up as halves, one fused multiply-add each, rounded to nearest, ties to even, from 0 on.
 * Their sum is then added to a float. So errors do not grow with the depth of a product (docs/decisions/0078). */
#define FX_HALF_RUN 64

/* One tile of a product of halves whose rows may lie anywhere: for i < rows <= FX_HALF_ROWS, j < FX_NR
 *     c[i * c_row + j] = start[j] + sum over t < taps, q < k of a[t * rows + i][a_at + q] * w(t, q, j).
 * The panel is [block][tap][q of block][FX_NR]; the last block may be shorter. A tap's channels of a block are cut into
 * pieces of FX_HALF_RUN, the last of which may be shorter; a piece that would make a run longer than that begins the
 * next. Runs are added one after the other. Returns whether a result is not finite. c shares nothing with start. */
#define FX_HALF_ROWS 7
typedef struct fx_gemm_f16 {
    const uint16_t *const *a; /* [taps][rows] */
    const uint16_t *w;
    const float *start;
    float *c;
    int64_t a_at, c_row;
    int32_t rows, taps, k, block;
} fx_gemm_f16;

/* Neighbouring output pixels of a depthwise convolution, all taps in one run:
 *     y[i * y_step + j] = start[j] + sum over t < taps of x[t * pixels + i][at + j] * w[t * FX_NR + j]
 * for i < pixels <= FX_HALF_ROWS, j < channels <= FX_NR. Returns whether a result is not finite. */
typedef struct fx_dwconv_f16 {
    const uint16_t *const *x; /* [taps][pixels] */
    const uint16_t *w;
    const float *start;
    float *y;
    int64_t at, y_step;
    int32_t pixels, taps, channels;
} fx_dwconv_f16;

#define FX_KERNELS_HALVES(X)                                                                                           \
    X(gemm_f16, int, (const fx_gemm_f16 *g))                                                                           \
    X(dwconv_f16, int, (const fx_dwconv_f16 *d))

#endif
