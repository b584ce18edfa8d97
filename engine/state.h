/* What protocol.c, engine.c, bind.c, edits.c, seal.c, pinned.c, run.c, loader.c, recording.c, tape.c and poison.c
 * share: the engine and its bound programs. */
#ifndef FLEXNN_ENGINE_STATE_H
#define FLEXNN_ENGINE_STATE_H

#include "arena.h"
#include "flexnn/engine.h"
#include "flexnn/recording.h"
#include "loader.h"
#include "process.h"
#include "read.h"
#include "seal.h"
#include "sharing.h"
#include "spill.h"
#include "sync.h"
#include "table_rows.h"
#include "touches.h"
#include "workers.h"

/* Loads of announced turns may begin while a turn computes, and the next turn is announced as soon as that one is done.
 * So the data of a turn lie in slot turn % FX_RUNS. */
#define FX_RUNS (FX_AHEAD_MAX + 2)
#define FX_PREDECESSORS 4

/* fx_engine.loader. In PAUSED and FAILED nothing is in flight. */
enum { FX_LOADER_ACTIVE, FX_LOADER_DRAINING, FX_LOADER_PAUSED, FX_LOADER_FAILED };
enum { FX_COMMAND_GO, FX_COMMAND_PAUSE, FX_COMMAND_STOP }; /* fx_engine.command */

/* Steps of a program that the loads of the next one wait for. */
typedef struct fx_after {
    const fx_bound *before; /* NULL: unused */
    uint32_t *steps;        /* [load_count]: steps of `before` that must be done */
} fx_after;

/* A run, and where the counters stand when it begins. */
typedef struct fx_announced {
    fx_bound *bound;
    int64_t steps, loads;
} fx_announced;

/* A word in which the nodes or the steps of a program differ from its owner's. */
typedef struct fx_edit {
    uint32_t at; /* counted from the owner's first node; its steps lie behind its nodes */
    uint32_t word;
} fx_edit;

/* Its arrays lie behind it, in the same allocation; or they are those of its owner, but for io_bytes, and behind it lie
 * its edits. Then they are its own numbers while it is shown. */
struct fx_bound {
    fx_engine *engine;
    fx_bound *others; /* next in the engine's list */

    /* From here to the seal nothing changes while it is bound. */
    fx_program program;
    fx_bound *owner;         /* NULL: its arrays are its own */
    fx_edit *edits;          /* while it is shown: the words of the owner */
    int64_t edit_count;      /* of an owner 0 */
    char *records;           /* the first node */
    uint32_t *waits;         /* [FX_RUNS][load_count]: fx_turn.after */
    fx_span *load_spans;     /* [FX_RUNS][load_count], absolute; NULL when not tracing */
    fx_span *spans;          /* [step_count + load_count]; NULL when not tracing */
    fx_span *lanes;          /* [step_count][threads]; NULL when not tracing threads */
    fx_span *stalls;         /* [step_count + 1]; NULL when not tracing threads */
    uint8_t *first_steps;    /* [step_count], poison only: the step is the first of its node */
    fx_task *tasks;          /* [steps of the largest group] */
    fx_cost *costs;          /* [group_count, or step_count without groups] */
    fx_stored_table *tables; /* [table_count] */
    fx_spill_store *stores;  /* [steps of the largest group]; NULL without spills */
    uint32_t *spill_crcs;    /* [spill_crc_count], of the rows stored in this run */
    fx_seal seal;

    fx_touches touches; /* sealed, too */
    int64_t bytes;      /* of this allocation and of the lists in touches */
    int is_damaged;     /* its seal is broken */
    fx_bound *shown;    /* of an owner: whose words its arrays have; NULL: its own */
    int64_t sharers;    /* of an owner */
    fx_after after[FX_PREDECESSORS];
    uint32_t after_next; /* the entry to replace next */
    fx_sharing sharing;  /* of runs by itself */
};

/* A run as the loader sees it. Runs of programs without loads are no turns. */
typedef struct fx_turn {
    fx_bound *bound;
    int64_t steps, loads;  /* the counters when it begins */
    int repeats;           /* the run before is of the same program */
    int64_t before;        /* steps_done at the start of the oldest run that was not done when it was announced; */
    const uint32_t *after; /* how many steps from there each load waits for; NULL: all before its own run */
} fx_turn;

/* Checked bytes of a file that the arena holds: pinned weights of a bound program or of one unbound since. */
typedef struct fx_pinned_range {
    int fd;
    int64_t file_offset, bytes, address;
} fx_pinned_range;

