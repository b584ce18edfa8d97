/* What the checker explores: the engine's protocol.c, with workers.c, loader.c, run.c, recording.c, sync.c and all else
 * that waits or wakes, on the smallest programs that need each of its parts (world.c).
 * usage: protocol [--long] [SCENARIO ...] */
#include "world.h"

#include <stdio.h>
#include <string.h>

static const sketch one_slot = {2, 2, {0, 1}, {{0, 1, 0}, {0, 1, 1}}};
static const sketch two_parts = {1, 1, {0}, {{0, 2, 0}}};
static const sketch two_slots = {2, 3, {1, 2}, {{0, 1, 0}, {0, 1, 0}, {1, 1, 0}}}; /* nothing reads the first load */
static const sketch other = {2, 1, {-1, 0}, {{1, 1, 0}}};
static const sketch third = {1, 1, {0}, {{0, 1, 0}}};

static const sketch spilling = {2, 2, {0, 1}, {{0, 1, 0}, {1, 1, 1}}};

/* An engine whose caller helps to read: reads do not wait for a device. */
static fx_engine *open_helped(int threads, int readers, int units) {
    fx_engine *e = open_engine(threads, readers, units);
    e->loading.is_waiting = 0;
    return e;
}

/* A run that is cancelled wherever it asks; the clock may jump so often. */
static void cancelled(int expiries, fx_bound *const *next, uint32_t count) {
    w->wants_cancel = 1;
    model_may_expire(expiries);
    const fx_status status = run(0, next, count);
    MODEL_CHECK(status == FX_OK || status == FX_ERR_CANCELLED);
    w->wants_cancel = 0;
    model_may_expire(0);
}

/* A run in which a fault may come, which it then says; the fault is over. */
static void faulty(int *faults, fx_status answer) {
    *faults = 1;
    const fx_status status = run(0, NULL, 0);
    MODEL_CHECK(status == FX_OK || (status == answer && !*faults));
    *faults = 0;
}

/* Whatever was: the next run is good, and the engine ends. */
static void ends(fx_engine *e) {
    good(0, NULL, 0);
    close_engine(e);
}

/* A slot that two loads share, run after run: counters, thresholds, announced runs. */
static void stream(void) {
    fx_engine *e = open_engine(1, 1, 1);
    make(0, &one_slot);
    fx_bound *next[] = {&w->bound[0]};
    good(0, next, 1);
    good(0, next, 1);
    good(0, next, 0);
    close_engine(e);
}

/* Two threads store rows, run after run, and the caller or a reader reads them back. */
static void spill(void) {
    fx_engine *e = open_helped(2, 1, 2);
    make(0, &spilling);
    spill_through(0, 1);
    fx_bound *next[] = {&w->bound[0]};
    good(0, next, 1);
    ends(e);
}

/* A run that stores is cancelled wherever it asks; the next stores and reads anew. */
static void spill_cancel(void) {
    fx_engine *e = open_helped(1, 1, 2);
    make(0, &spilling);
    spill_through(0, 1);
    cancelled(1, (fx_bound *[]){&w->bound[0]}, 1);
    ends(e);
}

/* A row cannot be stored, by any of two threads: the run says so. */
static void spill_full(void) {
    fx_engine *e = open_helped(2, 1, 2);
    make(0, &spilling);
    spill_through(0, 1);
    faulty(&w->may_not_store, FX_ERR_IO);
    ends(e);
}

/* Rows cannot be read back, or come back as others; the caller reads them, or leaves them to a reader. */
static void spill_fault(void) {
    fx_engine *e = open_helped(1, 1, 2);
    w->may_miss = w->may_fail = 1;
    make(0, &spilling);
    spill_through(0, 1);
    const fx_status status = run(0, NULL, 0);
    MODEL_CHECK(status == FX_OK || (status == FX_ERR_IO && !w->may_fail));
    w->may_miss = w->may_fail = 0;
    faulty(&w->may_spoil, FX_ERR_CHECKSUM);
    ends(e);
}

