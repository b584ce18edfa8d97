/* Products of few rows of bytes: VPDPBUSD adds four of them to each sum. One broadcast of four numbers of a against
 * each vector of w. */
#include "../vec/load_weights.h"

typedef int32_t four_in_memory __attribute__((aligned(1), may_alias));
#define FOUR(p) _mm512_set1_epi32(*(const four_in_memory *)(p))

/* The 16 columns of 4 rows as 4 numbers of each column: first the fours of a column group in a lane, then in order. */
FX_INLINE __m512i turned(__m512i rows) {
    const __m512i gather = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    const __m512i order = _mm512_broadcast_i32x4(_mm_set_epi8(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0));
    return _mm512_shuffle_epi8(_mm512_permutexvar_epi32(gather, rows), order);
}

/* Rows [q, q + 4) of `depth` of a panel, zeros beyond. */
FX_INLINE __m512i rows_at(const int8_t *from, int32_t q, int32_t depth) {
    const int left = depth - q < 4 ? depth - q : 4;
    return _mm512_maskz_loadu_epi32((__mmask16)((1u << 4 * left) - 1), from + (int64_t)q * FX_NR);
}

void FX_SYMBOL(panel_s8)(const fx_panel_s8 *p) {
    __m512i sums = _mm512_setzero_si512();
    int8_t *to = p->to;
    for (int32_t q = 0; q < p->depth; q += 4, to += 4 * FX_NR) {
        const __m512i w = turned(rows_at(p->from, q, p->depth));
        sums = _mm512_dpbusd_epi32(sums, _mm512_set1_epi8(1), w);
        _mm512_storeu_si512(to, w);
    }
    _mm512_storeu_si512(p->sums, sums);
}

/* Bytes from a weight to one that is prefetched: panels that a step reads again and again come from L2. */
#define AHEAD 512

/* P panels at once, so that no sum waits for the one before. */
FX_INLINE void multiply_few(const fx_gemv_u8 *g, const int32_t panel, const int R, const int P) {
    const int8_t *w = g->w + panel * g->w_panel;
    __m512i sum[FX_FEW_ROWS][4];
    FX_UNROLL for (int i = 0; i < R; i++) FX_UNROLL for (int j = 0; j < P; j++) sum[i][j] = _mm512_setzero_si512();
    for (int32_t q = 0; q < g->depth; q += 4, w += 4 * FX_NR) {
        __m512i b[4];
        FX_UNROLL for (int j = 0; j < P; j++) b[j] = _mm512_loadu_si512(w + j * g->w_panel);
        FX_UNROLL for (int j = 0; j < P; j++) __builtin_prefetch(w + j * g->w_panel + AHEAD);
        FX_UNROLL for (int i = 0; i < R; i++) {
            const __m512i x = FOUR(g->a + i * g->a_row + q);
            FX_UNROLL for (int j = 0; j < P; j++) sum[i][j] = _mm512_dpbusd_epi32(sum[i][j], x, b[j]);
        }
    }
    FX_UNROLL for (int j = 0; j < P; j++) {
        const int32_t at = (panel + j) * FX_NR;
        const fx_v scale = fx_load(g->scales + (panel + j) * g->scale_panel) * fx_splat(g->scale);
        const __m512i zeros = _mm512_mullo_epi32(_mm512_loadu_si512(g->sums + at), _mm512_set1_epi32(g->zero));
        FX_UNROLL for (int i = 0; i < R; i++) {
            const fx_v v = _mm512_cvtepi32_ps(_mm512_sub_epi32(sum[i][j], zeros));
            fx_store_below(g->c + i * g->c_row, at, g->columns,
                           v * scale + fx_load_below(g->x + i * g->x_row, at, g->columns));
        }
    }
}

#define FEW(R)                                                                                                         \
    static void few_##R(const fx_gemv_u8 *g) {                                                                         \
        const int32_t panels = (g->columns + FX_NR - 1) / FX_NR;                                                       \
        int32_t panel = 0;                                                                                             \
        for (; panel + 4 <= panels; panel += 4)                                                                        \
            multiply_few(g, panel, R, 4);                                                                              \
        for (; panel < panels; panel++)                                                                                \
            multiply_few(g, panel, R, 1);                                                                              \
    }
FEW(1)
FEW(2)
FEW(3)
FEW(4)
FEW(5)
FEW(6)
FEW(7)

void FX_SYMBOL(gemv_u8)(const fx_gemv_u8 *g) {
    static void (*const kernels[FX_FEW_ROWS])(const fx_gemv_u8 *) = {few_1, few_2, few_3, few_4, few_5, few_6, few_7};
    kernels[g->rows - 1](g);
}
