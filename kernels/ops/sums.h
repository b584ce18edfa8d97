/* Sums of integers' products in int32. Tiles of many rows multiply pairs of int16 where a level has that kernel. All
 * else is left to the kernels that multiply floats. A float holds every integer up to 2^24, so a sum of so few products
 * that none of its parts can be larger is exact in whatever order they are added. A longer sum is cut into such parts.
 * They are added as integers and wrap as those do.
 *
 * Operands are integers of at most 255 in size: 8 bits less a zero point. Those of S8 weights are at most 128. */
#ifndef FLEXNN_OPS_SUMS_H
#define FLEXNN_OPS_SUMS_H

#include "conv_common.h"

/* Most products of a part, of operands of 255 and of `most`. */
#define FX_EXACT_TERMS(most) ((1 << 24) / (255 * (most)))

/* 1 if sums is F32, or I32 of an operator without activation and residual. */
int fx_sums_fit(int32_t sums, int32_t act, int32_t has_residual);

/* A part of a panel's depth [block][tap][q of block], at most `terms` products: taps of it from `tap` on, k channels of
 * each from `at` on, in blocks of `block`; `weight` is the place of its first weight, in weights of one column. */
typedef struct fx_part {
    int32_t all_taps, all_k, all_block, terms; /* given; the rest is 0 at first */
    int32_t tap, taps, at, k, block;
    int64_t weight;
    int32_t first, wide; /* the block of the panel that it is in */
} fx_part;

/* Goes on to the next part, from none to the first; 0 if there is none. */
int fx_next_part(fx_part *p);

/* Room for the floats of one part: a tile of rows, `columns` apart. */
typedef struct fx_part_tile {
    float *floats; /* [rows][columns] */
    float **row;   /* [rows] */
    int32_t columns;
} fx_part_tile;

/* Operands as pairs of int16, in a workspace: rows of a tile, and the panels of a unit. */
typedef struct fx_pairs {
    int16_t *rows, *panels; /* NULL where the level has no such kernel */
    int64_t row, panel;     /* int16 of each */
} fx_pairs;

/* Lays out pairs of products `depth` deep at `at` bytes from base, and moves `at` past them. */
fx_pairs fx_pairs_at(void *base, int64_t *at, const fx_kernels *k, int64_t depth, int64_t panels);

/* The rows of g's tile, at its a_at. */
void fx_pair_rows(const fx_kernels *k, const fx_gemm *g, const fx_pairs *s);

/* Panel i of the workspace, of `depth` rows of floats. */
void fx_pair_panel(const fx_kernels *k, const float *from, int64_t depth, const fx_pairs *s, int64_t i);

/* gemm_f32 whose sums are int32, of pairs: g's rows as they were laid out last, panels from the workspace's i on. Where
 * g has an r, that is c, and they are added to what is there. */
void fx_gemm_pairs(const fx_kernels *k, const fx_gemm *g, const fx_pairs *s, int64_t i);

/* gemm_f32 whose sums are int32, at g's c; where it has an r, that is c, and they are added to what is there. Biases
 * are not read. */
void fx_gemm_sums(const fx_kernels *k, const fx_gemm *g, int32_t terms, const fx_part_tile *tile);

/* y[i] = (is_more ? y[i] : 0) + x[i] for i < n. */
void fx_add_sums(const float *x, int32_t *y, int64_t n, int is_more);

/* Rows of n floats, row_step apart, become int32. */
void fx_round_rows(float *rows, int64_t count, int64_t row_step, int64_t n);

#endif