struct fx_engine {
    fx_bound *bound;
    fx_bound *unbound; /* owners that were unbound before those that share their arrays */
    fx_recording *recordings;
    const fx_recording *stopped; /* whose run may go on: nothing has run and the arena has not moved since */
    fx_arena arena;
    fx_pinned_range *pinned; /* ranges of files that the arena holds */
    int64_t pinned_count;
    const fx_kernels *kernels;
    fx_crc_path crc_path;
    int direct;
    int poison, trace, fresh;
    int is_loose; /* there is no budget: freed heap and some arena may stay, as they are soon needed again */
    uint32_t jitter_seed;
    uint64_t draws; /* the run's number: random numbers without a seed of the model's depend on it */
    int64_t read_bytes_per_second;
    fx_process process; /* the one that opened the engine: threads do not survive a fork */
    fx_placement placement;

    /* The two counters, over all runs. */
    _Alignas(64) _Atomic int64_t loads_done;
    _Alignas(64) _Atomic int64_t steps_done;

    /* Between the caller and the loader's readers. The caller writes command; the loader leaves ACTIVE by itself, and
     * only the caller makes it ACTIVE again. The caller writes turns, then turns_known. */
    atomic_int command, loader;
    _Atomic int64_t steps_wanted; /* steps_done that the loader waits for; it is not woken before */
    atomic_int turn_wanted;
    _Atomic int64_t turns_known;
    fx_turn turns[FX_RUNS];
    fx_event to_loader, to_caller;
    int has_loader;
    fx_loader loading;
    _Atomic int64_t bytes_read[FX_RUNS];

    /* The caller's. */
    int64_t turn;                     /* of the current or next run, if its program has loads */
    fx_announced ahead[FX_AHEAD_MAX]; /* runs whose loads may have begun, in order */
    uint32_t ahead_count;
    int must_restart; /* a run was broken off, or the arena changed: the loader starts afresh */
    int is_suspect;   /* something failed: seals are checked before the next run, weights before they are kept */
    fx_jitter jitter;

    /* Rows of tables that steps read in this run, and rows of activations that they stored. */
    _Atomic int64_t table_bytes_read, bytes_written;
    atomic_int step_failed; /* the first thread that sets it fills in */
    fx_error step_error;    /* os_error, file_offset, is_write */

    fx_file *left; /* by a caller that closed the engine while readers read */
    uint32_t left_count;

    fx_workers workers;
    fx_sharing *sharing; /* of the run under way */
};

/* Starts the readers, or fewer of them where the system has no threads left. 0, or an errno. */
int fx_loader_start(fx_engine *e);
/* Stops the readers. may_abandon: waits about 10 ms for those that read; returns whether all have stopped. */
int fx_loader_stop(fx_engine *e, int may_abandon);
/* Leaves the engine, with so many files, to readers that still read: the last one frees it. Returns 0 if all have
 * stopped meanwhile. */
int fx_loader_abandon(fx_engine *e, uint32_t file_count);
/* Frees an engine whose threads have stopped; closes the files that were left to it. */
void fx_engine_free(fx_engine *e);

/* Lets the loader finish its requests and rest; the next run starts it afresh. FX_ERR_CANCELLED if poll says so. */
fx_status fx_loader_pause(fx_engine *e, fx_poll *poll);
/* Asks the loader to rest and does not wait. */
void fx_loader_ask_to_pause(fx_engine *e);
/* Whether nothing is being read; arg: the engine. */
int fx_loader_rests(const void *arg);
/* Wakes the loader from its rest. */
void fx_loader_resume(fx_engine *e);

/* Reads and checks one load of a program, of no run, while the loader rests. A reader waits for the device: poll is
 * asked meanwhile. FX_ERR_CANCELLED: the loader rests when the read that goes on is done. */
fx_status fx_loader_read(fx_engine *e, const fx_program *p, const fx_load *load, fx_poll *poll, fx_error *error);

/* For a caller that waits for a load: it reads the next request itself if the page cache holds it, and returns whether
 * it did. So one thread works on each CPU, and none waits for the system to move it. */
int fx_loader_help(fx_engine *e);
/* The same, but only if nobody reads anything now. */
int fx_loader_help_alone(fx_engine *e);
/* The same for workers, where steps leave no CPU to the readers: a reader would put a worker aside that holds units,
 * and all threads would wait for both. engine: fx_spare.arg. */
int fx_loader_spare(void *engine);

/* The program whose arrays a program has: itself, or another. */
static inline fx_bound *fx_owner(fx_bound *b) {
    return b->owner ? b->owner : b;
}
/* Returns a copy of a program, *bytes long, that shares the arrays of a bound one; its ranges are still those of its
 * owner. NULL: none is alike, or there is no memory. */
