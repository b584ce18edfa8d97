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

/* Three planes of bytes, `plane` bytes apart, become pixels: a picture's colours, before its first convolution. Four
 * pixels at once, in words: their first bytes are the lowest ones. */
static void interleave_three(const uint8_t *x, uint8_t *y, int64_t pixels, int64_t plane) {
    int64_t i = 0;
    for (; i + 4 <= pixels; i += 4) {
        uint32_t a, b, c;
        memcpy(&a, x + i, 4), memcpy(&b, x + plane + i, 4), memcpy(&c, x + 2 * plane + i, 4);
        const uint32_t first = (a & 255) | (b & 255) << 8 | (c & 255) << 16 | (a >> 8 & 255) << 24;
        const uint32_t second = (b >> 8 & 255) | (c & 0xff00) | (a & 0xff0000) | (b & 0xff0000) << 8;
        const uint32_t third = (c >> 16 & 255) | (a >> 16 & 0xff00) | (b >> 24) << 16 | (c & 0xff000000);
        memcpy(y + 3 * i, &first, 4), memcpy(y + 3 * i + 4, &second, 4), memcpy(y + 3 * i + 8, &third, 4);
    }
    for (; i < pixels; i++)
        for (int64_t c = 0; c < 3; c++)
            y[3 * i + c] = x[c * plane + i];
}

void fx_move(int64_t elem_bytes, const void *x, void *y, const fx_lines *l) {
    if (elem_bytes == 1 && l->columns == 3 && l->x_row == 1 && l->y_row == 3 && l->y_step == 1) {
        interleave_three(x, y, l->rows, l->x_step);
        return;
    }
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
