/* A part of fx_program_check: which steps run at the same time, and what they touch. */
#ifndef FLEXNN_ENGINE_GROUPS_H
#define FLEXNN_ENGINE_GROUPS_H

#include "touches.h"

enum { FX_GROUP_PAIRS = 64 };

/* Whether the steps of each group may run at the same time: windows of one node that do not meet, or nodes of which
 * none writes where another reads or writes; a workspace may be shared as a whole. `nodes`: what each node touches.
 * Pairs of steps are compared in groups of up to `most` steps; larger ones are swept, in n log n time. FX_ERR_OVERLAP,
 * which names a node of such a pair, or FX_ERR_MEMORY. */
fx_status fx_groups_check(const fx_program *p, const fx_node_ranges *nodes, uint32_t most, fx_error *error);

#endif
