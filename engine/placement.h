/* Which cores compute and which one loads, where cores differ (big.LITTLE). */
#ifndef FLEXNN_ENGINE_PLACEMENT_H
#define FLEXNN_ENGINE_PLACEMENT_H

#include <pthread.h>
#include <sched.h>

#include "flexnn/cpu.h"

typedef struct fx_placement {
    int is_set; /* 0: threads go where the system puts them */
    cpu_set_t compute, load;
    /* How many times finer a step is cut than for equal cores, 1 to 4: the slowest core that computes then delays the
     * end of a step no longer than an equal core would. */
    int fineness;
} fx_placement;

/* Places threads by the capacities below root (FX_CORES_ROOT), if cores differ and the process may use every core that
 * is on: in a container or under taskset the placement is already decided. Cores of at least half the largest capacity
 * compute if there are enough of them, else all do; a core of the smallest capacity loads. */
fx_placement fx_place_threads(const char *root, const cpu_set_t *allowed, int threads);

/* The CPUs of a thread that keeps off the CPU of the one that wakes it. */
typedef struct fx_apart {
    cpu_set_t all, left; /* that it may use; those it was last set to: without the other's CPU, or that alone */
} fx_apart;

/* Keeps the thread off a CPU, whose thread wakes it and goes on computing, unless it may use no other. Linux wakes it
 * there, and leaves it there waiting, if it takes idle CPUs for busy ones: in a virtual machine whose host has put an
 * idle CPU aside. What others set meanwhile as the thread's CPUs stays in force. */
void fx_keep_off(fx_apart *apart, pthread_t thread, int cpu);

/* Has a thread that keeps off a CPU go on there until fx_keep_off is called again, if it may use it. */
void fx_fetch(fx_apart *apart, pthread_t thread, int cpu);

#endif
