/* What the checker explores: the engine's protocol.c, with workers.c, loader.c, run.c, recording.c, sync.c and all else
 * that waits or wakes, on the smallest programs that need each of its parts. The file, the kernels and the poison are
 * made up: a load brings numbers that say whose bytes they are, and a step finds those of its own load or fails.
 * usage: protocol [--long] [SCENARIO ...] */
#include "checker.h"

#include "protocol.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PROGRAMS = 3, STEPS = 3, LOADS = 3, UNITS = 2, REQUEST = 64, ARENA = 8 * REQUEST };

/* Of a load: whose bytes lie where. */
typedef struct part {
    int slot, requests, wait_steps;
} part;

/* A program in a few numbers. reads: the load of each step, -1: none. */
typedef struct sketch {
    int steps, loads;
    int reads[STEPS];
    part parts[LOADS];
} sketch;

typedef struct world {
    fx_engine e;
    fx_bound bound[PROGRAMS];
    fx_node nodes[PROGRAMS][STEPS];
    fx_step steps[PROGRAMS][STEPS];
    fx_load loads[PROGRAMS][LOADS];
    fx_touch used[PROGRAMS][STEPS];
    fx_range writes[PROGRAMS][LOADS];
    fx_task tasks[PROGRAMS][1];
    fx_cost costs[PROGRAMS][STEPS];
    uint32_t after[PROGRAMS][FX_PREDECESSORS][LOADS], waits[PROGRAMS][FX_RUNS * LOADS];
    int reads[PROGRAMS][STEPS];
    int done[PROGRAMS][STEPS][UNITS]; /* how often, in this run */
    int units;
    int may_fail, may_miss, may_spoil; /* how often a read may fail, not be cached, bring wrong bytes */
    int wants_cancel;
    int readers;
    int was_freed;
    _Alignas(64) char arena[ARENA];
} world;

static world *w;

/* ---- what the engine is given instead of the system and the kernels ---- */

double fx_usable_cpus(void) {
    return w->e.workers.threads + w->readers;
}

uint32_t fx_op_traits(uint32_t op) {
    (void)op;
    return FX_TRAIT_PANELS;
}

int64_t fx_op_panel_bytes(uint32_t op, const fx_params *p) {
    (void)op, (void)p;
    return REQUEST;
}

void fx_op_extent(uint32_t op, const fx_params *p, int operand, int64_t *lo, int64_t *hi) {
    (void)op, (void)p, (void)operand;
    *lo = *hi = 0;
}

uint32_t fx_op_units(const fx_kernels *k, uint32_t op, uint32_t kernel, const fx_params *p, fx_window window,
                     int threads) {
    (void)k, (void)op, (void)kernel, (void)p, (void)window, (void)threads;
    return (uint32_t)w->units;
}

static int64_t *number_at(char *place) {
    return (int64_t *)(void *)place;
}

/* Whether a place holds all of a load. */
static void check_load(const fx_load *load) {
    for (int64_t at = 0; at < load->bytes; at += REQUEST) {
        char *place = w->arena + load->address + at;
        model_touch(place, sizeof(int64_t), 0);
        MODEL_CHECK(*number_at(place) == load->file_offset + at);
    }
}

fx_status fx_op_run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    (void)threads;
    for (int p = 0; p < PROGRAMS; p++)
        for (int s = 0; s < STEPS; s++) {
            if (call->params != &w->nodes[p][s].params)
                continue;
            const int load = w->reads[p][s];
            if (load >= 0)
                check_load(&w->loads[p][load]);
            model_yield();
            if (load >= 0)
                check_load(&w->loads[p][load]);
            for (uint32_t u = u0; u < u1; u++) {
                model_touch(&w->done[p][s][u], sizeof(int), 1);
                w->done[p][s][u]++;
            }
        }
    return FX_OK;
}

int64_t fx_request_bytes(const fx_load *load, int64_t at) {
    (void)load, (void)at;
    return REQUEST;
}

