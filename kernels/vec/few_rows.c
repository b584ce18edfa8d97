/* few_rows_f32 for all instruction sets. Sums stay in registers: of 4 vectors of columns where b's columns are
 * neighbours, of 4 columns across b's depth where that is. */
#include "simd.h"

#define SPAN 4
#define ROWS_MAX (FX_ISA_AVX2 ? 2 : 4) /* AVX2 has 16 registers */

/* Columns [j, j + SPAN vectors) of b's rows, for R rows of a; without FULL the last columns may be missing. */
FX_INLINE void down(const fx_few_rows *f, int32_t i, int32_t j, const int R, const int vectors, const int full) {
    fx_v sum[ROWS_MAX][SPAN];
    const float *b = f->b + j;
    const int32_t left = f->columns - j;
    FX_UNROLL for (int r = 0; r < R; r++) FX_UNROLL for (int l = 0; l < vectors; l++) sum[r][l] =
        !f->is_more ? fx_splat(0)
        : full      ? fx_load(f->c[i + r] + j + l * FX_WIDTH)
                    : fx_load_below(f->c[i + r] + j, l * FX_WIDTH, left);
    const float *a[ROWS_MAX];
    FX_UNROLL for (int r = 0; r < R; r++) a[r] = f->a[i + r];
    for (int32_t q = 0; q < f->k; q++, b += f->b_k) {
        fx_v v[SPAN];
        FX_UNROLL for (int l = 0; l < vectors; l++) v[l] =
            full ? fx_load(b + l * FX_WIDTH) : fx_load_below(b, l * FX_WIDTH, left);
        FX_UNROLL for (int r = 0; r < R; r++) FX_UNROLL for (int l = 0; l < vectors; l++) sum[r][l] += v[l] * a[r][q];
    }
    FX_UNROLL for (int r = 0; r < R; r++) FX_UNROLL for (int l = 0; l < vectors; l++) {
        if (full)
            fx_store(f->c[i + r] + j + l * FX_WIDTH, sum[r][l]);
        else
            fx_store_below(f->c[i + r] + j, l * FX_WIDTH, left, sum[r][l]);
    }
}

/* Columns [j, j + COLUMNS), each a run of b, for R rows of a. */
FX_INLINE void along(const fx_few_rows *f, int32_t i, int32_t j, const int R, const int columns) {
    fx_v sum[ROWS_MAX][SPAN];
    const float *a[ROWS_MAX], *b[SPAN];
    FX_UNROLL for (int r = 0; r < R; r++) a[r] = f->a[i + r];
    FX_UNROLL for (int l = 0; l < columns; l++) b[l] = f->b + (j + l) * f->b_n;
    FX_UNROLL for (int r = 0; r < R; r++) FX_UNROLL for (int l = 0; l < columns; l++) sum[r][l] = fx_splat(0);
    int32_t q = 0;
    for (; q + FX_WIDTH <= f->k; q += FX_WIDTH) {
        fx_v v[SPAN];
        FX_UNROLL for (int l = 0; l < columns; l++) v[l] = fx_load(b[l] + q);
        FX_UNROLL for (int r = 0; r < R; r++) {
            const fx_v x = fx_load(a[r] + q);
            FX_UNROLL for (int l = 0; l < columns; l++) sum[r][l] += x * v[l];
        }
    }
    if (q < f->k)
        FX_UNROLL for (int r = 0; r < R; r++) {
            const fx_v x = fx_load_part(a[r] + q, f->k - q);
            FX_UNROLL for (int l = 0; l < columns; l++) sum[r][l] += x * fx_load_part(b[l] + q, f->k - q);
        }
    FX_UNROLL for (int r = 0; r < R; r++) FX_UNROLL for (int l = 0; l < columns; l++) {
        float *c = f->c[i + r] + j + l;
        *c = fx_lanes_sum(sum[r][l]) + (f->is_more ? *c : 0);
    }
}

#define ROWS(R)                                                                                                        \
    static void down_##R(const fx_few_rows *f, int32_t i, int32_t j) {                                                 \
        if (j + SPAN * FX_WIDTH <= f->columns)                                                                         \
            down(f, i, j, R, SPAN, 1);                                                                                 \
        else                                                                                                           \
            for (; j < f->columns; j += FX_WIDTH)                                                                      \
                down(f, i, j, R, 1, 0);                                                                                \
    }                                                                                                                  \
    static void along_##R(const fx_few_rows *f, int32_t i, int32_t j) {                                                \
        if (j + SPAN <= f->columns)                                                                                    \
            along(f, i, j, R, SPAN);                                                                                   \
        else                                                                                                           \
            for (; j < f->columns; j++)                                                                                \
                along(f, i, j, R, 1);                                                                                  \
    }
ROWS(1)
ROWS(2)
#if !FX_ISA_AVX2
ROWS(4)
#endif

void FX_SYMBOL(few_rows_f32)(const fx_few_rows *f) {
    const int is_down = f->b_n == 1;
    const int32_t step = is_down ? SPAN * FX_WIDTH : SPAN;
    for (int32_t j = 0; j < f->columns; j += step) { /* a block of b serves all rows before the next one comes */
        int32_t i = 0;
#if !FX_ISA_AVX2
        for (; i + 4 <= f->rows; i += 4)
            (is_down ? down_4 : along_4)(f, i, j);
#endif
        for (; i + 2 <= f->rows; i += 2)
            (is_down ? down_2 : along_2)(f, i, j);
        if (i < f->rows)
            (is_down ? down_1 : along_1)(f, i, j);
    }
}
