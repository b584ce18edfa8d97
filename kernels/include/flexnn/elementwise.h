/* Micro kernels of elementwise operators and transposes: part of the list of kernels.h. */
#ifndef FLEXNN_ELEMENTWISE_H
#define FLEXNN_ELEMENTWISE_H

#include <stdint.h>

/* y[r * y_row + i * y_step] = f(x[r * x_row + i * x_step]) for r < rows, i < n; kind: fx_unary_kind. y may be x, with
 * the same strides. Steps of 1 (and 0 of x) are the fast ones. */
typedef struct fx_unary {
    const float *x;
    float *y;
    int64_t rows, n, x_row, x_step, y_row, y_step;
    int32_t kind;
    float alpha, beta;
} fx_unary;

/* y = clamp(a op b, lo, hi), indexed in the same way (a NaN stays a NaN); kind: fx_binary_kind. y may be a or b, with
 * the same strides. */
typedef struct fx_binary {
    const float *a, *b;
    float *y;
    int64_t rows, n, a_row, a_step, b_row, b_step, y_row, y_step;
    int32_t kind;
    float lo, hi;
} fx_binary;

/* y[j * y_row + i] = x[i * x_row + j] for i < rows, j < columns: 4-byte elements of any type. next: distance in
 * elements from x, and from y, to the block that will be transposed next, which is prefetched meanwhile; 0: none, or
 * unknown. */
typedef struct fx_transpose {
    const uint32_t *x;
    uint32_t *y;
    int64_t rows, columns, x_row, y_row, x_next, y_next;
} fx_transpose;

/* y[i] = round(clamp(x[i] / scale, lo, hi)) + zero, half to even, for i < n; y are bytes, signed or not; lo for NaN.
 * lo and hi are whole numbers of at most 510 in size. */
typedef struct fx_to_bytes {
    const float *x;
    uint8_t *y;
    int64_t n;
    float scale, lo, hi;
    int32_t zero;
} fx_to_bytes;

/* y[i] = (x[i] - zero) * scale for i < n; x are bytes. */
typedef struct fx_of_bytes {
    const void *x;
    float *y;
    int64_t n;
    float scale;
    int32_t zero, is_signed;
} fx_of_bytes;

/* rows of n numbers, x_row and y_row elements apart: from halves (IEEE binary16) to floats, or back. narrow_f16 rounds
 * to the nearest, halves of a step to even, and returns 1 if a finite number became infinite. */
typedef struct fx_widening {
    const uint16_t *x;
    float *y;
    int64_t rows, n, x_row, y_row;
} fx_widening;
typedef struct fx_narrowing {
    const float *x;
    uint16_t *y;
    int64_t rows, n, x_row, y_row;
} fx_narrowing;
#define FX_F16_BEYOND 65520.0f /* the least number that rounds to infinity */

#define FX_KERNELS_ELEMENTWISE(X)                                                                                      \
    X(unary_f32, void, (const fx_unary *u))                                                                            \
    X(binary_f32, void, (const fx_binary *b))                                                                          \
    X(transpose_u32, void, (const fx_transpose *t))                                                                    \
    X(to_bytes_f32, void, (const fx_to_bytes *q))                                                                      \
    X(of_bytes_f32, void, (const fx_of_bytes *q))                                                                      \
    X(widen_f16, void, (const fx_widening *w))                                                                         \
    X(narrow_f16, int, (const fx_narrowing *n))

#endif