static void bring(char *target, int64_t bytes, int64_t number) {
    for (int64_t at = 0; at < bytes; at += REQUEST) {
        model_touch(target + at, sizeof(int64_t), 1);
        *number_at(target + at) = number + at;
    }
}

fx_error fx_read(const fx_file *file, char *target, int64_t bytes, int64_t offset) {
    (void)file;
    model_yield();
    if (w->may_fail && model_choose(2) && w->may_fail) {
        w->may_fail--;
        return (fx_error){.status = FX_ERR_IO};
    }
    bring(target, bytes, offset);
    return (fx_error){.status = FX_OK};
}

int fx_read_cached(const fx_file *file, char *target, int64_t bytes, int64_t offset) {
    (void)file;
    model_yield();
    if (w->may_miss && model_choose(2) && w->may_miss) {
        w->may_miss--;
        return 0;
    }
    bring(target, bytes, offset);
    return 1;
}

fx_checker fx_check_start(const fx_file *file, const uint32_t *crcs, const fx_load *load, const char *memory) {
    (void)file, (void)crcs, (void)load, (void)memory;
    return (fx_checker){0};
}

/* The checksum of what arrived. */
fx_error fx_check_to(fx_checker *c, const fx_load *load, int64_t available) {
    for (; c->done < available; c->done += REQUEST) {
        char *place = w->arena + load->address + c->done;
        model_touch(place, sizeof(int64_t), 0);
        MODEL_CHECK(*number_at(place) == load->file_offset + c->done);
    }
    if (w->may_spoil && model_choose(2) && w->may_spoil) {
        w->may_spoil--;
        return (fx_error){.status = FX_ERR_CHECKSUM};
    }
    return (fx_error){.status = FX_OK};
}

void fx_poison(void *memory, int64_t bytes) {
    bring(memory, bytes, -1000000);
}

void fx_poison_step(const fx_bound *b, const fx_step *step, const fx_call *call) {
    (void)b, (void)step, (void)call;
}

void fx_engine_free(fx_engine *e) {
    MODEL_CHECK(e == &w->e && !w->was_freed);
    w->was_freed = 1;
}

fx_status fx_engine_grow(fx_engine *e, int64_t bytes, fx_error *error) {
    (void)e, (void)bytes, (void)error;
    return FX_OK;
}

void fx_edits_show(fx_bound *b) {
    (void)b;
}

void fx_pinned_drop(fx_engine *e, fx_range range) {
    (void)e, (void)range;
}

/* ---- making ---- */

static void lay_loads(int number, const sketch *s, int shift) {
    fx_bound *b = &w->bound[number];
    for (int i = 0; i < s->loads; i++) {
        const part *p = &s->parts[i];
        w->loads[number][i] = (fx_load){.file_offset = 10000 * (number + 1) + 1000 * i,
                                        .bytes = p->requests * REQUEST,
                                        .address = ((p->slot + shift) % 4) * 2 * REQUEST,
                                        .wait_steps = p->wait_steps};
        w->writes[number][i] = fx_load_target(&w->loads[number][i]);
    }
    b->touches.used_count = 0;
    for (int i = 0; i < s->steps; i++) {
        const int load = s->reads[i];
        w->reads[number][i] = load;
        w->steps[number][i] = (fx_step){.node = (uint32_t)i, .wait_loads = (uint32_t)(load + 1)};
        if (load >= 0)
            w->steps[number][i].panel_offset = w->loads[number][load].address;
        if (load >= 0) /* each slot is used once in order of places: sketches keep to that */
            w->used[number][b->touches.used_count++] =
                (fx_touch){fx_load_target(&w->loads[number][load]), (uint32_t)i + 1};
        for (int j = (int)b->touches.used_count - 1; j > 0; j--) { /* in order; the last step of a place counts */
            fx_touch *a = &w->used[number][j - 1], *z = &w->used[number][j];
            if (a->range.lo == z->range.lo) {
                a->steps = z->steps;
                memmove(z, z + 1, (size_t)(b->touches.used_count - j - 1) * sizeof *z);
                b->touches.used_count--;
            } else if (a->range.lo > z->range.lo) {
                const fx_touch t = *a;
                *a = *z;
                *z = t;
            }
        }
    }
}

