/* Moving rows of elements. */
#include "move.h"

#include <string.h>

/* Below this many bytes a call of memcpy costs more than a loop. */
#define MEMCPY_BYTES 32

#define WALK(type)                                                                                                     \
    static void walk_##type(const type *x, type *y, fx_lines l) {                                                      \
        for (int64_t r = 0; r < l.rows; r++) {                                                                         \
            const type *from = x + r * l.x_row;                                                                        \
            type *to = y + r * l.y_row;                                                                                \
            if (l.x_step == 0 && l.y_step == 1) {                                                                      \
                const type v = *from;                                                                                  \
                for (int64_t c = 0; c < l.columns; c++)                                                                \
                    to[c] = v;                                                                                         \
                continue;                                                                                              \
            }                                                                                                          \
            for (int64_t c = 0; c < l.columns; c++)                                                                    \
                to[c * l.y_step] = from[c * l.x_step];                                                                 \
        }                                                                                                              \
    }
WALK(uint8_t)
WALK(uint16_t)
WALK(uint32_t)
WALK(uint64_t)

void fx_move(int64_t elem_bytes, const void *x, void *y, const fx_lines *l) {
    if (l->x_step == 1 && l->y_step == 1 && l->columns * elem_bytes >= MEMCPY_BYTES) {
        for (int64_t r = 0; r < l->rows; r++)
            memcpy((char *)y + r * l->y_row * elem_bytes, (const char *)x + r * l->x_row * elem_bytes,
                   (size_t)(l->columns * elem_bytes));
        return;
    }
    switch (elem_bytes) {
    case 1:
        walk_uint8_t(x, y, *l);
        break;
    case 2:
        walk_uint16_t(x, y, *l);
        break;
    case 4:
        walk_uint32_t(x, y, *l);
        break;
    default:
        walk_uint64_t(x, y, *l);
    }
}
