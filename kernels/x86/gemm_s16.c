/* Products of pairs of int16 for AVX2 and AVX-512: one broadcast of a pair of a against each vector of w. */
#include "../vec/load_weights.h"
#include "tiles.h"

#if FX_ISA_AVX512
typedef __m512i ints;
#define PAIR(p) _mm512_set1_epi32(*(p))
#ifdef __AVX512VNNI__
#define DOT(sum, x, w) _mm512_dpwssd_epi32(sum, x, w)
#else
#define DOT(sum, x, w) _mm512_add_epi32(sum, _mm512_madd_epi16(x, w))
#endif
/* 16 whole floats as int16. */
#define STRIDE 16
FX_INLINE void store_shorts(int16_t *to, const float *from, int n) {
    const __m512i v = _mm512_cvttps_epi32(n < STRIDE ? fx_load_part(from, n) : fx_load(from));
    _mm256_storeu_si256((__m256i *)to, _mm512_cvtepi32_epi16(v));
}
FX_INLINE ints whole(const float *from) {
    return _mm512_cvttps_epi32(fx_load(from));
}
#else
typedef __m256i ints;
#define PAIR(p) _mm256_set1_epi32(*(p))
#define DOT(sum, x, w) _mm256_add_epi32(sum, _mm256_madd_epi16(x, w))
#define STRIDE 8
FX_INLINE void store_shorts(int16_t *to, const float *from, int n) {
    const __m256i v = _mm256_cvttps_epi32(n < STRIDE ? fx_load_part(from, n) : fx_load(from));
    _mm_storeu_si128((__m128i *)to, _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)));
}
FX_INLINE ints whole(const float *from) {
    return _mm256_cvttps_epi32(fx_load(from));
}
#endif
_Static_assert(STRIDE <= FX_S16_SLACK, "what is stored beyond a row's end");

typedef int32_t pair_in_memory __attribute__((aligned(2), may_alias));
typedef fx_vi ints_in_memory __attribute__((aligned(2), may_alias));

/* What is stored beyond the end of a run, the next one overwrites. */
void FX_SYMBOL(rows_s16)(const fx_rows_s16 *r) {
    for (int32_t i = 0; i < r->rows; i++) {
        int16_t *to = r->to + i * r->to_row;
        for (int32_t q0 = 0; q0 < r->k; q0 += r->block) {
            const int32_t n = r->k - q0 < r->block ? r->k - q0 : r->block;
            for (int32_t t = 0; t < r->taps; t++, to += n) {
                const float *from = r->a[t * r->rows + i] + r->a_at + q0;
                for (int32_t q = 0; q < n; q += STRIDE)
                    store_shorts(to + q, from + q, n - q);
            }
        }
        *to = 0; /* behind an odd depth; else the next row begins here */
    }
}

void FX_SYMBOL(panel_s16)(const fx_panel_s16 *p) {
    static const float zeros[FX_NR];
    int16_t *to = p->to;
    for (int32_t q = 0; q < p->depth; q += 2, to += 2 * FX_NR) {
        const float *first = p->from + (int64_t)q * FX_NR, *second = q + 1 < p->depth ? first + FX_NR : zeros;
        FX_UNROLL for (int j = 0; j < VECTORS; j++) {
            const fx_vi low = (fx_vi)whole(first + j * FX_WIDTH), high = (fx_vi)whole(second + j * FX_WIDTH);
            *(ints_in_memory *)(to + 2 * j * FX_WIDTH) = (low & 0xffff) | (high << 16);
        }
    }
}

/* Where the columns are not whole panels. */
static __attribute__((noinline)) void store_any(const fx_gemm_s16 *g, int rows, int vectors, const fx_vi *sum) {
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vectors; j++) {
            float *to = (float *)(g->c[i] + g->c_at);
            fx_vi v = *sum++;
            if (g->is_more)
                v += (fx_vi)fx_load_below(to, j * FX_WIDTH, g->columns);
            fx_store_below(to, j * FX_WIDTH, g->columns, (fx_v)v);
        }
}

#define TILE(R, P)                                                                                                     \
    static void tile_##R##x##P(const fx_gemm_s16 *g) {                                                                 \
        enum { V = P * VECTORS };                                                                                      \
        const int16_t *w = g->w, *a[R];                                                                                \
        const ptrdiff_t second = g->w_panel;                                                                           \
        ints sum[R][V];                                                                                                \
        FX_UNROLL for (int i = 0; i < R; i++) {                                                                        \
            a[i] = g->a + i * g->a_row;                                                                                \
            FX_UNROLL for (int j = 0; j < V; j++) sum[i][j] = (ints)(fx_vi){0};                                        \
        }                                                                                                              \
        for (int64_t q = 0; q < g->depth; q += 2, w += 2 * FX_NR) {                                                    \
            ints b[V];                                                                                                 \
            FX_UNROLL for (int j = 0; j < V; j++) b[j] =                                                               \
                (ints) * (const ints_in_memory *)(w + j / VECTORS * second + j % VECTORS * 2 * FX_WIDTH);              \
            FX_UNROLL for (int i = 0; i < R; i++) {                                                                    \
                const ints x = PAIR((const pair_in_memory *)(a[i] + q));                                               \
                FX_UNROLL for (int j = 0; j < V; j++) sum[i][j] = DOT(sum[i][j], x, b[j]);                             \
            }                                                                                                          \
        }                                                                                                              \
        if (g->is_more || g->columns < P * FX_NR) {                                                                    \
            fx_vi stored[R][V]; /* sum itself has no address, so that it stays in registers */                         \
            FX_UNROLL for (int i = 0; i < R; i++) FX_UNROLL for (int j = 0; j < V; j++) stored[i][j] =                 \
                (fx_vi)sum[i][j];                                                                                      \
            store_any(g, R, V, stored[0]);                                                                             \
            return;                                                                                                    \
        }                                                                                                              \
        FX_UNROLL for (int i = 0; i < R; i++) FX_UNROLL for (int j = 0; j < V; j++)                                    \
            fx_store((float *)(g->c[i] + g->c_at) + j * FX_WIDTH, (fx_v)sum[i][j]);                                    \
    }
EVERY_TILE(TILE)

void FX_SYMBOL(gemm_s16)(const fx_gemm_s16 *g) {
    static void (*const tiles[][MR])(const fx_gemm_s16 *) = NAMES(tile);
    tiles[g->panels - 1][g->rows - 1](g);
}
