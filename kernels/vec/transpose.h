/* transpose_u32 for every vector width: vec/transpose.c and neon/transpose.c include it.
 *
 * Three channels, the colours of a picture, are woven and unwoven 4 pixels at a time. Else blocks of 4 x 4 in
 * registers: strips of 16 columns, so that every line of x that is read is used up before the next row's, and what is
 * written of a row of y is a line after four blocks. */
#include "simd.h"

typedef uint32_t quad __attribute__((vector_size(16)));
typedef uint32_t quad_in_memory __attribute__((vector_size(16), aligned(4), may_alias));
typedef uint64_t pair __attribute__((vector_size(16)));

#define STRIP 16

/* Elements of a, then b, by number; gcc has clang's spelling from version 12 on only. */
#ifdef __clang__
#define PICK4(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#define PICK2(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define PICK4(a, b, ...) __builtin_shuffle(a, b, (quad){__VA_ARGS__})
#define PICK2(a, b, ...) __builtin_shuffle(a, b, (pair){__VA_ARGS__})
#endif

FX_INLINE quad load(const uint32_t *p) {
    return *(const quad_in_memory *)p;
}
FX_INLINE void store(uint32_t *p, quad v) {
    *(quad_in_memory *)p = v;
}

FX_INLINE void block(const uint32_t *x, int64_t x_row, uint32_t *y, int64_t y_row) {
    const quad a = load(x), b = load(x + x_row), c = load(x + 2 * x_row), d = load(x + 3 * x_row);
    const pair ab0 = (pair)PICK4(a, b, 0, 4, 1, 5), ab1 = (pair)PICK4(a, b, 2, 6, 3, 7);
    const pair cd0 = (pair)PICK4(c, d, 0, 4, 1, 5), cd1 = (pair)PICK4(c, d, 2, 6, 3, 7);
    store(y, (quad)PICK2(ab0, cd0, 0, 2));
    store(y + y_row, (quad)PICK2(ab0, cd0, 1, 3));
    store(y + 2 * y_row, (quad)PICK2(ab1, cd1, 0, 2));
    store(y + 3 * y_row, (quad)PICK2(ab1, cd1, 1, 3));
}

/* Three rows of x, n numbers each, to n neighbouring triples; returns how many are done. */
static int64_t weave(const uint32_t *x, int64_t x_row, uint32_t *y, int64_t n) {
    int64_t j = 0;
    for (; j + 4 <= n; j += 4, y += 12) {
        const quad a = load(x + j), b = load(x + x_row + j), c = load(x + 2 * x_row + j);
        const quad first = PICK4(a, b, 0, 4, 1, 5), middle = PICK4(b, c, 1, 5, 2, 6);
        store(y, PICK4(first, c, 0, 1, 4, 2));
        store(y + 4, PICK4(middle, a, 0, 1, 6, 2));
        store(y + 8, PICK4(PICK4(a, b, 3, 7, 3, 7), c, 6, 0, 1, 7));
    }
    return j;
}

/* n neighbouring triples to three rows of y. */
static int64_t unweave(const uint32_t *x, uint32_t *y, int64_t y_row, int64_t n) {
    int64_t i = 0;
    for (; i + 4 <= n; i += 4, x += 12) {
        const quad p = load(x), q = load(x + 4), r = load(x + 8);
        store(y + i, PICK4(PICK4(p, q, 0, 3, 6, 6), r, 0, 1, 2, 5));
        store(y + y_row + i, PICK4(PICK4(p, q, 1, 4, 7, 7), r, 0, 1, 2, 6));
        store(y + 2 * y_row + i, PICK4(PICK4(p, q, 2, 5, 5, 5), r, 0, 1, 4, 7));
    }
    return i;
}

/* Everything from row0 and column0 on. */
static void blocks(const fx_transpose *t, int64_t row0, int64_t column0) {
    const int64_t rows4 = row0 + (t->rows - row0) / 4 * 4;
    for (int64_t j0 = column0; j0 < t->columns; j0 += STRIP) {
        const int64_t j1 = j0 + STRIP < t->columns ? j0 + STRIP : t->columns, j4 = j0 + (j1 - j0) / 4 * 4;
        for (int64_t i = row0; i < rows4; i += 4) {
            const uint32_t *x = t->x + i * t->x_row;
            for (int64_t j = j0; j < j4; j += 4)
                block(x + j, t->x_row, t->y + j * t->y_row + i, t->y_row);
            for (int64_t j = j4; j < j1; j++)
                for (int k = 0; k < 4; k++)
                    t->y[j * t->y_row + i + k] = x[k * t->x_row + j];
        }
        for (int64_t j = j0; j < j1; j++)
            for (int64_t i = rows4; i < t->rows; i++)
                t->y[j * t->y_row + i] = t->x[i * t->x_row + j];
    }
}

void FX_SYMBOL(transpose_u32)(const fx_transpose *t) {
    if (t->rows == 3 && t->y_row == 3)
        blocks(t, 0, weave(t->x, t->x_row, t->y, t->columns));
    else if (t->columns == 3 && t->x_row == 3)
        blocks(t, unweave(t->x, t->y, t->y_row, t->rows), 0);
    else
        blocks(t, 0, 0);
}
