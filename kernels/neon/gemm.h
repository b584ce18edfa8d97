/* gemm_f32 and wino_gemm_f32 of NEON: sums in registers; four elements of a row stand in one vector, multiplied lane by
 * lane. neon/gemm.c and neon_inorder/gemm.c include it after they have defined AHEAD(R, n): nothing, or a
 * better loop over a multiple of four channels, which leaves q and w where the other goes on.
 *
 * The multiply-add is written in assembly, and the files are compiled without scheduling: with vfmaq_laneq_f32, gcc 12
 * copies sums around (llvm-mca: 73-95 % of the multiply-adds on Cortex-X1, 99.7 % so). Elsewhere than on Arm (the check
 * through SIMDe) it is the intrinsic. */
#ifndef FLEXNN_NEON_GEMM_H
#define FLEXNN_NEON_GEMM_H

#include "../vec/tile.h"

#ifdef __aarch64__
#define FMLA(sum, b, e, lane) __asm__("fmla %0.4s, %1.4s, %2.s[" #lane "]" : "+w"(sum) : "w"(b), "w"(e))
#define SCALAR(e, p) __asm__("ldr %s0, %1" : "=w"(e) : "m"(*(p)))
#else
#define SCALAR(e, p) (e) = vld1q_dup_f32(p)
#define FMLA(sum, b, e, lane) (sum) = vfmaq_laneq_f32(sum, b, e, lane)
#endif

/* The tiles finish whole panels and clamps themselves; this function does the rest. */
static __attribute__((noinline)) void finish_any(const fx_gemm *g, int rows, const fx_v *sum) {
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < VECTORS; j++) {
            fx_v v = *sum++;
            if (g->r)
                v += fx_load_below(g->r[i] + g->c_at, j * 4, g->columns);
            v = fx_activate(&g->finish, v, g->w + FX_NR + j * 4);
            fx_store_below(g->c[i] + g->c_at, j * 4, g->columns, v);
        }
}

/* One of four channels: its 16 weights, in b, against that lane of every row. What the next channel needs is loaded as
 * soon as its register is free. */
#define LANE(R, lane)                                                                                                  \
    FX_UNROLL for (int j = 0; j < VECTORS; j++) {                                                                      \
        FX_UNROLL for (int i = 0; i < R; i++) FMLA(sum[i][j], b[j], e[i], lane);                                       \
        if (lane < 3)                                                                                                  \
            b[j] = vld1q_f32(w + (lane + 1) * FX_NR + j * 4);                                                          \
    }

#define FOURS(R, n)                                                                                                    \
    for (; q + 4 <= (n); q += 4, w += 4 * FX_NR) {                                                                     \
        float32x4_t b[VECTORS], e[R];                                                                                  \
        FX_UNROLL for (int j = 0; j < VECTORS; j++) b[j] = vld1q_f32(w + j * 4);                                       \
        FX_UNROLL for (int i = 0; i < R; i++) e[i] = vld1q_f32(row[i] + q);                                            \
        LANE(R, 0) LANE(R, 1) LANE(R, 2) LANE(R, 3)                                                                    \
    }

/* One channel: what is left over after the last four. */
#define ONE(R)                                                                                                         \
    {                                                                                                                  \
        float32x4_t e[R];                                                                                              \
        FX_UNROLL for (int i = 0; i < R; i++) SCALAR(e[i], row[i] + q);                                                \
        FX_UNROLL for (int j = 0; j < VECTORS; j++) {                                                                  \
            const float32x4_t b = vld1q_f32(w + j * 4);                                                                \
            FX_UNROLL for (int i = 0; i < R; i++) FMLA(sum[i][j], b, e[i], 0);                                         \
        }                                                                                                              \
    }

/* sum[R] += row[R][n] * w[n], and w moves on. */
#define MULTIPLY(R, n)                                                                                                 \
    {                                                                                                                  \
        int64_t q = 0;                                                                                                 \
        AHEAD(R, n)                                                                                                    \
        FOURS(R, n)                                                                                                    \
        for (; q < (n); q++, w += FX_NR)                                                                               \
            ONE(R)                                                                                                     \
    }

/* A function for each number of rows, so that a tile of any size costs its own multiplications only. */
#define TILE_AS(NAME, R, POINTERS, ROW)                                                                                \
    static void NAME(const fx_gemm *g) {                                                                               \
        const float *w = g->w;                                                                                         \
        float32x4_t sum[R][VECTORS];                                                                                   \
        FX_UNROLL for (int j = 0; j < VECTORS; j++) {                                                                  \
            const float32x4_t start = g->head ? vld1q_f32(w + j * 4) : vdupq_n_f32(0);                                 \
            FX_UNROLL for (int i = 0; i < R; i++) sum[i][j] = start;                                                   \
        }                                                                                                              \
        FX_KEEP(kept, float32x4_t, R, VECTORS);                                                                        \
        const int phase = FX_FOLD_PHASE(g);                                                                            \
        int64_t run = 0, folds = 0;                                                                                    \
        w += g->head;                                                                                                  \
        FX_WALK(R, POINTERS, ROW, FX_FOLD(sum, kept, R, VECTORS, folds, phase), MULTIPLY(R, n), w += n * FX_NR)        \
        FX_UNFOLD(sum, kept, R, VECTORS, folds, phase);                                                                \
        FX_STORE_TILE(R, VECTORS, FX_NR, finish_any(g, R, stored[0]))                                                  \
    }
#define TILE(R) TILE_AS(tile_##R, R, R, a[i])
#define STEPPED_TILE(R) TILE_AS(stepped_##R, R, 1, a[0] + i * g->a_step)

/* The same for a Winograd plane: rows at a stride, and earlier sums in memory. */
#define WINO_TILE(R)                                                                                                   \
    static void wino_##R(const fx_wino_gemm *g) {                                                                      \
        const float *w = g->w, *row[R];                                                                                \
        float32x4_t sum[R][VECTORS];                                                                                   \
        FX_UNROLL for (int i = 0; i < R; i++) {                                                                        \
            row[i] = g->a + i * g->lda;                                                                                \
            FX_UNROLL for (int j = 0; j < VECTORS; j++) sum[i][j] = vdupq_n_f32(0);                                    \
        }                                                                                                              \
        MULTIPLY(R, g->k)                                                                                              \
        FX_STORE_WINO_TILE(R, VECTORS)                                                                                 \
    }

#define EACH(R) TILE(R) STEPPED_TILE(R) WINO_TILE(R)
EACH(1)
EACH(2)
EACH(3)
EACH(4)
EACH(5)

void FX_SYMBOL(gemm_f32)(const fx_gemm *g) {
    static void (*const tiles[2][5])(const fx_gemm *) = {{tile_1, tile_2, tile_3, tile_4, tile_5},
                                                         {stepped_1, stepped_2, stepped_3, stepped_4, stepped_5}};
    tiles[g->a_step != 0][g->rows - 1](g);
}

void FX_SYMBOL(wino_gemm_f32)(const fx_wino_gemm *g) {
    static void (*const tiles[])(const fx_wino_gemm *) = {wino_1, wino_2, wino_3, wino_4, wino_5};
    tiles[g->rows - 1](g);
}

#endif
