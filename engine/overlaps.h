/* The second half of fx_program_check: what may be written where, and when. */
#ifndef FLEXNN_ENGINE_OVERLAPS_H
#define FLEXNN_ENGINE_OVERLAPS_H

#include "flexnn/engine.h"
#include "sync.h"

/* Whether in a program that is otherwise good
 *   - a node's workspace is apart from its operands (it holds addresses), from pinned weights and from the zeros,
 *   - no output and no load lies over a pinned weight or the zeros,
 *   - no load can run at the same time as a step that touches its target,
 *   - no step of a group writes where another one of it reads or writes.
 * FX_ERR_OVERLAP, FX_ERR_MEMORY, or FX_ERR_CANCELLED if poll says so. */
fx_status fx_program_check_overlaps(const fx_program *p, int threads, fx_poll *poll, fx_error *error);

#endif
