/* Micro kernels of transformers: part of the list of kernels.h. */
#ifndef FLEXNN_ROWS_H
#define FLEXNN_ROWS_H

#include <stdint.h>

/* One row: y[j] = (x[j] - mean) / sqrt(variance + epsilon) * scale[j] + bias[j], j < n; is_rms: mean is taken as 0.
 * y may be x. */
typedef struct fx_layer_norm {
    const float *x, *scale, *bias; /* bias: or NULL */
    float *y;
    int32_t n, is_rms;
    float epsilon;
} fx_layer_norm;

/* One block of a softmax over several blocks (Milakov and Gimelshein, "Online normalizer calculation for softmax",
 * 2018): with v[j] = scale x[j] + mask[j * mask_step], j < n, the maximum so far m grows to m' = max(m, v), x[j]
 * becomes exp(v[j] - m'), and the sum so far is scaled by `factor` = exp(m - m') before the new terms join it. While
 * all v are -inf, terms are 0 and the factor 1. A NaN makes everything NaN. Rows are x_step floats apart, each with a
 * maximum, a sum and a factor of its own; with a mask there is one. */
typedef struct fx_online_softmax {
    float *x;
    int64_t x_step;
    const float *mask;          /* or NULL */
    float *max, *sum;           /* [rows] so far; at first -inf and 0 */
    float *factor;              /* [rows], out */
    int32_t rows, n, mask_step; /* mask_step: 0 or 1 */
    float scale;
} fx_online_softmax;

/* Product of a few rows with a matrix that is not packed:
 *     c[i][j] = (is_more ? c[i][j] : 0) + sum over q < k of a[i][q] * b[q * b_k + j * b_n]
 * for i < rows, j < columns. b_k or b_n is 1. */
typedef struct fx_few_rows {
    const float *const *a; /* [rows] */
    const float *b;
    float *const *c; /* [rows] */
    int64_t b_k, b_n;
    int32_t rows, columns, k, is_more;
} fx_few_rows;

/* Rows of state in bytes: d numbers of 8 bits, then a float32 scale for each FX_STATE_BLOCK of them, the last of which
 * may be fewer. A row begins anywhere, so its scales need not be aligned. */
#define FX_STATE_BLOCK 32

static inline int64_t fx_state_row_bytes(int32_t d) {
    return d + ((int64_t)d + FX_STATE_BLOCK - 1) / FX_STATE_BLOCK * (int64_t)sizeof(float);
}

/* to[i * d + x] = the number x of row i, times the scale of its block, for i < rows. */
typedef struct fx_state_rows {
    const int8_t *from;
    float *to;
    int32_t rows, d;
} fx_state_rows;

#define FX_KERNELS_TRANSFORMERS(X)                                                                                     \
    X(layer_norm_f32, void, (const fx_layer_norm *l))                                                                  \
    X(online_softmax_f32, void, (const fx_online_softmax *s))                                                          \
    X(few_rows_f32, void, (const fx_few_rows *f))                                                                      \
    X(state_rows_f32, void, (const fx_state_rows *s))

#endif
