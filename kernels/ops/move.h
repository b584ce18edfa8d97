/* Moving rows of elements of 1, 2, 4 or 8 bytes (copy, pad, gather). */
#ifndef FLEXNN_OPS_MOVE_H
#define FLEXNN_OPS_MOVE_H

#include <stdint.h>

static inline int fx_is_element(int32_t bytes) {
    return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8;
}

/* y[r * y_row + c * y_step] = x[r * x_row + c * x_step] for r < rows, c < columns; strides in elements, of x any. */
void fx_move(int64_t elem_bytes, const void *x, void *y, int64_t rows, int64_t columns, int64_t x_row, int64_t x_step,
             int64_t y_row, int64_t y_step);

#endif
