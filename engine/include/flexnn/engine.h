/* The engine: runs programs over one arena, with a loader thread and compute threads.
 *
 * A program is made of nodes (what is computed), steps (which window of a node, in order) and loads (which bytes of the
 * file go where, in order). Two monotone counters synchronise them, over all runs of all programs of an engine. In a
 * run that begins when s steps and l loads are done or planned,
 *
 *     step j starts when loads_done >= l + step[j].wait_loads, where 0 <= wait_loads <= L;
 *     load i starts when steps_done >= s + load[i].wait_steps, where -S <= wait_steps < S.
 *
 * A wait_steps below 0 means the tail of the run before. Where the run before is of another program, a load with
 * wait_steps <= 0 starts when no step still to come, of that run and of those before it, touches its target
 * (fx_touches). Steps run one after the other, each by all threads; loads one after the other. Pinned loads are done
 * once, by fx_bind.
 *
 * A program may also run its steps in groups, one group after the other: the units of all steps of a group are handed
 * to the threads together. A group starts when the loads that any of its steps waits for are done, and steps_done
 * counts its steps when all of them are done.
 */
#ifndef FLEXNN_ENGINE_H
#define FLEXNN_ENGINE_H

#include "flexnn/interrupt.h"
#include "flexnn/ops.h"

#define FX_AHEAD_MAX 2     /* runs that may be announced while one goes on */
#define FX_BASE_ARENA 0    /* operand base: 0 is the arena, 1 + i the i-th input/output buffer, inputs first */
#define FX_BASE_FILE (-2)  /* a gather's table, which stays in the file: offset is its index in fx_program.tables */
#define FX_BASE_SPILL (-3) /* a copy's output, which goes to the spill file: offset counts from its start */
#define FX_SPILL_FROM ((int64_t)1 << 46) /* file offsets of loads from here on are those of the spill file */
#define FX_DIRECT_ALIGN ((int64_t)4096)  /* of offset, bytes and target of a read with O_DIRECT */

/* The records that Python fills, an array of each (flexnn/record.h). */

/* Where an operand lies. base: -1: absent; offset: bytes from there. */
#define FX_PLACE_FIELDS(F, A, R) F(R, int32_t, base) F(R, int32_t, unused) F(R, int64_t, offset)
FX_RECORD(fx_place, FX_PLACE_FIELDS);

/* workspace_offset: arena offset of the workspace of thread 0; that of thread t begins t * workspace_bytes later. Both
 * are multiples of 64. */
#define FX_NODE_FIELDS(F, A, R)                                                                                        \
    F(R, uint32_t, op)                                                                                                 \
    F(R, uint32_t, kernel)                                                                                             \
    A(R, fx_place, in, FX_MAX_INPUTS)                                                                                  \
    F(R, fx_place, out)                                                                                                \
    F(R, int64_t, workspace_offset)                                                                                    \
    F(R, int64_t, workspace_bytes)                                                                                     \
    F(R, fx_params, params)
FX_RECORD(fx_node, FX_NODE_FIELDS);

/* panel_offset: arena offset of the panel of channel window.c0; -1 without panels. */
#define FX_STEP_FIELDS(F, A, R)                                                                                        \
    F(R, uint32_t, node)                                                                                               \
    F(R, uint32_t, wait_loads)                                                                                         \
    F(R, fx_window, window)                                                                                            \
    F(R, int64_t, panel_offset)
FX_RECORD(fx_step, FX_STEP_FIELDS);

/* A read of [file_offset, file_offset + bytes) to arena offset `address`; with direct I/O all three are multiples of
 * io_align. check_bytes of them, from check_lead on, are checked in chunks of chunk_bytes (the last may be shorter):
 * the first chunk's CRC32C is the program's crcs[crc_first]. */
#define FX_LOAD_FIELDS(F, A, R)                                                                                        \
    F(R, int64_t, file_offset)                                                                                         \
    F(R, int64_t, bytes)                                                                                               \
    F(R, int64_t, address)                                                                                             \
    F(R, int64_t, check_lead)                                                                                          \
    F(R, int64_t, chunk_bytes)                                                                                         \
    F(R, int64_t, check_bytes)                                                                                         \
    F(R, uint32_t, crc_first)                                                                                          \
    F(R, int32_t, wait_steps)
FX_RECORD(fx_load, FX_LOAD_FIELDS);

