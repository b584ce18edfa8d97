/* Moving rows of elements. */
#include "move.h"

#include <string.h>

/* Below this many bytes a call of memcpy costs more than a loop. */
#define MEMCPY_BYTES 32

#define WALK(type)                                                                                                     \
    static void walk_##type(const type *x, type *y, int64_t rows, int64_t columns, int64_t x_row, int64_t x_step,      \
                            int64_t y_row, int64_t y_step) {                                                           \
        for (int64_t r = 0; r < rows; r++)                                                                             \
            for (int64_t c = 0; c < columns; c++)                                                                      \
                y[r * y_row + c * y_step] = x[r * x_row + c * x_step];                                                 \
    }
WALK(uint8_t)
WALK(uint16_t)
WALK(uint32_t)
WALK(uint64_t)

void fx_move(int64_t elem_bytes, const void *x, void *y, int64_t rows, int64_t columns, int64_t x_row, int64_t x_step,
             int64_t y_row, int64_t y_step) {
    if (x_step == 1 && y_step == 1 && columns * elem_bytes >= MEMCPY_BYTES) {
        for (int64_t r = 0; r < rows; r++)
            memcpy((char *)y + r * y_row * elem_bytes, (const char *)x + r * x_row * elem_bytes,
                   (size_t)(columns * elem_bytes));
        return;
    }
    switch (elem_bytes) {
    case 1:
        walk_uint8_t(x, y, rows, columns, x_row, x_step, y_row, y_step);
        break;
    case 2:
        walk_uint16_t(x, y, rows, columns, x_row, x_step, y_row, y_step);
        break;
    case 4:
        walk_uint32_t(x, y, rows, columns, x_row, x_step, y_row, y_step);
        break;
    default:
        walk_uint64_t(x, y, rows, columns, x_row, x_step, y_row, y_step);
    }
}
