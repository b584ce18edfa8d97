/* The protocol of caller, workers and readers: every transition of what they share, and no system call. Its only doors
 * to the system are the mutex and the events that it is given (sync.h). workers.c, loader.c, run.c and recording.c call
 * it and do the rest: threads, reads, clocks, kernels. tests/engine/protocol/checker.c explores its interleavings. */
#ifndef FLEXNN_ENGINE_PROTOCOL_H
#define FLEXNN_ENGINE_PROTOCOL_H

#include "state.h"

/* ---- the job of the compute threads ---- */

/* Makes the units of tasks, whose ends are set, the job. Nothing of the job before goes on. */
void fx_job_set(fx_workers *workers, const fx_task *tasks, uint32_t count, uint32_t units, fx_span *lanes);
/* Offers the job's units to all threads. */
void fx_job_offer(fx_workers *workers);
/* Takes units: a fraction of what is left, so that the last ones are small. 0: nothing left. Threads of odd numbers
 * take them from the end, so that two threads compute about the same parts in each step, which then are in their
 * caches. */
uint32_t fx_job_take(fx_workers *workers, int number, uint32_t *first);
/* A thread has done units that it took. From here on the job may be the next one. */
void fx_job_finish(fx_workers *workers, uint32_t count, fx_status status);
/* Takes back what no thread has taken: the job is done when the units that are being computed are. */
void fx_job_withdraw(fx_workers *workers);
int fx_job_waits(const void *workers);   /* whether there are units to take, or nothing will come any more */
int fx_job_is_done(const void *workers); /* whether all units that will be done are */

/* ---- the readers; all with the loader's mutex locked ---- */

/* What a thread waits for: so many steps done, requests retired, runs known; INT64_MAX: not for that. */
typedef struct fx_awaited {
    fx_engine *e;
    int64_t steps, retired, turns;
} fx_awaited;

int fx_reader_may_go_on(const void *awaited); /* after FX_READER_WAITS */
int fx_reader_is_resumed(const void *awaited);

typedef enum fx_reader_act {
    FX_READER_STOPS,
    FX_READER_BEGINS, /* reads a request that begins here: its place may be poisoned */
    FX_READER_READS,  /* reads a request that a compute thread has left, or one of no run */
    FX_READER_WAITS,  /* until fx_reader_may_go_on */
    FX_READER_RESTS,  /* until fx_reader_is_resumed, then fx_reader_resumes */
    FX_READER_LOOKS,  /* again */
} fx_reader_act;

fx_reader_act fx_reader_next(fx_engine *e, fx_request **request, fx_awaited *w);
void fx_reader_resumes(fx_engine *e);
/* A reader has read, and waited for the device or not. The mutex may be unlocked. */
void fx_reader_waited(fx_engine *e, int has_slept);
/* Whether this was the last reader. */
int fx_reader_goes(fx_engine *e);

/* Requests retire in order, in one thread at a time. 0: another thread is retiring, and looks again. */
int fx_retire_begin(fx_engine *e);
/* The oldest request, if it has arrived; NULL: none to retire now, and another thread may begin to. */
fx_request *fx_retire_next(fx_engine *e);
/* Retires it, read and checked; or the loader drains, for the error. */
void fx_retire(fx_engine *e, const fx_request *request, fx_error error);
/* The load that a request is part of. */
const fx_load *fx_request_load(const fx_engine *e, const fx_request *request);

/* ---- the help of compute threads; with the mutex locked ---- */

/* Begins the next request for a compute thread, or NULL. */
fx_request *fx_help_begin(fx_engine *e);
/* The thread would have to wait for the device: the request is a reader's to read. */
void fx_help_leave(fx_engine *e, fx_request *request);
/* The thread holds no request any more. */
void fx_help_end(fx_engine *e);

/* ---- the caller and the loader's rest ---- */

/* Has a reader read a request of no run while the loader rests. The mutex is locked. */
void fx_ask(fx_engine *e, const fx_request *request);
/* The readers end. */
void fx_stop(fx_engine *e);
int fx_has_gone(const void *engine); /* whether they have */

/* ---- turns: runs as the loader sees them; the caller's ---- */

/* Whether the loader must rest and start afresh before this run: a run was broken off, the arena changed, a read
 * failed, or another program was announced than this one. */
int fx_turns_must_restart(fx_engine *e, const fx_bound *b);
/* Forgets all turns, while the loader rests. */
void fx_turns_restart(fx_engine *e);
/* Tells the loader of this run and of those to come, and wakes it. */
void fx_turns_announce(fx_bound *b, fx_bound *const *next, uint32_t next_count);
/* What loads_done was when this turn began. */
int64_t fx_turn_loads(const fx_bound *b);
void fx_turn_end(const fx_bound *b);

/* The caller has done `count` steps more. */
void fx_steps_finish(fx_engine *e, uint32_t count);

/* The caller waits until so many loads are done. */
typedef struct fx_need {
    const fx_engine *e;
    int64_t loads;
    int64_t seen; /* of them */
} fx_need;

int fx_has_loads(const void *need);
int fx_has_more_loads(const void *need);

#endif