#define FX_ENGINE_RECORDS(R)                                                                                           \
    R(fx_window, FX_WINDOW_FIELDS)                                                                                     \
    R(fx_place, FX_PLACE_FIELDS)                                                                                       \
    R(fx_node, FX_NODE_FIELDS)                                                                                         \
    R(fx_step, FX_STEP_FIELDS)                                                                                         \
    R(fx_load, FX_LOAD_FIELDS)
extern const fx_record fx_engine_records[];

/* Descriptors of a file. They stay the caller's and must stay open while a program of the file is bound; the engine
 * reads them with pread only. */
typedef struct fx_file {
    int fd;
    int direct_fd; /* opened with O_DIRECT, or -1 */
} fx_file;

typedef struct fx_program {
    fx_file file; /* of pinned loads, loads and tables */
    const fx_node *nodes;
    uint32_t node_count;
    const fx_step *steps;
    uint32_t step_count;
    const uint32_t *groups; /* steps of each group, in order; */
    uint32_t group_count;   /* 0: every step by itself */
    const fx_load *pinned;
    uint32_t pinned_count;
    const fx_load *loads;
    uint32_t load_count;
    const fx_load *tables; /* steps read rows of them, chunk by chunk; address, check_lead and wait_steps are 0 */
    uint32_t table_count;
    const uint32_t *crcs;
    uint32_t crc_count;
    fx_file spill;         /* -1 without spills */
    const fx_load *spills; /* activations that steps store in the spill file, by file_offset; chunk_bytes: of a row;
                            * crc_first counts the rows before; other fields are 0 */
    uint32_t spill_count, spill_crc_count; /* spill_crc_count: rows of all */
    int64_t spill_bytes;                   /* size of the file */
    int64_t arena_bytes;
    int64_t zeros_offset; /* arena offset of zeros_count floats that are always 0.0 */
    int64_t zeros_count;
    const int64_t *io_bytes; /* size of each input/output buffer */
    uint32_t input_count, output_count;
} fx_program;

typedef struct fx_options {
    int direct;           /* files have a direct_fd: reads wait for the device */
    int threads;          /* compute threads, the caller of fx_run among them */
    const char *isa;      /* NULL: the best (or FLEXNN_ISA) */
    int poison;           /* tests: the arena, a load's target and a node's output are filled with NaNs before use */
    uint64_t noise_seed;  /* where random numbers without a seed of their own begin */
    uint32_t jitter_seed; /* tests: non-zero makes loader and threads pause at random between tasks */
    int64_t read_bytes_per_second; /* throttle of the loader; 0: none */
    int trace;                     /* keep the times of the last run's steps and loads; 2: of each thread, too */
    int fresh;                     /* benches: the pages of a load's target go back to the system before the read */
    int streams_last; /* loads go to the end of the arena, so its end lies on whole huge pages, not its start */
} fx_options;

typedef struct fx_run_stats {
    int64_t run_ns, stall_ns, bytes_read, bytes_written;
} fx_run_stats;

typedef struct fx_error {
    fx_status status;
    int os_error;        /* errno of FX_ERR_IO */
    int is_load;         /* index counts loads, else nodes */
    int is_pinned;       /* index counts pinned loads */
    int is_write;        /* FX_ERR_IO: of the spill file */
    int64_t index;       /* of the node or load; -1: none */
    int64_t file_offset; /* where reading failed, of a load or of a table's chunk, or writing */
} fx_error;

/* The engine: the one arena, its compute threads, its loader. A bound program: one that the engine may run. */
typedef struct fx_engine fx_engine;
typedef struct fx_bound fx_bound;

/* Checks everything in the program before use and trusts nothing: indices, windows, extents inside arena and buffers,
 * thresholds that could never be met, overflow. */
fx_status fx_program_check(const fx_program *p, int threads, const fx_kernels *k, fx_error *error);

/* Starts the compute threads; no arena yet. NULL on failure, *error says why. */
fx_engine *fx_engine_open(const fx_options *o, fx_error *error);
/* Reads under way that an engine is left to. */
typedef struct fx_leaving {
    const fx_file *files; /* of all its programs, and of those unbound since a read was broken off */
    uint32_t file_count;
    int is_abandoned; /* out: they still go on, and the last of them frees the engine and closes the files, which are
                       * the caller's no more */
} fx_leaving;

/* Unbinds everything and waits for reads under way, where `leaving` is not NULL for about 10 ms. FX_ERR_RUNNING. */
fx_status fx_engine_close(fx_engine *e, fx_leaving *leaving);