/* A worker reads rows back that it has stored, or that another has. */
static void spill_spare(void) {
    fx_engine *e = open_helped(2, -1, 2);
    w->may_miss = 1;
    make(0, &spilling);
    spill_through(0, 1);
    ends(e);
}

/* The program that spills was announced, and another comes, which reads its own; then it comes. */
static void spill_branch(void) {
    fx_engine *e = open_helped(1, 1, 2);
    make(0, &spilling);
    spill_through(0, 1);
    make(1, &third);
    fx_bound *next[] = {&w->bound[0], &w->bound[1]};
    good(1, next, 2);
    good(1, next, 1);
    good(0, next + 1, 1);
    ends(e);
}

/* Two readers, loads of two requests and loads that meet others which have begun. */
static void readers(void) {
    fx_engine *e = open_engine(1, 2, 1);
    make(0, &two_slots);
    ends(e);
}

static void parts(void) {
    fx_engine *e = open_engine(1, 2, 1);
    make(0, &two_parts);
    fx_bound *next[] = {&w->bound[0]};
    good(0, next, 1);
    ends(e);
}

/* The caller reads what the page cache holds, and leaves the rest. */
static void help(void) {
    fx_engine *e = open_helped(1, 1, 1);
    w->may_miss = 1;
    make(0, &one_slot);
    fx_bound *next[] = {&w->bound[0]};
    good(0, next, 1);
    ends(e);
}

/* A read fails once, at any moment: the run says so, and the next is good. */
static void failure(void) {
    fx_engine *e = open_engine(1, 2, 1);
    make(0, &two_parts);
    faulty(&w->may_fail, FX_ERR_IO); /* a read that failed before the run looked is read again */
    ends(e);
}

/* A read brings wrong bytes, the caller's too. */
static void failure_help(void) {
    fx_engine *e = open_helped(1, 1, 1);
    make(0, &two_slots);
    faulty(&w->may_spoil, FX_ERR_CHECKSUM);
    ends(e);
}

/* A run is cancelled wherever it asks, with a reader and the caller reading; the next is good. */
static void cancel(void) {
    fx_engine *e = open_helped(1, 1, 1);
    make(0, &one_slot);
    cancelled(1, (fx_bound *[]){&w->bound[0]}, 1);
    ends(e);
}

/* After a run that was cancelled the caller helps before any reader has woken from its rest, and its bytes are wrong:
 * the loader rests again although no reader saw it. */
static void help_again(void) {
    fx_engine *e = open_engine(1, 1, 1);
    make(0, &third);
    cancelled(1, NULL, 0);
    e->loading.is_waiting = 0;
    faulty(&w->may_spoil, FX_ERR_CHECKSUM);
    ends(e);
}

/* While loads of an announced run may be under way the budget changes: all places move, and a pinned weight is read by
 * a reader. */
static void rebudget(void) {
    fx_engine *e = open_engine(1, 2, 1);
    make(0, &third);
    fx_bound *next[] = {&w->bound[0]};
    good(0, next, 1);
    fx_poll poll = {0};
    fx_error error;
    MODEL_CHECK(fx_loader_pause(e, &poll) == FX_OK);
    fx_poison(w->arena, ARENA);
    w->may_miss = 1;
    const fx_program program = {.file = {.fd = -1, .direct_fd = -1}};
    const fx_load pinned = {.file_offset = 90000, .bytes = REQUEST, .address = 0};
    MODEL_CHECK(fx_loader_read(e, &program, &pinned, &poll, &error) == FX_OK);
    w->may_miss = 0;
    lay_loads(0, &third, 2);
    check_load(&pinned);
    good(0, NULL, 0);
    check_load(&pinned);
    close_engine(e);
}

/* A recording of three programs and one counter; the byte of its one buffer decides its branches. */
static fx_recording *recorded(fx_engine *e, const fx_entry *entries, uint32_t count) {
    fx_bound *programs[] = {&w->bound[0], &w->bound[1], &w->bound[2]};
    const fx_slot slots[] = {{.base = 1, .bytes = 8}};
    const fx_tape tape = {.programs = programs,
                          .program_count = 3,
                          .entries = entries,
                          .entry_count = count,
                          .slots = slots,
                          .slot_count = 1,
                          .buffer_count = 1,
                          .counter_count = 1,
                          .input_count = 1,
                          .looks_ahead = 1};
    fx_error error;
    fx_recording *r = fx_recording_make(e, &tape, &error);
    MODEL_CHECK(r);
    return r;
}

