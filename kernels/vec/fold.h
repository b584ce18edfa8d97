/* Sums in runs: vec/gemm.c and neon/gemm.h include it. One chain of n products errs by about sqrt(n / 2) roundings of
 * the result; chains of FX_GEMM_RUN products, each folded into what was summed before, by the square root of half a run
 * and half the number of runs (Higham, Accuracy and Stability of Numerical Algorithms, 4.2: blocked summation).
 *
 * What was summed before waits in L1. Half of a tile's columns are folded at a time, every other run: where all were
 * folded at once, their stores kept the multiply-adds waiting (docs/decisions/0022). Which half a column is in follows
 * from its number alone, so an output is the same to the bit however windows and threads cut the work. */
#ifndef FLEXNN_FOLD_H
#define FLEXNN_FOLD_H

#include "simd.h"

/* Room for rows x vectors sums. The pointer is opaque: the compiler would think of registers for them. */
#define FX_KEEP(kept, type, rows, vectors)                                                                             \
    type kept##_room[(rows) * (vectors)], *kept = kept##_room;                                                         \
    __asm__("" : "+r"(kept))

/* 1: the tile's first half of columns is folded in odd turns, not in even ones. AVX-512's halves are panels of even and
 * of odd number; elsewhere they are halves of a panel. */
#define FX_FOLD_PHASE(g) (FX_WIDTH == FX_NR ? (int)((g)->c_at / FX_NR & 1) : 0)

#define FX_ADD_KEPT(sum, kept, rows, from, to, vectors)                                                                \
    do {                                                                                                               \
        FX_UNROLL for (int i = 0; i < (rows); i++) FX_UNROLL for (int j = (from); j < (to); j++) sum[i][j] +=          \
            kept[i * (vectors) + j];                                                                                   \
    } while (0)

/* Columns [from, to) go to memory, the first time over what is there, and start again at 0. */
#define FX_FOLD_COLUMNS(sum, kept, rows, from, to, vectors, is_first)                                                  \
    do {                                                                                                               \
        if (!(is_first))                                                                                               \
            FX_ADD_KEPT(sum, kept, rows, from, to, vectors);                                                           \
        FX_UNROLL for (int i = 0; i < (rows); i++) FX_UNROLL for (int j = (from); j < (to); j++) {                     \
            kept[i * (vectors) + j] = sum[i][j];                                                                       \
            sum[i][j] = (__typeof__(sum[i][j])){0};                                                                    \
        }                                                                                                              \
    } while (0)

/* The folds-th fold of a tile, from 0 on. A single vector is a first half. */
#define FX_FOLD(sum, kept, rows, vectors, folds, phase)                                                                \
    do {                                                                                                               \
        if (((folds) ^ (phase)) & 1)                                                                                   \
            FX_FOLD_COLUMNS(sum, kept, rows, ((vectors) + 1) / 2, vectors, vectors, (folds) < 2);                      \
        else                                                                                                           \
            FX_FOLD_COLUMNS(sum, kept, rows, 0, ((vectors) + 1) / 2, vectors, (folds) < 2);                            \
    } while (0)

/* What was folded joins the last run. */
#define FX_UNFOLD(sum, kept, rows, vectors, folds, phase)                                                              \
    do {                                                                                                               \
        if ((folds) > (phase))                                                                                         \
            FX_ADD_KEPT(sum, kept, rows, 0, ((vectors) + 1) / 2, vectors);                                             \
        if ((folds) > 1 - (phase))                                                                                     \
            FX_ADD_KEPT(sum, kept, rows, ((vectors) + 1) / 2, vectors, vectors);                                       \
    } while (0)

/* The block of a tile's depth that is walked at once: the panel's own, or shorter where that makes no difference. */
FX_INLINE int64_t fx_block(const fx_gemm *g) {
    return g->taps > 1 || g->block < FX_GEMM_RUN ? g->block : FX_GEMM_RUN;
}

#endif
