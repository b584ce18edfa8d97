/* What fx_fluid_bound takes of each node, from the tables that drafts are made of. */
#ifndef FLEXNN_BOUND_TERMS_H
#define FLEXNN_BOUND_TERMS_H

#include "flexnn/draft.h"

/* Of each node, as in fx_fluid. */
typedef struct fx_bound_terms {
    double *seconds, *read_s, *byte_s;
    int64_t *bytes, *free_bytes;
} fx_bound_terms;

/* Fills the terms of all nodes for an arena of so many bytes, without what is always pinned; negative: no limit
 * (flexnn/planning/bound.py, 4 and 5). */
void fx_bound_terms_of(const fx_problem *p, int64_t arena_bytes, const fx_bound_terms *terms);

#endif
