/* What session.c, loader.c and poison.c share: the session itself. */
#ifndef FLEXNN_SESSION_H
#define FLEXNN_SESSION_H

#include "engine.h"
#include "loader.h"
#include "pool.h"
#include "stored.h"
#include "sync.h"

#include <sys/types.h>

/* Loads of run r may begin while run r - 1 computes, and those of run r + 1 as soon as it is done: so what is kept for
 * each run lies in slot r % FX_RUNS. */
#define FX_RUNS 3

/* fx_session.loader: from PAUSED on nothing is in flight */
enum { FX_LOADER_ACTIVE, FX_LOADER_DRAINING, FX_LOADER_PAUSED, FX_LOADER_FAILED };
enum { FX_COMMAND_GO, FX_COMMAND_PAUSE, FX_COMMAND_STOP }; /* fx_session.command */

struct fx_session {
    fx_program program; /* its arrays lie behind the session, in the same allocation */
    char *arena;
    const fx_kernels *kernels;
    fx_crc_path crc_path; /* asking the CPU takes 10 us in a virtual machine: a panel may have 4 KiB */
    int fd, direct_fd;
    int poison, trace, fresh;
    int64_t read_bytes_per_second;
    int64_t bytes;
    pid_t process; /* threads do not survive a fork */
    fx_placement placement;

    /* The two counters, over all runs. */
    _Alignas(64) _Atomic int64_t loads_done;
    _Alignas(64) _Atomic int64_t steps_done;

    /* Between the caller and the loader's readers. The caller writes command; the loader leaves ACTIVE by itself, and
     * only the caller makes it ACTIVE again. */
    atomic_int command, loader;
    _Atomic int64_t steps_wanted; /* by the loader, so that it is not woken for less */
    fx_event to_loader, to_caller;
    fx_loader loading;
    _Atomic int64_t bytes_read[FX_RUNS];
    fx_span *load_spans; /* [FX_RUNS][load_count], absolute; NULL when not tracing */

    /* The caller's. */
    int64_t run;
    int must_restart; /* the run before was broken off: counters and loader start afresh */
    fx_jitter jitter;
    fx_span *spans;       /* [step_count + load_count]; NULL when not tracing */
    uint8_t *first_steps; /* [step_count], poison only: the step is the first of its node */
    fx_task *tasks;       /* [steps of the largest group] */

    fx_stored_table *tables; /* [table_count] */
    atomic_int table_failed; /* in this run; who sets it fills in: */
    fx_error table_error;    /* os_error, file_offset */

    fx_pool pool;
};

/* `bytes` of the file from `offset` on, with O_DIRECT where file, offset, bytes and target allow it. */
fx_error fx_read(const fx_session *s, char *target, int64_t bytes, int64_t offset);

/* Reads one load into the arena and checks it. interrupted(arg) is asked between pieces; FX_ERR_CANCELLED if so. */
fx_status fx_load_read(fx_session *s, const fx_load *load, int (*interrupted)(void *), void *arg, fx_error *error);

/* 0, or an errno; with fewer readers where the system has no thread for another. */
int fx_loader_start(fx_session *s, uint32_t jitter_seed);
void fx_loader_stop(fx_session *s);

/* Makes the scratch of a step NaN, and before its node's first step the output too, where that harms nobody. */
void fx_poison_step(fx_session *s, const fx_step *step, const fx_call *call);
void fx_poison(void *memory, int64_t bytes);

#endif
