/* Moving rows of elements of 1, 2, 4 or 8 bytes (copy, pad, gather). */
#ifndef FLEXNN_OPS_MOVE_H
#define FLEXNN_OPS_MOVE_H

#include <stdint.h>

static inline int fx_is_element(int32_t bytes) {
    return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8;
}

/* Rows of elements, and their strides in elements; those of x may be anything. */
typedef struct fx_lines {
    int64_t rows, columns;
    int64_t x_row, x_step, y_row, y_step;
} fx_lines;

/* y[r * y_row + c * y_step] = x[r * x_row + c * x_step] for r < rows, c < columns. */
void fx_move(int64_t elem_bytes, const void *x, void *y, const fx_lines *l);

#endif
