/* gemm_f32 for AVX2 and AVX-512: sums in registers, one broadcast of a's element against each vector of w. */
#include "simd.h"

#define VECTORS (FX_NR / FX_WIDTH) /* of a panel */

/* What the tiles finish themselves is whole panels and a clamp; this is the rest. */
static __attribute__((noinline)) void finish_any(const fx_gemm *g, int rows, int vectors, const fx_v *sum) {
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < vectors; j++) {
            const float *panel = g->w + j / VECTORS * g->w_panel + j % VECTORS * FX_WIDTH;
            fx_v v = *sum++;
            if (g->r)
                v += fx_load_below(g->r[i] + g->c_at, j * FX_WIDTH, g->columns);
            v = fx_activate(&g->finish, v, panel + FX_NR);
            fx_store_below(g->c[i] + g->c_at, j * FX_WIDTH, g->columns, v);
        }
}

/* A function for each number of rows and panels, so that a tile of any size costs its own multiplications only. */
#define TILE(R, P)                                                                                                     \
    static void tile_##R##x##P(const fx_gemm *g) {                                                                     \
        enum { V = P * VECTORS };                                                                                      \
        const float *w = g->w;                                                                                         \
        const ptrdiff_t second = g->w_panel;                                                                           \
        fx_v sum[R][V];                                                                                                \
        FX_UNROLL for (int j = 0; j < V; j++) {                                                                        \
            fx_v start = {0};                                                                                          \
            if (g->head)                                                                                               \
                start = fx_load(w + j / VECTORS * second + j % VECTORS * FX_WIDTH);                                    \
            FX_UNROLL for (int i = 0; i < R; i++) sum[i][j] = start;                                                   \
        }                                                                                                              \
        w += g->head;                                                                                                  \
        for (int64_t q0 = 0; q0 < g->k; q0 += g->block) {                                                              \
            const float *const *a = g->a;                                                                              \
            const int64_t n = g->k - q0 < g->block ? g->k - q0 : g->block;                                             \
            for (int64_t t = 0; t < g->taps; t++, a += R) {                                                            \
                const float *row[R];                                                                                   \
                FX_UNROLL for (int i = 0; i < R; i++) row[i] = a[i] + g->a_at + q0;                                    \
                for (int64_t q = 0; q < n; q++, w += FX_NR) {                                                          \
                    fx_v b[V];                                                                                         \
                    FX_UNROLL for (int j = 0; j < V; j++) b[j] =                                                       \
                        fx_load(w + j / VECTORS * second + j % VECTORS * FX_WIDTH);                                    \
                    FX_UNROLL for (int i = 0; i < R; i++) FX_UNROLL for (int j = 0; j < V; j++) sum[i][j] +=           \
                        b[j] * row[i][q];                                                                              \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
        if (g->finish.act > FX_ACT_CLIP || g->columns < P * FX_NR) {                                                   \
            finish_any(g, R, V, sum[0]);                                                                               \
            return;                                                                                                    \
        }                                                                                                              \
        const fx_v lo = fx_splat(g->finish.lo), hi = fx_splat(g->finish.hi);                                           \
        if (g->r)                                                                                                      \
            FX_UNROLL for (int i = 0; i < R; i++) FX_UNROLL for (int j = 0; j < V; j++) sum[i][j] +=                   \
                fx_load(g->r[i] + g->c_at + j * FX_WIDTH);                                                             \
        FX_UNROLL for (int i = 0; i < R; i++) FX_UNROLL for (int j = 0; j < V; j++)                                    \
            fx_store(g->c[i] + g->c_at + j * FX_WIDTH, fx_min(hi, fx_max(lo, sum[i][j])));                             \
    }

#define TILES(P) TILE(1, P) TILE(2, P) TILE(3, P) TILE(4, P) TILE(5, P) TILE(6, P)
TILES(1)
#if FX_WIDTH == 16
#define MORE_TILES(P) TILE(7, P) TILE(8, P) TILE(9, P) TILE(10, P) TILE(11, P) TILE(12, P) TILE(13, P) TILE(14, P)
MORE_TILES(1)
TILES(2)
MORE_TILES(2)
#endif

void FX_SYMBOL(gemm_f32)(const fx_gemm *g) {
    typedef void (*tile)(const fx_gemm *);
#define SIX(P) tile_1x##P, tile_2x##P, tile_3x##P, tile_4x##P, tile_5x##P, tile_6x##P
#if FX_WIDTH == 16
#define FOURTEEN(P)                                                                                                    \
    {SIX(P), tile_7x##P, tile_8x##P, tile_9x##P, tile_10x##P, tile_11x##P, tile_12x##P, tile_13x##P, tile_14x##P}
    static const tile tiles[2][14] = {FOURTEEN(1), FOURTEEN(2)};
#else
    static const tile tiles[1][6] = {{SIX(1)}};
#endif
    tiles[g->panels - 1][g->rows - 1](g);
}