static void make(int number, const sketch *s) {
    fx_bound *b = &w->bound[number];
    lay_loads(number, s, 0);
    b->engine = &w->e;
    b->others = w->e.bound;
    w->e.bound = b;
    b->program = (fx_program){.nodes = w->nodes[number],
                              .node_count = (uint32_t)s->steps,
                              .steps = w->steps[number],
                              .step_count = (uint32_t)s->steps,
                              .loads = w->loads[number],
                              .load_count = (uint32_t)s->loads};
    b->touches.used = w->used[number];
    b->touches.writes = w->writes[number];
    b->touches.write_count = 0; /* slots of recordings are buffers here */
    for (int i = 0; i < FX_PREDECESSORS; i++)
        b->after[i].steps = w->after[number][i];
    b->waits = w->waits[number];
    b->tasks = w->tasks[number];
    b->costs = w->costs[number];
    b->sharing.always = 1;
    for (int i = 0; i < s->steps; i++) {
        w->nodes[number][i].out.base = -1;
        for (int j = 0; j < FX_MAX_INPUTS; j++)
            w->nodes[number][i].in[j].base = -1;
    }
}

/* An engine; readers: 0 without a loader. */
static fx_engine *open_engine(int threads, int readers, int units) {
    w = model_alloc(sizeof *w);
    fx_engine *e = &w->e;
    w->units = units;
    w->readers = readers;
    e->arena.memory = w->arena;
    e->arena.bytes = ARENA;
    e->poison = 1;
    e->process = getpid();
    e->file.direct_fd = -1;
    atomic_store(&e->steps_wanted, INT64_MAX);
    MODEL_CHECK(!fx_event_init(&e->to_loader) && !fx_event_init(&e->to_caller));
    fx_placement placement = {.fineness = 1};
    MODEL_CHECK(!fx_workers_start(&e->workers, threads, &placement, 0));
    e->workers.spin_ns = 0;
    if (readers)
        MODEL_CHECK(!fx_loader_start(e));
    e->has_loader = readers > 0;
    e->loading.is_waiting = 1; /* no help, unless a scenario wants it */
    MODEL_CHECK(fx_arena_bind(&e->arena, 1) == FX_OK);
    return e;
}

static void close_engine(fx_engine *e) {
    if (e->has_loader)
        MODEL_CHECK(fx_loader_stop(e, 0));
    fx_workers_stop(&e->workers);
}

static int cancels(void *arg) {
    (void)arg;
    return w->wants_cancel > 0;
}

static fx_status run(int number, fx_bound *const *next, uint32_t count) {
    const fx_interrupt interrupt = {cancels, NULL};
    fx_bound *b = &w->bound[number];
    fx_run_stats stats;
    fx_error error;
    model_touch(w->done[number], sizeof w->done[number], 1);
    memset(w->done[number], 0, sizeof w->done[number]);
    const fx_status status = fx_run(b, NULL, next, count, &interrupt, &stats, &error);
    MODEL_CHECK(status == FX_OK || status == error.status);
    int64_t bytes = 0;
    for (uint32_t i = 0; i < b->program.load_count; i++)
        bytes += b->program.loads[i].bytes;
    for (uint32_t s = 0; s < b->program.step_count && status == FX_OK; s++)
        for (int u = 0; u < w->units; u++) {
            model_touch(&w->done[number][s][u], sizeof(int), 0);
            MODEL_CHECK(w->done[number][s][u] == 1);
        }
    MODEL_CHECK(status != FX_OK || stats.bytes_read == bytes);
    return status;
}

static void good(int number, fx_bound *const *next, uint32_t count) {
    MODEL_CHECK(run(number, next, count) == FX_OK);
}

/* ---- the scenarios ---- */

