/* transpose_u32 for all instruction sets.
 *
 * Three channels, the colours of a picture, are woven and unwoven 4 pixels at a time. Else blocks in registers, 4 x 4
 * on NEON: strips of 16 columns, so that every line of x that is read is used up before the next row's, and what is
 * written of a row of y is a line after four blocks. x86 has the registers for whole vectors: tiles of 16 x 16 whose
 * lines are each read once and written once, since rows that lie a power of two apart share few sets of a cache. */
#include "simd.h"

typedef uint32_t quad __attribute__((vector_size(16)));
typedef uint32_t quad_in_memory __attribute__((vector_size(16), aligned(4), may_alias));
typedef uint64_t pair __attribute__((vector_size(16)));

#define STRIP 16
#define HAS_TILES (FX_ISA_AVX512 || FX_ISA_AVX2)

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

#if FX_ISA_AVX512
/* TILE rows of TILE elements. */
FX_INLINE void tile(const uint32_t *x, int64_t x_row, uint32_t *y, int64_t y_row) {
    __m512i a[16], b[16];
    FX_UNROLL for (int i = 0; i < 16; i++) a[i] = _mm512_loadu_si512(x + i * x_row);
    FX_UNROLL for (int i = 0; i < 16; i += 2) {
        b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
        b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
    }
    FX_UNROLL for (int i = 0; i < 16; i += 4) {
        a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
        a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
        a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
        a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
    }
    /* a[4 r + c]: columns c, c + 4, c + 8, c + 12 of rows 4 r .. 4 r + 3 */
    FX_UNROLL for (int c = 0; c < 4; c++) FX_UNROLL for (int half = 0; half < 2; half++) {
        b[4 * c + half] =
            half ? _mm512_shuffle_i32x4(a[8 + c], a[12 + c], 0x88) : _mm512_shuffle_i32x4(a[c], a[4 + c], 0x88);
        b[4 * c + 2 + half] =
            half ? _mm512_shuffle_i32x4(a[8 + c], a[12 + c], 0xdd) : _mm512_shuffle_i32x4(a[c], a[4 + c], 0xdd);
    }
    FX_UNROLL for (int c = 0; c < 4; c++) {
        _mm512_storeu_si512(y + c * y_row, _mm512_shuffle_i32x4(b[4 * c], b[4 * c + 1], 0x88));
        _mm512_storeu_si512(y + (c + 4) * y_row, _mm512_shuffle_i32x4(b[4 * c + 2], b[4 * c + 3], 0x88));
        _mm512_storeu_si512(y + (c + 8) * y_row, _mm512_shuffle_i32x4(b[4 * c], b[4 * c + 1], 0xdd));
        _mm512_storeu_si512(y + (c + 12) * y_row, _mm512_shuffle_i32x4(b[4 * c + 2], b[4 * c + 3], 0xdd));
    }
}
#elif FX_ISA_AVX2
FX_INLINE void tile_8(const uint32_t *x, int64_t x_row, uint32_t *y, int64_t y_row) {
    __m256i a[8], b[8];
    /* Row i's and row i + 4's four columns side by side: what crosses the halves of a vector is done by loading. */
    FX_UNROLL for (int i = 0; i < 8; i++) a[i] =
        _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const void *)(x + i % 4 * x_row + i / 4 * 4))),
                                _mm_loadu_si128((const void *)(x + (i % 4 + 4) * x_row + i / 4 * 4)), 1);
    FX_UNROLL for (int i = 0; i < 8; i += 2) {
        b[i] = _mm256_unpacklo_epi32(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_epi32(a[i], a[i + 1]);
    }
    FX_UNROLL for (int i = 0; i < 8; i += 4) FX_UNROLL for (int k = 0; k < 2; k++) {
        _mm256_storeu_si256((void *)(y + (i + 2 * k) * y_row), _mm256_unpacklo_epi64(b[i + k], b[i + k + 2]));
        _mm256_storeu_si256((void *)(y + (i + 2 * k + 1) * y_row), _mm256_unpackhi_epi64(b[i + k], b[i + k + 2]));
    }
}
/* Columns by eight, so that both halves of a line of y are written one after the other. */
FX_INLINE void tile(const uint32_t *x, int64_t x_row, uint32_t *y, int64_t y_row) {
    for (int j = 0; j < 16; j += 8)
        for (int i = 0; i < 16; i += 8)
            tile_8(x + i * x_row + j, x_row, y + j * y_row + i, y_row);
}
#endif

#if HAS_TILES
/* Tiles of rows [i, end) of a strip at column j; returns the first row that is left. */
FX_INLINE int64_t tiles(const fx_transpose *t, int64_t i, int64_t end, int64_t j) {
    for (; i + 16 <= end; i += 16) {
        const uint32_t *x = t->x + i * t->x_row + j;
        uint32_t *y = t->y + j * t->y_row + i;
        if (t->x_next)
            for (int k = 0; k < 16; k++) {
                __builtin_prefetch(x + t->x_next + k * t->x_row, 0, 2);
                __builtin_prefetch(y + t->y_next + k * t->y_row, 0, 2);
            }
        tile(x, t->x_row, y, t->y_row);
    }
    return i;
}
#endif

/* Everything from row0 and column0 on. */
static void blocks(const fx_transpose *t, int64_t row0, int64_t column0) {
    const int64_t rows4 = row0 + (t->rows - row0) / 4 * 4;
    for (int64_t j0 = column0; j0 < t->columns; j0 += STRIP) {
        const int64_t j1 = j0 + STRIP < t->columns ? j0 + STRIP : t->columns, j4 = j0 + (j1 - j0) / 4 * 4;
        int64_t first = row0;
#if HAS_TILES
        if (j1 - j0 == STRIP)
            first = tiles(t, row0, t->rows, j0);
#endif
        for (int64_t i = first; i < rows4; i += 4) {
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
