/* The compute threads: the caller and threads - 1 workers share the units of one group of steps after the other. */
#ifndef FLEXNN_ENGINE_WORKERS_H
#define FLEXNN_ENGINE_WORKERS_H

#include "flexnn/engine.h"
#include "placement.h"
#include "sync.h"

#define FX_SHARED_UNITS (1u << 24) /* units of a job that threads share are fewer */
#define FX_ALONE_PARTS 8           /* of a long step that one thread computes, so that it notices a cancel */

typedef struct fx_workers fx_workers;

typedef struct fx_worker {
    fx_workers *workers;
    pthread_t thread;
    int number; /* from 1; the caller is 0 */
    fx_apart apart;
    atomic_int computes; /* it may have taken units that are not done */
    fx_jitter jitter;
} fx_worker;

typedef struct fx_task {
    fx_call call; /* workspace is thread 0's; that of thread t lies t * workspace_bytes further on */
    int64_t workspace_bytes;
    fx_phases phases;    /* of the operator, for threads that share it; count is 0 or 1: none */
    uint32_t units, end; /* end: units of this task and those before it in the job */
} fx_task;

/* What workers do that have nothing to compute. */
typedef struct fx_spare {
    int (*use)(void *arg);          /* does one thing; 0: there is nothing to do before *changes is another number */
    const _Atomic int64_t *changes; /* who writes it notifies fx_workers.work */
    void *arg;
} fx_spare;

struct fx_workers {
    /* generation | most units at once | units handed out from the end | units not yet handed out (protocol.c). A unit
     * taken by a successful compare-and-swap belongs to the job that stands there now, and the job stays until all its
     * units are done: so a worker that wakes late finds either nothing to take or a valid job, and nobody waits for
     * workers that sleep. */
    _Alignas(64) _Atomic uint64_t ticket;
    _Alignas(64) _Atomic uint32_t done; /* units of the job */
    _Atomic uint32_t status;            /* first failure in the job */
    _Alignas(64) const fx_task *tasks;  /* the job */
    fx_span *lanes;                     /* of the job; NULL where threads are not traced */
    uint32_t task_count;
    uint32_t units, wanted; /* wanted: units that will be done, fewer than units once cancelled */
    uint32_t generation;
    int threads;     /* the caller among them */
    int cut_threads; /* for how many equal threads steps are cut into units */
    int64_t spin_ns;
    int caller_cpu; /* that workers keep off, as last seen; negative: none, or not all of them */
    atomic_int stopping;
    fx_spare spare; /* use is NULL: nothing */
    fx_event work, finished;
    fx_jitter jitter;
    /* The last job. */
    fx_span last;     /* from its start to its end */
    int64_t alone_ns; /* that it takes one thread: measured, or by the caller's part of it; 0: not known */
    int was_shared;
    fx_worker list[FX_MAX_THREADS];
};

/* Starts up to threads - 1 workers; workers->threads says how many threads compute. 0, or an errno. The caller's thread
 * is not placed: it is not ours, and the system moves a busy thread to a big core by itself. spare: NULL, or what
 * workers do before they sleep and before each job. */
int fx_workers_start(fx_workers *workers, int threads, const fx_placement *placement, uint32_t jitter_seed,
                     const fx_spare *spare);
void fx_workers_stop(fx_workers *workers);

/* Keeps workers off the caller's CPU, where there are as many CPUs as threads: at the start of a run, before any is
 * woken, and after one was fetched. */
void fx_workers_keep_apart(fx_workers *workers);

/* The phases that threads which share the tasks compute one after the other; 1: none of them has phases. */
int32_t fx_workers_phases(const fx_task *tasks, uint32_t count);

/* Runs all units of all tasks; sets the tasks' units and end, and what is known of the last job. parts is 0: all
 * threads share them, phase after phase where an operator has them; else the caller computes them alone, and polls
 * after each of so many parts. FX_ERR_CANCELLED if poll says so: units not yet begun are then left out. FX_ERR_PARAMS
 * if there are too many units. lanes, if not NULL: [threads] zeros, which become the span in which each thread
 * computed. */
fx_status fx_workers_run(fx_workers *workers, fx_task *tasks, uint32_t count, uint32_t parts, fx_span *lanes,
                         fx_poll *poll);

/* Starts a thread with a small stack and all signals blocked, on one of the cores (NULL: any). 0, or an errno. */
int fx_thread_start(pthread_t *thread, void *(*body)(void *), void *arg, const char *name, const cpu_set_t *cores);
int64_t fx_thread_stack_bytes(void);

#endif