/* Runs it with this flag, which says how the branches go. */
static fx_recording_stats run_recorded(fx_recording *r, char *flag, int value) {
    fx_error error;
    fx_recording_stats stats;
    *flag = (char)value;
    memset(w->done, 0, sizeof w->done);
    MODEL_CHECK(fx_recording_run(r, (void *[]){flag}, (int64_t[]){8}, 0, NULL, &stats, &error) == FX_OK);
    return stats;
}

/* A recording branches: the program that was announced does not come. */
static void branches(void) {
    fx_engine *e = open_engine(1, 1, 1);
    make(0, &third);
    make(1, &other);
    make(2, &third);
    const fx_entry entries[] = {
        {.kind = FX_ENTRY_BEGIN, .a = 0}, {.kind = FX_ENTRY_TURN, .a = 0, .b = 8, .c = -1, .d = -1, .n = 2},
        {.kind = FX_ENTRY_RUN, .a = 0},   {.kind = FX_ENTRY_BRANCH, .a = 0, .b = 6},
        {.kind = FX_ENTRY_RUN, .a = 1},   {.kind = FX_ENTRY_JUMP, .b = 7},
        {.kind = FX_ENTRY_RUN, .a = 2},   {.kind = FX_ENTRY_NEXT, .a = 0, .b = 1},
    };
    fx_recording *r = recorded(e, entries, 8);
    char *flag = model_alloc(8);
    for (int i = 0; i < 2; i++) {
        const fx_recording_stats stats = run_recorded(r, flag, i == 0);
        MODEL_CHECK(stats.stopped == -1 && fx_recording_counter(r, 0) == 2 && w->done[0][0][0] == 2);
        MODEL_CHECK(w->done[1][1][0] == (i ? 0 : 2) && w->done[2][0][0] == (i ? 2 : 0));
        MODEL_CHECK(stats.run.bytes_read == 4 * REQUEST);
    }
    close_engine(e);
}

/* A holder brings what a loop reads in its turn, behind which a program's load takes the place: not while a branch that
 * was not taken the last time may be taken. */
static void held(void) {
    static const sketch holder = {0, 1, {-1}, {{0, 1, 0}}}, reader = {1, 0, {-1}, {{0}}};
    fx_engine *e = open_engine(1, 1, 1);
    make(0, &holder);
    make(1, &reader);
    make(2, &third);
    hold(1, 0);
    const fx_entry entries[] = {
        {.kind = FX_ENTRY_BEGIN},          {.kind = FX_ENTRY_TURN, .b = 5, .c = -1, .d = -1, .holder = 1, .n = 1},
        {.kind = FX_ENTRY_BRANCH, .b = 4}, {.kind = FX_ENTRY_RUN, .a = 1},
        {.kind = FX_ENTRY_NEXT, .b = 1},   {.kind = FX_ENTRY_RUN, .a = 2},
    };
    fx_recording *r = recorded(e, entries, 6);
    char *flag = model_alloc(8);
    for (int i = 0; i < 2; i++) {
        const fx_recording_stats stats = run_recorded(r, flag, i);
        MODEL_CHECK(w->done[1][0][0] == i && w->done[2][0][0] == 1 && stats.run.bytes_read == 2 * REQUEST);
    }
    close_engine(e);
}

/* Jobs one after the other; a worker that wakes late finds nothing of the job before. */
static void workers(void) {
    fx_engine *e = open_engine(2, 0, 2);
    static const sketch two_steps = {2, 0, {-1, -1}, {{0}}};
    make(0, &two_steps);
    ends(e);
}

/* A job is cancelled while workers compute. */
static void withdrawn(void) {
    fx_engine *e = open_engine(2, 0, 2);
    static const sketch one_step = {1, 0, {-1}, {{0}}};
    make(0, &one_step);
    cancelled(2, NULL, 0);
    ends(e);
}

