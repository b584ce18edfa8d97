/* A recording: what a run of a model does, as a list of entries that the engine walks by itself.
 *
 * Entries run programs of one engine, move values between slots, and decide: branches and loops whose conditions and
 * trip counts are read from slots. A slot is a value's place: in the arena, in a buffer of the caller, or a row of
 * another slot. What lies in slots of the arena lives while the recording runs.
 *
 * A recording is left before its end where a row does not fit into the caller's buffer (FX_ENTRY_ROW): it keeps its
 * place and its counters, and goes on from there with a larger buffer.
 */
#ifndef FLEXNN_RECORDING_H
#define FLEXNN_RECORDING_H

#include "flexnn/engine.h"

#define FX_BASE_ROW (-3) /* slot base: FX_ENTRY_ROW says where it lies */
#define FX_COUNTERS_MAX 64
#define FX_HOLDERS_MAX FX_COUNTERS_MAX /* of the loops of a tape */

/* base: FX_BASE_ARENA, 1 + i for buffer i, or FX_BASE_ROW; offset: bytes from there, a multiple of 8. */
#define FX_SLOT_FIELDS(F, A, R) F(R, int32_t, base) F(R, int32_t, unused) F(R, int64_t, offset) F(R, int64_t, bytes)
FX_RECORD(fx_slot, FX_SLOT_FIELDS);

/* Kinds of entries, and what their fields say.
 * RUN: runs program a; its buffers are slots operands[b] and those that follow.
 * COPY: copies n bytes from slot b to slot a.
 * SWAP: exchanges the places of slots a and b, of equal size and both of the arena, until the recording ends.
 * BRANCH: goes to entry b if the byte of slot a is 0.
 * JUMP: goes to entry b.
 * BEGIN: sets counter a to 0.
 * TURN: goes to entry b if counter a has reached n (-1: no limit) or the int64 in slot d (-1: none), or if the byte of
 * slot c is 0 (-1: none). Else, while counter a is 0, it runs program `holder` - 1 (0: none), which has no buffers:
 * what its loads bring stays until the last entry NEXT that goes back here.
 * NEXT: adds 1 to counter a, and goes to entry b. Only it goes back.
 * COUNT: writes counter a as int64 to slot b.
 * ROW: slot a is row number counter c of slot b, of n bytes; d 1: rows are counted from the end of slot b. Where that
 * row lies beyond the slot, it stops the run if the slot is a buffer's, and else is FX_ERR_BOUNDS. */
#define FX_ENTRY_KINDS(X)                                                                                              \
    X(RUN, run)                                                                                                        \
    X(COPY, copy)                                                                                                      \
    X(SWAP, swap)                                                                                                      \
    X(BRANCH, branch)                                                                                                  \
    X(JUMP, jump)                                                                                                      \
    X(BEGIN, begin)                                                                                                    \
    X(TURN, turn)                                                                                                      \
    X(NEXT, next)                                                                                                      \
    X(COUNT, count)                                                                                                    \
    X(ROW, row)
#define FX_ENTRY_KIND(NAME, name) FX_ENTRY_##NAME,
typedef enum fx_entry_kind { FX_ENTRY_KINDS(FX_ENTRY_KIND) FX_ENTRY_KIND_COUNT } fx_entry_kind;
#undef FX_ENTRY_KIND

#define FX_ENTRY_FIELDS(F, A, R)                                                                                       \
    F(R, uint32_t, kind)                                                                                               \
    F(R, int32_t, a) F(R, int32_t, b) F(R, int32_t, c) F(R, int32_t, d) F(R, int32_t, holder) F(R, int64_t, n)
FX_RECORD(fx_entry, FX_ENTRY_FIELDS);

/* In fx_engine_records, after the engine's own. */
#define FX_RECORDING_RECORDS(R) R(fx_slot, FX_SLOT_FIELDS) R(fx_entry, FX_ENTRY_FIELDS)

typedef struct fx_tape {
    fx_bound *const *programs;
    uint32_t program_count;
    const fx_entry *entries;
    uint32_t entry_count;
    const fx_slot *slots;
    uint32_t slot_count;
    const uint32_t *operands;
    uint32_t operand_count;
    uint32_t buffer_count, counter_count;
    uint32_t input_count; /* of the buffers: only read */
    uint32_t looks_ahead; /* 0: loads of a program begin when it runs (benches) */
} fx_tape;

typedef struct fx_recording fx_recording;

/* Checks and copies the tape, and grows the arena if its slots need that. No program that is bound may have pinned
 * weights where its slots lie or write there, and none of a loop may write what its holder brings (FX_ERR_OVERLAP).
 * FX_ERR_RUNNING, FX_ERR_FORK. NULL on failure. A program that is unbound breaks the recordings that run it. */
fx_recording *fx_recording_make(fx_engine *e, const fx_tape *tape, fx_error *error);
/* FX_ERR_RUNNING: it is still there. */
fx_status fx_recording_free(fx_recording *r);

/* stopped: the entry that stopped the run; -1: it is complete. */
typedef struct fx_recording_stats {
    fx_run_stats run;
    int64_t stopped;
} fx_recording_stats;

/* One run, or, with `goes_on`, the rest of the one that stopped, if nothing else ran or moved the arena since.
 * FX_ERR_BOUNDS: a buffer is too small, or an entry uses a row before FX_ENTRY_ROW has said which. buffers[i], of
 * buffer_bytes[i] bytes: the caller's buffer i. Otherwise as fx_run. */
fx_status fx_recording_run(fx_recording *r, void *const *buffers, const int64_t *buffer_bytes, int goes_on,
                           const fx_interrupt *interrupt, fx_recording_stats *stats, fx_error *error);
/* Counter i after the last run: turns of its loop, 0 if that was never reached. */
int64_t fx_recording_counter(const fx_recording *r, uint32_t i);
/* The entry at which the last run failed or stopped. */
int64_t fx_recording_entry(const fx_recording *r);
/* Bytes that it takes outside the arena. */
int64_t fx_recording_bytes(const fx_recording *r);

#endif