static const sketch one_slot = {2, 2, {0, 1}, {{0, 1, 0}, {0, 1, 1}}};
static const sketch two_parts = {1, 1, {0}, {{0, 2, 0}}};
static const sketch two_slots = {2, 3, {1, 2}, {{0, 1, 0}, {0, 1, 0}, {1, 1, 0}}}; /* nothing reads the first load */
static const sketch other = {2, 1, {-1, 0}, {{1, 1, 0}}};
static const sketch third = {1, 1, {0}, {{0, 1, 0}}};

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

/* Two readers, loads of two requests and loads that meet others which have begun. */
static void readers(void) {
    fx_engine *e = open_engine(1, 2, 1);
    make(0, &two_slots);
    good(0, NULL, 0);
    close_engine(e);
}

static void parts(void) {
    fx_engine *e = open_engine(1, 2, 1);
    make(0, &two_parts);
    fx_bound *next[] = {&w->bound[0]};
    good(0, next, 1);
    good(0, NULL, 0);
    close_engine(e);
}

/* The caller reads what the page cache holds, and leaves the rest. */
static void help(void) {
    fx_engine *e = open_engine(1, 1, 1);
    e->loading.is_waiting = 0;
    w->may_miss = 1;
    make(0, &one_slot);
    fx_bound *next[] = {&w->bound[0]};
    good(0, next, 1);
    good(0, NULL, 0);
    close_engine(e);
}

/* A read fails once, at any moment: the run says so, and the next is good. */
static void failure(void) {
    fx_engine *e = open_engine(1, 2, 1);
    w->may_fail = 1;
    make(0, &two_parts);
    const fx_status status = run(0, NULL, 0); /* a read that failed before the run looked is read again */
    MODEL_CHECK(status == FX_OK || (status == FX_ERR_IO && !w->may_fail));
    w->may_fail = 0;
    good(0, NULL, 0);
    close_engine(e);
}

/* A read brings wrong bytes, the caller's too. */
static void failure_help(void) {
    fx_engine *e = open_engine(1, 1, 1);
    e->loading.is_waiting = 0;
    w->may_spoil = 1;
    make(0, &two_slots);
    const fx_status status = run(0, NULL, 0);
    MODEL_CHECK(status == FX_OK || (status == FX_ERR_CHECKSUM && !w->may_spoil));
    w->may_spoil = 0;
    good(0, NULL, 0);
    close_engine(e);
}

/* A run is cancelled wherever it asks, with a reader and the caller reading; the next is good. */
static void cancel(void) {
    fx_engine *e = open_engine(1, 1, 1);
    e->loading.is_waiting = 0;
    w->wants_cancel = 1;
    make(0, &one_slot);
    fx_bound *next[] = {&w->bound[0]};
    model_may_expire(1);
    const fx_status status = run(0, next, 1);
    MODEL_CHECK(status == FX_OK || status == FX_ERR_CANCELLED);
    w->wants_cancel = 0;
    model_may_expire(0);
    good(0, NULL, 0);
    close_engine(e);
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
    const fx_load pinned = {.file_offset = 90000, .bytes = REQUEST, .address = 0};
    MODEL_CHECK(fx_loader_read(e, NULL, &pinned, &poll, &error) == FX_OK);
    w->may_miss = 0;
    lay_loads(0, &third, 2);
    check_load(&pinned);
    good(0, NULL, 0);
    check_load(&pinned);
    close_engine(e);
}

