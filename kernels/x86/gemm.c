/* gemm_f32 for AVX2 and AVX-512: sums in registers, one broadcast of a's element against each vector of w. */
#include "../vec/tile.h"
#include "tiles.h"

/* The tiles finish whole panels and clamps themselves; this function does the rest. */
static __attribute__((noinline)) void finish_any(const fx_gemm *g, int rows, int vectors, const fx_v *sum) {
    for (int j = 0; j < vectors; j++) {
        const float *panel = g->w + j / VECTORS * g->w_panel + j % VECTORS * FX_WIDTH;
        const int is_leaky = g->finish.act == FX_ACT_LEAKY_RELU && (j + 1) * FX_WIDTH <= g->columns && !g->r;
        const fx_v slope = fx_splat(g->finish.lo);
        for (int i = 0; is_leaky && i < rows; i++) {
            const fx_v v = sum[i * vectors + j];
            fx_store(g->c[i] + g->c_at + j * FX_WIDTH, fx_if_negative(v, v * slope, v));
        }
        for (int i = 0; !is_leaky && i < rows; i++) {
            fx_v v = sum[i * vectors + j];
            if (g->r)
                v += fx_load_below(g->r[i] + g->c_at, j * FX_WIDTH, g->columns);
            v = fx_activate(&g->finish, v, panel + FX_NR);
            fx_store_below(g->c[i] + g->c_at, j * FX_WIDTH, g->columns, v);
        }
    }
}

/* sum[R][V] += row[R][n] * w[n][V vectors], and w moves on. With ASKS a line for each panel is prefetched. */
#define MULTIPLY(R, n, ASKS)                                                                                           \
    for (int64_t q = 0; q < (n); q++, w += FX_NR) {                                                                    \
        fx_v b[V];                                                                                                     \
        if (ASKS)                                                                                                      \
            FX_UNROLL for (int j = 0; j < V / VECTORS; j++) __builtin_prefetch(w + ahead[j]);                          \
        FX_UNROLL for (int j = 0; j < V; j++) b[j] = fx_load(w + j / VECTORS * second + j % VECTORS * FX_WIDTH);       \
        FX_UNROLL for (int i = 0; i < R; i++) FX_UNROLL for (int j = 0; j < V; j++) sum[i][j] += b[j] * row[i][q];     \
    }

/* A function for each number of rows and panels, so that a tile of any size costs its own multiplications only. */
#define TILE_AS(NAME, R, P, ASKS, POINTERS, ROW)                                                                       \
    static void NAME(const fx_gemm *g) {                                                                               \
        enum { V = P * VECTORS };                                                                                      \
        const float *w = g->w;                                                                                         \
        const ptrdiff_t second = g->w_panel, ahead[] = {g->ahead[0], g->ahead[1]};                                     \
        fx_v sum[R][V];                                                                                                \
        FX_UNROLL for (int j = 0; j < V; j++) {                                                                        \
            fx_v start = {0};                                                                                          \
            if (g->head)                                                                                               \
                start = fx_load(w + j / VECTORS * second + j % VECTORS * FX_WIDTH);                                    \
            FX_UNROLL for (int i = 0; i < R; i++) sum[i][j] = start;                                                   \
        }                                                                                                              \
        FX_KEEP(kept, fx_v, R, V);                                                                                     \
        const int phase = FX_FOLD_PHASE(g);                                                                            \
        int64_t run = 0, folds = 0;                                                                                    \
        w += g->head;                                                                                                  \
        FX_WALK(R, POINTERS, ROW, FX_FOLD(sum, kept, R, V, folds, phase), MULTIPLY(R, n, ASKS), w += n * FX_NR)        \
        FX_UNFOLD(sum, kept, R, V, folds, phase);                                                                      \
        FX_STORE_TILE(R, V, P * FX_NR, finish_any(g, R, V, stored[0]))                                                 \
    }
#define TILE(R, P) TILE_AS(tile_##R##x##P, R, P, 0, R, a[i])
#define ASKING_TILE(R, P) TILE_AS(asking_##R##x##P, R, P, 1, R, a[i])
#define STEPPED_TILE(R, P) TILE_AS(stepped_##R##x##P, R, P, 0, 1, a[0] + i * g->a_step)

#if FX_ISA_AVX512
/* A panel and no more than half of the next, whose vectors are half as wide: where a 512-bit multiply-add takes both
 * 256-bit units (Zen 4), 24 channels cost three quarters of 32. */
typedef float half __attribute__((vector_size(32)));
typedef float half_in_memory __attribute__((vector_size(32), aligned(4), may_alias));

#define MULTIPLY_HALF(R, n)                                                                                            \
    for (int64_t q = 0; q < (n); q++, w += FX_NR, more += FX_NR) {                                                     \
        const fx_v b = fx_load(w);                                                                                     \
        const half c = *(const half_in_memory *)more;                                                                  \
        FX_UNROLL for (int i = 0; i < R; i++) sum[i][0] += b * row[i][q], rest[i][0] += c * row[i][q];                 \
    }