/* Bytes of pinned weights that fx_bind found in place, found elsewhere in the arena and moved, and read. */
typedef struct fx_bind_stats {
    int64_t kept, moved, read;
} fx_bind_stats;

/* Checks and copies the program, grows the arena if needed and brings the pinned weights to their places. Weights that
 * the arena already holds, for a bound program or for one unbound since, are not read again. Programs of one engine may
 * share any memory, except that none may write what another has pinned or reads as zeros (FX_ERR_OVERLAP); their pinned
 * weights lie apart, or all of them in the same places. Only in the process that opened the engine (FX_ERR_FORK), and
 * not during a run (FX_ERR_RUNNING). interrupt, which may be NULL, is asked while reading. NULL on failure: the
 * programs bound before are as they were. */
fx_bound *fx_bind(fx_engine *e, const fx_program *p, const fx_interrupt *interrupt, fx_bind_stats *stats,
                  fx_error *error);
/* Unbinds a program. Its pinned weights stay in the arena until something else needs their place. FX_ERR_RUNNING: it is
 * still bound. */
fx_status fx_unbind(fx_bound *b);
/* Forgets what the arena holds of a file, before its descriptor is closed; no program of it is bound any more.
 * FX_ERR_RUNNING. */
fx_status fx_engine_forget(fx_engine *e, int fd);
/* Something failed outside the engine (memory, a plan). Before the next run the engine checks that everything bound
 * lies in memory as it was bound (FX_ERR_SEAL), as it does by itself after a run, a binding or a recording that failed.
 */
void fx_engine_suspect(fx_engine *e);
/* Waits for reads under way, so that unbinding, trimming and closing need not. interrupt, which may be NULL, is asked
 * meanwhile. FX_ERR_CANCELLED, FX_ERR_RUNNING. */
fx_status fx_engine_rest(fx_engine *e, const fx_interrupt *interrupt);
/* Returns to the system the arena beyond what the bound programs need, and the heap's free memory. keep_pinned: if no
 * program is bound, the pinned weights of those unbound stay. FX_ERR_RUNNING. */
fx_status fx_engine_trim(fx_engine *e, int keep_pinned);
/* Whether there is no budget from now on: then the heap's free memory stays, and a few MiB of the arena, as other
 * shapes soon need them again. */
void fx_engine_loosen(fx_engine *e, int is_loose);
/* Has the system give memory to the arena's first 16 MiB, as the first run would. interrupt may be NULL.
 * FX_ERR_CANCELLED, FX_ERR_RUNNING. */
fx_status fx_engine_back(fx_engine *e, const fx_interrupt *interrupt);

/* One run, on the calling thread and the workers. It allocates nothing; until it ends the arena does not grow, and
 * binding, unbinding or running gives FX_ERR_RUNNING. buffers[i]: input/output buffer i. next: the bound programs that
 * are expected to run after this one (itself, too), in order; their loads begin as soon as nothing before them uses
 * their places. Other programs may run instead, but then all loads start again; so programs that were announced and
 * have not run yet should be named again. interrupt may be NULL. After any error but FX_ERR_SEAL the engine can run
 * again; after that, when what is bound was unbound and bound anew. */
fx_status fx_run(fx_bound *b, void *const *buffers, fx_bound *const *next, uint32_t next_count,
                 const fx_interrupt *interrupt, fx_run_stats *stats, fx_error *error);

/* Compute threads that run, the caller among them: fewer than asked for where the system gave fewer. */
int fx_engine_threads(const fx_engine *e);

/* A span of the last run that succeeded, in time since its start; a load may have begun before that. */
typedef struct fx_span {
    int64_t start_ns, end_ns;
} fx_span;

/* Spans of the steps, followed by those of the loads, valid until the next run; NULL when not tracing. */
const fx_span *fx_trace(const fx_bound *b);
/* [steps][threads of the engine]: the span in which each thread took part in the step, or in the group that begins with
 * it; 0 to 0 where it did not. NULL where the engine does not trace threads. */
const fx_span *fx_trace_threads(const fx_bound *b);
/* [steps + 1]: the span in which each step, and last the end of the run, waited for loads; 0 to 0 where none was
 * missing. Their sum is stall_ns. NULL where the engine does not trace threads. */
const fx_span *fx_trace_stalls(const fx_bound *b);

int64_t fx_engine_bytes(const fx_engine *e); /* everything it owns: arena, programs, stacks */

/* Workspace of each thread for a step that reads rows of a table in chunks of chunk_bytes. */
int64_t fx_table_workspace(int64_t chunk_bytes);

#endif
