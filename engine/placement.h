/* Which cores compute and which one loads, where they differ (big.LITTLE). */
#ifndef FLEXNN_ENGINE_PLACEMENT_H
#define FLEXNN_ENGINE_PLACEMENT_H

#include <sched.h>

#include "flexnn/cpu.h"

typedef struct fx_placement {
    int is_set; /* 0: threads go where the system puts them */
    cpu_set_t compute, load;
    /* How much finer than for equal cores a step is cut: the slowest of those that compute then delays the end of a
     * step no longer than an equal core would have. 1 to 4. */
    int fineness;
} fx_placement;

/* Places threads from the capacities below root (FX_CORES_ROOT). Only where they differ, and where the process may use
 * every core that is on: in a container, or under taskset, somebody else has decided. Cores of at least half the
 * largest capacity compute if there are enough of them, else all do; a core of the smallest capacity loads. */
fx_placement fx_place_threads(const char *root, const cpu_set_t *allowed, int threads);

#endif
