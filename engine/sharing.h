/* Which steps are worth sharing. Threads that sleep take long to wake, and a thread that the system puts aside while it
 * holds units keeps the caller waiting. So the engine keeps how long each step takes one thread, and the caller
 * computes short steps alone, and all steps of short runs and, for a while, of runs that took longer because they
 * shared, by more than runs before gained. What a run computes is the same. */
#ifndef FLEXNN_ENGINE_SHARING_H
#define FLEXNN_ENGINE_SHARING_H

#include "workers.h"

/* ns that a step takes one thread, the least of late; 0: not known. */
typedef uint32_t fx_cost;

/* What is known of the runs of a program or recording. */
typedef struct fx_sharing {
    int always;             /* share whatever it costs, for tests */
    int is_worth;           /* share in this run */
    int losses;             /* rests that runs lost by sharing led to, less runs that gained */
    int64_t worth_ns;       /* that the longer steps of this run take one thread, so far; 0: none has run */
    int64_t lost_ns;        /* by sharing, in this run so far; negative: gained */
    int64_t most_ns;        /* that this run may lose before nothing more is shared in it */
    int64_t balance_ns;     /* lost by runs since the last rest, older ones counting less; negative: gained */
    int64_t rests_until_ns; /* nothing is shared before */
} fx_sharing;

/* A run begins or ends. */
void fx_sharing_begin(fx_sharing *s, int64_t now_ns);
void fx_sharing_end(fx_sharing *s, int64_t now_ns);
/* Returns the parts of fx_workers_run for a step, whose units threads would share so many times. */
uint32_t fx_sharing_parts(const fx_sharing *s, fx_cost cost, uint32_t phases);
/* Learns from the step, the workers' last job. */
void fx_sharing_learn(fx_sharing *s, fx_cost *cost, const fx_workers *workers);

#endif
