/* Programs for other sizes: a program that was planned once runs the same nodes at other sizes, with the same weights
 * in the same places. What sizes decide is computed again: parameters, windows, places of activations and workspaces.
 */
#ifndef FLEXNN_REFIT_H
#define FLEXNN_REFIT_H

#include "flexnn/engine.h"

/* An operand that moves with its tensor. word: of its offset, counted in 64 bits from the first node; root: number of
 * the block, root_count where its root has no place in the working part. */
typedef struct fx_moved {
    int32_t word, tensor, root;
} fx_moved;

/* A planned program. Blocks of the working part are the roots, then the workspaces of `working`. */
typedef struct fx_refit {
    const fx_node *nodes;
    const fx_step *steps;
    const int32_t *step_counts; /* of each node */
    uint32_t node_count, step_count;
    const int64_t *offsets; /* bytes from the start of its root's storage to each tensor */
    uint32_t tensor_count;
    const int32_t *roots; /* tensors */
    const int64_t *room;  /* bytes of each root */
    uint32_t root_count;
    const int32_t *working; /* nodes that may have a workspace, in rising order */
    uint32_t working_count;
    const int64_t *places; /* of each block, from the start of the working part */
    const fx_moved *moved;
    uint32_t moved_count;
    int64_t base; /* where the working part begins */
    int64_t zeros_count;
    int threads;
    int is_pinned; /* it reads nothing while it runs, so blocks may have other places */
} fx_refit;

/* Other sizes. chosen: nodes that get other kernels and tile blocks than the plan's. */
typedef struct fx_sizes {
    const fx_params *params; /* [node_count] */
    const int64_t *nbytes;   /* [tensor_count], as the next */
    const int64_t *offsets;
    const int32_t *chosen, *kernels, *tile_blocks;
    uint32_t chosen_count;
} fx_sizes;

/* How tensors of another graph are the plan's: order [tensor_count]: the tensor of the other that each of the plan's
 * is; also: pairs of tensors of the other that the plan has in one, so they must be as large and in the same place. */
typedef struct fx_likeness {
    const int64_t *order;
    const int64_t *also; /* first those of the first column, then those of the second */
    uint32_t pair_count;
    uint32_t count; /* tensors of the other graph */
} fx_likeness;

/* Fills bytes and offsets of the plan's tensors from those of the other graph. *fits: whether pairs are the same.
 * FX_ERR_PARAMS: an index is out of range. */
fx_status fx_refit_order(const fx_refit *r, const fx_likeness *l, const int64_t *nbytes, const int64_t *offsets,
                         int64_t *own_nbytes, int64_t *own_offsets, int *fits);

/* Whether all indices are in range: FX_OK or FX_ERR_PARAMS. All else must have accepted the refit. */
fx_status fx_refit_check(const fx_refit *r);
/* Fills nodes, but for places, and the bytes of all blocks. *fits: whether the plan serves these sizes, as far as can
 * be told without places. FX_ERR_PARAMS: an index of sizes is out of range. */
fx_status fx_refit_nodes(const fx_refit *r, const fx_kernels *k, const fx_sizes *s, fx_node *nodes, int64_t *blocks,
                         int *fits);
/* Fills places into nodes that fx_refit_nodes filled, and steps. places: of each block, from the start of the working
 * part; those of a refit that is not pinned are its own. Returns the bytes of the working part; -1: 64 bits are too
 * few.
 */
int64_t fx_refit_places(const fx_refit *r, const fx_sizes *s, const int64_t *blocks, const int64_t *places,
                        fx_node *nodes, fx_step *steps);

/* Number of 32-bit words in which these nodes and steps differ from the plan's (fx_edit). */
int64_t fx_refit_edits(const fx_refit *r, const fx_node *nodes, const fx_step *steps);

/* Tables of a program that move to other addresses: what lies below arena offset `split` by `front` bytes, the rest by
 * `rest`; where the program pins, and where it loads, in whole. */
typedef struct fx_movable {
    fx_node *nodes;
    uint32_t node_count;
    fx_step *steps;
    uint32_t step_count;
    fx_load *pinned;
    uint32_t pinned_count;
    fx_load *loads;
    uint32_t load_count;
} fx_movable;

void fx_relocate(const fx_movable *p, int64_t split, int64_t front, int64_t rest);

#endif
