/* Sums in runs: vec/gemm.c and neon/gemm.h include it. One chain of n products errs by about sqrt(n / 2) roundings of
 * the result; chains of FX_GEMM_RUN products, each folded into what was summed before, by the square root of half a run
 * and half the number of runs (Higham, Accuracy and Stability of Numerical Algorithms, 4.2: blocked summation).
 *
 * What was summed before waits in L1. The upper and the lower rows of a tile are folded by turns, every other run each:
 * where all were folded at once, their stores kept the multiply-adds waiting (docs/decisions/0022). */
#ifndef FLEXNN_FOLD_H
#define FLEXNN_FOLD_H

#include "simd.h"

/* Room for rows x vectors sums. The pointer is opaque: the compiler would think of registers for them. */
#define FX_KEEP(kept, type, rows, vectors)                                                                             \
    type kept##_room[(rows) * (vectors)], *kept = kept##_room;                                                         \
    __asm__("" : "+r"(kept))

#define FX_ADD_KEPT(sum, kept, from, to, vectors)                                                                      \
    do {                                                                                                               \
        FX_UNROLL for (int i = (from); i < (to); i++) FX_UNROLL for (int j = 0; j < (vectors); j++) sum[i][j] +=       \
            kept[i * (vectors) + j];                                                                                   \
    } while (0)

/* Rows [from, to) go to memory, the first time over what is there, and start again at 0. */
#define FX_FOLD_ROWS(sum, kept, from, to, vectors, is_first)                                                           \
    do {                                                                                                               \
        if (!(is_first))                                                                                               \
            FX_ADD_KEPT(sum, kept, from, to, vectors);                                                                 \
        FX_UNROLL for (int i = (from); i < (to); i++) FX_UNROLL for (int j = 0; j < (vectors); j++) {                  \
            kept[i * (vectors) + j] = sum[i][j];                                                                       \
            sum[i][j] = (__typeof__(sum[i][j])){0};                                                                    \
        }                                                                                                              \
    } while (0)

/* The folds-th fold of a tile, from 0 on: of its lower rows, then of its upper ones, and so on. */
#define FX_FOLD(sum, kept, rows, vectors, folds)                                                                       \
    do {                                                                                                               \
        if ((folds) & 1)                                                                                               \
            FX_FOLD_ROWS(sum, kept, 0, (rows) / 2, vectors, (folds) == 1);                                             \
        else                                                                                                           \
            FX_FOLD_ROWS(sum, kept, (rows) / 2, rows, vectors, (folds) == 0);                                          \
    } while (0)

/* What was folded joins the last run. */
#define FX_UNFOLD(sum, kept, rows, vectors, folds)                                                                     \
    do {                                                                                                               \
        if ((folds) > 0)                                                                                               \
            FX_ADD_KEPT(sum, kept, (rows) / 2, rows, vectors);                                                         \
        if ((folds) > 1)                                                                                               \
            FX_ADD_KEPT(sum, kept, 0, (rows) / 2, vectors);                                                            \
    } while (0)

/* The block of a tile's depth that is walked at once: the panel's own, or shorter where that makes no difference. */
FX_INLINE int64_t fx_block(const fx_gemm *g) {
    return g->taps > 1 || g->block < FX_GEMM_RUN ? g->block : FX_GEMM_RUN;
}

#endif
