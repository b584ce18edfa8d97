/* Which bytes of the arena a program uses, and until which step. */
#ifndef FLEXNN_ENGINE_TOUCHES_H
#define FLEXNN_ENGINE_TOUCHES_H

#include "flexnn/engine.h"
#include "sync.h"

enum { FX_ASK_EVERY = 2048 }; /* nodes, steps or ranges between two questions whether the caller cancels */

typedef struct fx_range {
    int64_t lo, hi; /* of the arena; lo >= hi: empty */
} fx_range;

static inline int fx_ranges_meet(fx_range a, fx_range b) {
    return a.lo < b.hi && b.lo < a.hi && a.lo < a.hi && b.lo < b.hi;
}

enum { FX_WORKSPACE = FX_OUTPUT + 1, FX_RANGES };

/* Ranges of the arena that a node touches beside its weights: inputs, output, workspace of all threads. */
typedef struct fx_node_ranges {
    fx_range ranges[FX_RANGES];
} fx_node_ranges;

void fx_node_touches(const fx_node *node, int threads, fx_node_ranges *touched);
/* The panels of a step. */
fx_range fx_step_weights(const fx_program *p, const fx_step *step);

static inline fx_range fx_load_target(const fx_load *load) {
    return (fx_range){load->address, load->address + load->bytes};
}

/* A program's use of the arena: ordered, disjoint ranges. */
typedef struct fx_touch {
    fx_range range;
    uint32_t steps; /* steps of a run after which no step uses it any more */
} fx_touch;

typedef struct fx_touches {
    fx_touch *used;   /* by steps, panels and pinned ranges included */
    fx_range *writes; /* by steps and by loads that are not pinned */
    fx_range *pinned; /* pinned weights, and the zeros */
    int64_t used_count, write_count, pinned_count;
    int64_t bytes; /* of all three */
} fx_touches;

/* The ranges of a program that passes every other check. FX_OK, FX_ERR_MEMORY, or FX_ERR_CANCELLED if poll says so. */
fx_status fx_touches_make(fx_touches *t, const fx_program *p, int threads, fx_poll *poll);
void fx_touches_free(fx_touches *t);

/* Steps of the program that must be done before something else may write a range. */
uint32_t fx_touches_until(const fx_touches *t, fx_range range);
/* Sorts ranges and joins those that overlap or touch; returns how many are left: a list, in order and disjoint. */
int64_t fx_ranges_join(fx_range *ranges, int64_t count);
/* Whether a range has a byte in common with a list. */
int fx_list_meets(const fx_range *list, int64_t count, fx_range range);
/* Whether two lists have a byte in common. */
int fx_lists_meet(const fx_range *a, int64_t a_count, const fx_range *b, int64_t b_count);

#endif