/* Everything at the same time: a worker, a reader, and the caller that helps. */
static void together(void) {
    fx_engine *e = open_helped(2, 1, 2);
    make(0, &third);
    fx_bound *next[] = {&w->bound[0]};
    good(0, next, 1);
    ends(e);
}

/* Workers read what the page cache holds, beside the caller that helps; the reader reads the rest. */
static void spare(void) {
    fx_engine *e = open_helped(2, -1, 1);
    w->may_miss = 1;
    make(0, &one_slot);
    fx_bound *next[] = {&w->bound[0]};
    good(0, next, 1);
    ends(e);
}

/* The caller and a worker both miss, in loads of two requests. */
static void spare_missing(void) {
    fx_engine *e = open_helped(2, -1, 1);
    w->may_miss = 2;
    make(0, &two_parts);
    ends(e);
}

/* A worker's read brings wrong bytes, or the run is cancelled while it reads; the next run is good. */
static void spare_stopped(void) {
    fx_engine *e = open_helped(2, -1, 1);
    w->may_spoil = 1;
    w->wants_cancel = 1;
    make(0, &third);
    model_may_expire(1);
    const fx_status status = run(0, NULL, 0);
    MODEL_CHECK(status == FX_OK || status == FX_ERR_CANCELLED || (status == FX_ERR_CHECKSUM && !w->may_spoil));
    w->wants_cancel = w->may_spoil = 0;
    model_may_expire(0);
    ends(e);
}

/* The budget changes while a worker may be reading for an announced run. */
static void spare_rebudget(void) {
    fx_engine *e = open_helped(2, -1, 1);
    make(0, &third);
    fx_bound *next[] = {&w->bound[0]};
    good(0, next, 1);
    fx_poll poll = {0};
    MODEL_CHECK(fx_loader_pause(e, &poll) == FX_OK);
    fx_poison(w->arena, ARENA);
    lay_loads(0, &third, 2);
    ends(e);
}

/* A session ends while loads are under way, and leaves the engine to the readers that still read. */
static void abandoned(void) {
    fx_engine *e = open_engine(1, 2, 1);
    make(0, &third);
    fx_bound *next[] = {&w->bound[0]};
    good(0, next, 1);
    model_may_expire(1);
    if (!fx_loader_stop(e, 1) && fx_loader_abandon(e, 0))
        return;
    MODEL_CHECK(!w->was_freed);
}

static const struct {
    const char *name;
    void (*run)(void);
    int switches; /* away from threads that could go on, in the short form; the long form allows one more */
} scenarios[] = {
    {"stream", stream, 3},
    {"readers", readers, 1},
    {"spill", spill, 1},
    {"spill_cancel", spill_cancel, 1},
    {"spill_full", spill_full, 1},
    {"spill_fault", spill_fault, 1},
    {"spill_spare", spill_spare, 1},
    {"spill_branch", spill_branch, 1},
    {"parts", parts, 1},
    {"help", help, 2},
    {"failure", failure, 1},
    {"failure_help", failure_help, 2},
    {"help_again", help_again, 1},
    {"cancel", cancel, 1},
    {"rebudget", rebudget, 1},
    {"branches", branches, 2},
    {"held", held, 2},
    {"workers", workers, -1},
    {"withdrawn", withdrawn, 2},
    {"together", together, 1},
    {"abandoned", abandoned, 1},
    {"spare", spare, 1},
    {"spare_missing", spare_missing, 1},
    {"spare_stopped", spare_stopped, 1},
    {"spare_rebudget", spare_rebudget, 1},
};

int main(int count, char **names) {
    const int is_long = count > 1 && !strcmp(names[1], "--long");
    int explored = 0;
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++) {
        int is_wanted = count == 1 + is_long;
        for (int n = 1 + is_long; n < count; n++)
            is_wanted |= !strcmp(names[n], scenarios[i].name);
        if (is_wanted)
            model_explore(scenarios[i].name, scenarios[i].run,
                          scenarios[i].switches + (is_long && scenarios[i].switches >= 0));
        explored += is_wanted;
    }
    return explored ? 0 : 2;
}
