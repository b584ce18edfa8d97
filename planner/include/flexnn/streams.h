/* Placement of what may come early: slices of weights between blocks whose places and times are fixed. */
#ifndef FLEXNN_STREAMS_H
#define FLEXNN_STREAMS_H

#include "flexnn/interrupt.h"
#include "flexnn/ops.h"

/* Times are steps of a run; runs follow each other without end (docs/architecture.md, D8). Sizes and addresses in
 * bytes. */
typedef struct fx_streams {
    int64_t steps, arena;
    int64_t align;       /* of every slice's address, a power of two */
    int64_t fixed_count; /* blocks that have the same place in every run */
    const int64_t *fixed_start, *fixed_end, *fixed_first, *fixed_last; /* first and last step included */
    int64_t count;              /* slices, in the order in which they are loaded and used */
    const int64_t *bytes, *use; /* each by one step; use never falls */
    const int64_t *forced;      /* the only address of a slice, -1: any */
    const int64_t *stored;      /* step of the run before which a slice is not in the file yet; NULL: all are there */
    int from_top;               /* take the highest of equal places, not the lowest */
    int is_large;               /* thousands of blocks and slices: the same places, found in another way */
    const fx_interrupt *interrupt; /* NULL: nobody cancels */
} fx_streams;

/* Places each slice where memory is free for the longest time before its use; among equals at the lowest address, or
 * the highest. wait_steps[i]: from this step of the run on (negative: of the run before) its place is free, and that of
 * every slice before it. FX_ERR_PARAMS, FX_ERR_MEMORY, FX_ERR_CANCELLED; FX_ERR_BOUNDS if a slice finds no room at its
 * own step. */
fx_status fx_place_streams(const fx_streams *p, int64_t *address, int64_t *wait_steps);

#endif