/* A recording branches: the program that was announced does not come. */
static void branches(void) {
    fx_engine *e = open_engine(1, 1, 1);
    make(0, &third);
    make(1, &other);
    make(2, &third);
    fx_bound *programs[] = {&w->bound[0], &w->bound[1], &w->bound[2]};
    const fx_entry entries[] = {
        {.kind = FX_ENTRY_BEGIN, .a = 0}, {.kind = FX_ENTRY_TURN, .a = 0, .b = 8, .c = -1, .d = -1, .n = 2},
        {.kind = FX_ENTRY_RUN, .a = 0},   {.kind = FX_ENTRY_BRANCH, .a = 0, .b = 6},
        {.kind = FX_ENTRY_RUN, .a = 1},   {.kind = FX_ENTRY_JUMP, .b = 7},
        {.kind = FX_ENTRY_RUN, .a = 2},   {.kind = FX_ENTRY_NEXT, .a = 0, .b = 1},
    };
    const fx_slot slots[] = {{.base = 1, .bytes = 8}};
    const fx_tape tape = {.programs = programs,
                          .program_count = 3,
                          .entries = entries,
                          .entry_count = 8,
                          .slots = slots,
                          .slot_count = 1,
                          .buffer_count = 1,
                          .counter_count = 1,
                          .input_count = 1,
                          .looks_ahead = 1};
    fx_error error;
    fx_recording_stats stats;
    fx_recording *r = fx_recording_make(e, &tape, &error);
    MODEL_CHECK(r);
    char *flag = model_alloc(8);
    for (int i = 0; i < 2; i++) {
        *flag = (char)(i == 0);
        memset(w->done, 0, sizeof w->done);
        MODEL_CHECK(fx_recording_run(r, (void *[]){flag}, (int64_t[]){8}, 0, NULL, &stats, &error) == FX_OK);
        MODEL_CHECK(stats.stopped == -1 && fx_recording_counter(r, 0) == 2 && w->done[0][0][0] == 2);
        MODEL_CHECK(w->done[1][1][0] == (i ? 0 : 2) && w->done[2][0][0] == (i ? 2 : 0));
        MODEL_CHECK(stats.run.bytes_read == 4 * REQUEST);
    }
    close_engine(e);
}

/* Jobs one after the other; a worker that wakes late finds nothing of the job before. */
static void workers(void) {
    fx_engine *e = open_engine(2, 0, 2);
    static const sketch two_steps = {2, 0, {-1, -1}, {{0}}};
    make(0, &two_steps);
    good(0, NULL, 0);
    close_engine(e);
}

/* A job is cancelled while workers compute. */
static void withdrawn(void) {
    fx_engine *e = open_engine(2, 0, 2);
    static const sketch one_step = {1, 0, {-1}, {{0}}};
    make(0, &one_step);
    w->wants_cancel = 1;
    model_may_expire(2);
    const fx_status status = run(0, NULL, 0);
    MODEL_CHECK(status == FX_OK || status == FX_ERR_CANCELLED);
    w->wants_cancel = 0;
    model_may_expire(0);
    good(0, NULL, 0);
    close_engine(e);
}

/* Everything at the same time: a worker, a reader, and the caller that helps. */
static void together(void) {
    fx_engine *e = open_engine(2, 1, 2);
    e->loading.is_waiting = 0;
    make(0, &third);
    fx_bound *next[] = {&w->bound[0]};
    good(0, next, 1);
    good(0, NULL, 0);
    close_engine(e);
}

/* A session ends while loads are under way, and leaves the engine to the readers that still read. */
static void abandoned(void) {
    fx_engine *e = open_engine(1, 2, 1);
    make(0, &third);
    fx_bound *next[] = {&w->bound[0]};
    good(0, next, 1);
    model_may_expire(1);
    if (!fx_loader_stop(e, 1) && fx_loader_abandon(e))
        return;
    MODEL_CHECK(!w->was_freed);
}

static const struct {
    const char *name;
    void (*run)(void);
    int switches; /* away from threads that could go on, in the short form; the long form allows one more */
} scenarios[] = {
    {"stream", stream, 3},       {"readers", readers, 1},     {"parts", parts, 1},
    {"help", help, 2},           {"failure", failure, 1},     {"failure_help", failure_help, 2},
    {"cancel", cancel, 1},       {"rebudget", rebudget, 1},   {"branches", branches, 2},
    {"workers", workers, -1},    {"withdrawn", withdrawn, 2}, {"together", together, 1},
    {"abandoned", abandoned, 1},
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