fx_bound *fx_edits_make(fx_engine *e, const fx_program *p, int64_t *bytes);
/* Makes the nodes and steps that a program shares its own; so does each run. */
void fx_edits_show(fx_bound *b);
/* Frees a program that is in no list; its arrays stay as long as others share them. */
void fx_edits_free(fx_bound *b);

/* fx_program_check; FX_ERR_CANCELLED if poll says so. */
fx_status fx_program_check_asking(const fx_program *p, int threads, const fx_kernels *k, fx_poll *poll,
                                  fx_error *error);

/* Whether two programs have the same pinned weights, of one file, and zeros in the same places. */
int fx_share_pins(const fx_program *a, const fx_program *b);
/* Brings the pinned weights of a program to their places and updates the list of ranges that the arena holds. */
fx_status fx_pinned_bring(fx_engine *e, const fx_program *p, const fx_touches *touches, fx_poll *poll,
                          fx_bind_stats *stats, fx_error *error);
/* Drops the ranges beyond the first arena_bytes of the arena. */
void fx_pinned_cut(fx_engine *e, int64_t arena_bytes);
/* Drops the ranges of a file. */
void fx_pinned_leave(fx_engine *e, int fd);
/* Drops the ranges that meet another, which something will write. */
void fx_pinned_drop(fx_engine *e, fx_range range);
/* Returns the memory around the pinned ranges to the system. */
void fx_pinned_forget_others(fx_engine *e);

/* Grows the arena to at least `bytes`; its contents stay. */
fx_status fx_engine_grow(fx_engine *e, int64_t bytes, fx_error *error);
/* Gives the heap's free memory back, if there is a budget. */
void fx_engine_trim_heap(const fx_engine *e);

/* One run of a program; the arena does not change meanwhile. After an error the loader has been asked to pause. */
fx_status fx_run_bound(fx_bound *b, void *const *buffers, fx_bound *const *next, uint32_t next_count, fx_poll *poll,
                       fx_run_stats *stats, fx_error *error);

/* Keeps why a step's reading or writing failed, where none has failed before; returns the error's status. */
fx_status fx_step_fail(fx_engine *e, fx_error error);

/* Checks all of a tape: FX_ERR_PARAMS, FX_ERR_OVERLAP. */
fx_status fx_tape_check(const fx_engine *e, const fx_tape *t, fx_error *error);
/* The last entry that goes back to a TURN; the TURN itself: none does. */
uint32_t fx_tape_loop_end(const fx_tape *t, uint32_t turn);
int fx_tape_has_holders(const fx_tape *t);
/* Sets a bit for each holder, in the order of their loops: `inside`, of the entries of its loop; `spoils`, of the
 * programs whose loads write over what it brings. */
void fx_tape_note_holders(const fx_tape *t, uint64_t *inside, uint64_t *spoils);
/* The part of the arena from its first slot to its last; lo >= hi: none. */
fx_range fx_tape_slots(const fx_tape *t);
/* Whether a program has pinned weights where slots lie, or writes there. Its loads count, too: those of any program may
 * go on when a recording begins. */
int fx_slots_meet(fx_range slots, const fx_touches *touches);

/* Whether a program meets the slots of a recording so. */
int fx_recordings_meet(const fx_engine *e, const fx_touches *touches);
/* Makes the recordings that run a program refuse to run. */
void fx_recordings_break(const fx_bound *b);
/* Bytes of the arena up to the last slot; bytes outside it. Of all recordings. */
int64_t fx_recordings_arena(const fx_engine *e);
int64_t fx_recordings_bytes(const fx_engine *e);

/* Whether the seals of all recordings are whole. */
int fx_recordings_are_whole(fx_engine *e);

/* Fills the workspace of a step with NaNs, and before its node's first step the output too, where no other tensor's
 * values lie in it. */
void fx_poison_step(const fx_bound *b, const fx_step *step, const fx_call *call);
void fx_poison(void *memory, int64_t bytes);

/* Takes bytes for an array from an allocation; only counts them while memory is NULL. */
static inline void *fx_carve(char *memory, int64_t *used, int64_t bytes) {
    int64_t at = *used;
    *used = (at + bytes + 63) / 64 * 64;
    return memory ? memory + at : NULL;
}

static inline fx_status fx_fail(fx_error *error, fx_status status, int os_error) {
    *error = (fx_error){.status = status, .os_error = os_error, .index = -1};
    return status;
}

#endif