#define HALF_TILE_AS(NAME, R, POINTERS, ROW)                                                                           \
    static void NAME(const fx_gemm *g) {                                                                               \
        const float *w = g->w, *more = g->w + g->w_panel;                                                              \
        fx_v sum[R][1], start = {0};                                                                                   \
        half rest[R][1], rest_start = {0};                                                                             \
        if (g->head)                                                                                                   \
            start = fx_load(w), rest_start = *(const half_in_memory *)more;                                            \
        FX_UNROLL for (int i = 0; i < R; i++) sum[i][0] = start, rest[i][0] = rest_start;                              \
        FX_KEEP(kept, fx_v, R, 1);                                                                                     \
        FX_KEEP(kept_rest, half, R, 1);                                                                                \
        const int phase = FX_FOLD_PHASE(g);                                                                            \
        int64_t run = 0, folds = 0;                                                                                    \
        w += g->head, more += g->head;                                                                                 \
        FX_WALK(R, POINTERS, ROW, FX_FOLD(sum, kept, R, 1, folds, phase);                                              \
                FX_FOLD(rest, kept_rest, R, 1, folds, 1 - phase), MULTIPLY_HALF(R, n),                                 \
                (w += n * FX_NR, more += n * FX_NR))                                                                   \
        FX_UNFOLD(sum, kept, R, 1, folds, phase);                                                                      \
        FX_UNFOLD(rest, kept_rest, R, 1, folds, 1 - phase);                                                            \
        if (g->finish.act > FX_ACT_CLIP || g->columns < FX_NR + 8) {                                                   \
            fx_v stored[R][2];                                                                                         \
            FX_UNROLL for (int i = 0; i < R; i++) stored[i][0] = sum[i][0],                                            \
                                                  stored[i][1] = _mm512_zextps256_ps512(rest[i][0]);                   \
            finish_any(g, R, 2, stored[0]);                                                                            \
            return;                                                                                                    \
        }                                                                                                              \
        float *const *c = g->c;                                                                                        \
        const int64_t at = g->c_at;                                                                                    \
        const fx_v lo = fx_splat(g->finish.lo), hi = fx_splat(g->finish.hi);                                           \
        const half low = _mm512_castps512_ps256(lo), high = _mm512_castps512_ps256(hi);                                \
        if (g->r)                                                                                                      \
            FX_UNROLL for (int i = 0; i < R; i++) sum[i][0] += fx_load(g->r[i] + at),                                  \
                rest[i][0] += *(const half_in_memory *)(g->r[i] + at + FX_NR);                                         \
        FX_UNROLL for (int i = 0; i < R; i++) {                                                                        \
            fx_store(c[i] + at, fx_min(hi, fx_max(lo, sum[i][0])));                                                    \
            *(half_in_memory *)(c[i] + at + FX_NR) = _mm256_min_ps(high, _mm256_max_ps(low, rest[i][0]));              \
        }                                                                                                              \
    }
#define HALF_TILE(R, P) HALF_TILE_AS(half_##R##x##P, R, R, a[i])
#define STEPPED_HALF_TILE(R, P) HALF_TILE_AS(stepped_half_##R##x##P, R, 1, a[0] + i * g->a_step)
#endif

/* The same for a Winograd plane: rows at a stride, and earlier sums in memory. */
#define WINO_TILE(R, P)                                                                                                \
    static void wino_##R##x##P(const fx_wino_gemm *g) {                                                                \
        enum { V = P * VECTORS };                                                                                      \
        const float *w = g->w, *row[R];                                                                                \
        const ptrdiff_t second = g->w_panel, ahead[2] = {0};                                                           \
        fx_v sum[R][V];                                                                                                \
        FX_UNROLL for (int i = 0; i < R; i++) {                                                                        \
            row[i] = g->a + i * g->lda;                                                                                \
            FX_UNROLL for (int j = 0; j < V; j++) sum[i][j] = (fx_v){0};                                               \
        }                                                                                                              \
        MULTIPLY(R, g->k, 0)                                                                                           \
        FX_STORE_WINO_TILE(R, V)                                                                                       \
    }

#define EACH(R, P) TILE(R, P) STEPPED_TILE(R, P) WINO_TILE(R, P)
EVERY_TILE(EACH)
WIDEST_TILES(ASKING_TILE)
#if FX_ISA_AVX512
WIDEST_TILES(HALF_TILE)
WIDEST_TILES(STEPPED_HALF_TILE)
#endif

void FX_SYMBOL(gemm_f32)(const fx_gemm *g) {
    static void (*const tiles[2][MOST_PANELS][MR])(const fx_gemm *) = {NAMES(tile), NAMES(stepped)};
    static void (*const asking[])(const fx_gemm *) = {WIDEST_NAMES(asking)};
    const int is_stepped = g->a_step != 0;
#if FX_ISA_AVX512
    static void (*const halves[2][MR])(const fx_gemm *) = {{WIDEST_NAMES(half)}, {WIDEST_NAMES(stepped_half)}};
    if (g->panels == 2 && g->columns <= FX_NR + 8) {
        halves[is_stepped][g->rows - 1](g);
        return;
    }
#endif
    const int is_asking = g->ahead[0] && !is_stepped && g->panels == MOST_PANELS;
    (is_asking ? asking : tiles[is_stepped][g->panels - 1])[g->rows - 1](g);
}

void FX_SYMBOL(wino_gemm_f32)(const fx_wino_gemm *g) {
    static void (*const tiles[][MR])(const fx_wino_gemm *) = NAMES(wino);
    tiles[g->panels - 1][g->rows - 1](g);
}
