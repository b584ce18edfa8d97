/* Sums in runs: x86/gemm.c and neon/gemm.h include it. One chain of n products errs by about sqrt(n / 2) roundings of
 * the result. Chains of FX_GEMM_RUN products, each folded into the sums before it, err by the square root of half a run
 * and half the number of runs (Higham, Accuracy and Stability of Numerical Algorithms, 4.2: blocked summation).
 *
 * The sums before it are kept in L1. Half of a tile's columns are folded at a time, every other run: when all were
 * folded at once, the multiply-adds waited for their stores (docs/decisions/0022). Which half a column is in follows
 * from its number alone, so an output is the same to the bit however windows and threads cut the work. */
#ifndef FLEXNN_VEC_RUN_SUMS_H
#define FLEXNN_VEC_RUN_SUMS_H

#include "simd.h"

/* The runs of a half are added to this many sums in turn, whose chains are that much shorter. */
#define FX_KEPT_SETS 4

/* Room for rows x vectors sums of each set. The pointer is opaque, so that the compiler does not put them in
 * registers. */
#define FX_KEEP(kept, type, rows, vectors)                                                                             \
    type kept##_room[FX_KEPT_SETS * (rows) * (vectors)], *kept = kept##_room;                                          \
    __asm__("" : "+r"(kept))

/* 1: the tile's first half of columns is folded in odd turns, not in even ones. AVX-512's halves are panels of even and
 * of odd number; elsewhere they are halves of a panel. */
#define FX_FOLD_PHASE(g) (FX_WIDTH == FX_NR ? (int)((g)->c_at / FX_NR & 1) : 0)

#define FX_ADD_KEPT(sum, set, rows, from, to, vectors)                                                                 \
    do {                                                                                                               \
        FX_UNROLL for (int i = 0; i < (rows); i++) FX_UNROLL for (int j = (from); j < (to); j++) sum[i][j] +=          \
            (set)[i * (vectors) + j];                                                                                  \
    } while (0)

/* Columns [from, to) go to memory, the first time without adding what is there, and start again at 0. */
#define FX_FOLD_COLUMNS(sum, set, rows, from, to, vectors, is_first)                                                   \
    do {                                                                                                               \
        if (!(is_first))                                                                                               \
            FX_ADD_KEPT(sum, set, rows, from, to, vectors);                                                            \
        FX_UNROLL for (int i = 0; i < (rows); i++) FX_UNROLL for (int j = (from); j < (to); j++) {                     \
            (set)[i * (vectors) + j] = sum[i][j];                                                                      \
            sum[i][j] = (__typeof__(sum[i][j])){0};                                                                    \
        }                                                                                                              \
    } while (0)

#define FX_KEPT_SET(kept, rows, vectors, turn) ((kept) + (turn) % FX_KEPT_SETS * ((rows) * (vectors)))

/* The folds-th fold of a tile, from 0 on. A single vector is a first half. */
#define FX_FOLD(sum, kept, rows, vectors, folds, phase)                                                                \
    do {                                                                                                               \
        const uint64_t turn = (uint64_t)(folds) / 2;                                                                   \
        __typeof__(kept) set = FX_KEPT_SET(kept, rows, vectors, turn);                                                 \
        if (((folds) ^ (phase)) & 1)                                                                                   \
            FX_FOLD_COLUMNS(sum, set, rows, ((vectors) + 1) / 2, vectors, vectors, turn < FX_KEPT_SETS);               \
        else                                                                                                           \
            FX_FOLD_COLUMNS(sum, set, rows, 0, ((vectors) + 1) / 2, vectors, turn < FX_KEPT_SETS);                     \
    } while (0)

/* Adds what was folded to the last run. */
#define FX_UNFOLD(sum, kept, rows, vectors, folds, phase)                                                              \
    do {                                                                                                               \
        const int64_t first = ((folds) + 1 - (phase)) / 2, second = (folds) - first;                                   \
        for (int64_t turn = 0; turn < first && turn < FX_KEPT_SETS; turn++)                                            \
            FX_ADD_KEPT(sum, FX_KEPT_SET(kept, rows, vectors, turn), rows, 0, ((vectors) + 1) / 2, vectors);           \
        for (int64_t turn = 0; turn < second && turn < FX_KEPT_SETS; turn++)                                           \
            FX_ADD_KEPT(sum, FX_KEPT_SET(kept, rows, vectors, turn), rows, ((vectors) + 1) / 2, vectors, vectors);     \
    } while (0)

/* The block of a tile's depth that is walked at once: the panel's own, or shorter where that makes no difference. */
FX_INLINE int64_t fx_block(const fx_gemm *g) {
    return g->taps > 1 || g->block < FX_GEMM_RUN ? g->block : FX_GEMM_RUN;
}

#endif
