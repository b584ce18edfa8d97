/* What the gemm tiles of all instruction sets share: x86/gemm.c and neon/gemm.h include it. A tile is R rows and V
 * vectors of columns, its sums an array sum[R][V] that stays in registers. */
#ifndef FLEXNN_VEC_TILE_H
#define FLEXNN_VEC_TILE_H

#include "run_sums.h"

#define VECTORS (FX_NR / FX_WIDTH) /* of a panel */

/* Walks the depth of product g as its panels hold it, block by block and tap by tap, with row[i] at row i's n elements:
 * at ROW, where a is at the tap's POINTERS. MULTIPLY adds their products to the sums, FOLD folds what is summed where a
 * run is full, PASS moves past the weights of a tap that all rows miss: runs are counted as if it were zeros. */
#define FX_WALK(R, POINTERS, ROW, FOLD, MULTIPLY, PASS)                                                                \
    const int64_t block = fx_block(g);                                                                                 \
    for (int64_t q0 = 0; q0 < g->k; q0 += block) {                                                                     \
        const float *const *a = g->a;                                                                                  \
        const int64_t n = g->k - q0 < block ? g->k - q0 : block;                                                       \
        for (int64_t t = 0; t < g->taps; t++, a += (POINTERS), run += n) {                                             \
            if (run && run + n > FX_GEMM_RUN) {                                                                        \
                FOLD;                                                                                                  \
                folds++, run = 0;                                                                                      \
            }                                                                                                          \
            if (!*a) {                                                                                                 \
                PASS;                                                                                                  \
                continue;                                                                                              \
            }                                                                                                          \
            const float *row[R];                                                                                       \
            FX_UNROLL for (int i = 0; i < R; i++) row[i] = (ROW) + g->a_at + q0;                                       \
            MULTIPLY                                                                                                   \
        }                                                                                                              \
    }

/* Stores a tile of COLUMNS columns: FINISH_ANY does it where they are not whole panels, or the activation is no clamp.
 */
#define FX_STORE_TILE(R, V, COLUMNS, FINISH_ANY)                                                                       \
    if (g->finish.act > FX_ACT_CLIP || g->columns < (COLUMNS)) {                                                       \
        fx_v stored[R][V]; /* sum itself has no address, so that it stays in registers */                              \
        FX_UNROLL for (int i = 0; i < R; i++) FX_UNROLL for (int j = 0; j < V; j++) stored[i][j] = sum[i][j];          \
        FINISH_ANY;                                                                                                    \
        return;                                                                                                        \
    }                                                                                                                  \
    float *const *c = g->c;                                                                                            \
    const int64_t at = g->c_at;                                                                                        \
    const fx_v lo = fx_splat(g->finish.lo), hi = fx_splat(g->finish.hi);                                               \
    if (g->r)                                                                                                          \
        FX_UNROLL for (int i = 0; i < R; i++) FX_UNROLL for (int j = 0; j < V; j++) sum[i][j] +=                       \
            fx_load(g->r[i] + g->c_at + j * FX_WIDTH);                                                                 \
    FX_UNROLL for (int i = 0; i < R; i++) FX_UNROLL for (int j = 0; j < V; j++)                                        \
        fx_store(c[i] + at + j * FX_WIDTH, fx_min(hi, fx_max(lo, sum[i][j])));

/* Stores a tile of a Winograd plane, over earlier sums. */
#define FX_STORE_WINO_TILE(R, V)                                                                                       \
    if (!g->is_first)                                                                                                  \
        FX_UNROLL for (int i = 0; i < R; i++) FX_UNROLL for (int j = 0; j < V; j++) sum[i][j] +=                       \
            fx_load(g->c + i * g->ldc + j * FX_WIDTH);                                                                 \
    FX_UNROLL for (int i = 0; i < R; i++) FX_UNROLL for (int j = 0; j < V; j++)                                        \
        fx_store(g->c + i * g->ldc + j * FX_WIDTH, sum[i][j]);

#endif
