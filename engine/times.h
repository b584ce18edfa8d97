/* A part of fx_program_check: when loads may run, and what steps touch meanwhile. */
#ifndef FLEXNN_ENGINE_TIMES_H
#define FLEXNN_ENGINE_TIMES_H

#include "touches.h"

enum { FX_PAIRS_EACH = 32 };

/* Whether no load can run at the same time as a step that touches its target. `nodes`: what each node touches. Up to
 * `pairs_max` pairs of a load and a step are compared; where there are more, the last touch of each place is kept.
 * Takes n log n time where pairs_max is FX_PAIRS_EACH times loads and steps: pairs of steps and loads that meet in time
 * are few in most programs, but may be all. FX_ERR_OVERLAP, FX_ERR_MEMORY, or FX_ERR_CANCELLED if poll says so. */
fx_status fx_times_check(const fx_program *p, const fx_node_ranges *nodes, int64_t pairs_max, fx_poll *poll,
                         fx_error *error);

/* Writes an error that is about a load or, where that is NULL, about a node; returns its status. */
fx_status fx_overlap_error(fx_error *error, fx_status status, int64_t index, const fx_load *load);

#endif
