#include "world.h"

#include <string.h>
#include <unistd.h>

enum { SPILL_FD = 77 };

world *w;

/* ---- what the engine is given instead of the system and the kernels ---- */

double fx_usable_cpus(void) {
    return w->e.workers.threads + (w->readers > 0 ? w->readers : 0);
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

fx_phases fx_op_phases(const fx_kernels *k, uint32_t op, const fx_params *p, int threads) {
    (void)k, (void)op, (void)p, (void)threads;
    return (fx_phases){.count = 1};
}

static int64_t *number_at(char *place) {
    return (int64_t *)(void *)place;
}

/* What a load brings to a place of it. */
static int64_t expected(const fx_load *load, int64_t at) {
    return fx_load_is_spilled(load) ? 7000 + w->runs : load->file_offset + at;
}

void check_load(const fx_load *load) {
    for (int64_t at = 0; at < load->bytes; at += REQUEST) {
        char *place = w->arena + load->address + at;
        model_touch(place, sizeof(int64_t), 0);
        MODEL_CHECK(*number_at(place) == expected(load, at));
        MODEL_CHECK(w->is_checked[(load->address + at) / REQUEST]);
    }
}

/* Stores the row of a unit; what is stored says in which run. */
static fx_status store_row(const fx_row_sink *sink, const void *rows, uint32_t u0, uint32_t u1) {
    (void)sink, (void)rows;
    model_yield();
    if (w->may_not_store && model_choose(2) && w->may_not_store) {
        w->may_not_store--;
        return fx_step_fail(&w->e, (fx_error){.status = FX_ERR_IO, .is_write = 1});
    }
    for (uint32_t u = u0; u < u1; u++) {
        model_touch(&w->spilled[u], sizeof(int64_t), 1);
        w->spilled[u] = 7000 + w->runs;
        model_touch(&w->spill_crcs[u], sizeof(uint32_t), 1);
        w->spill_crcs[u] = (uint32_t)(7000 + w->runs);
    }
    return FX_OK;
}

uint32_t fx_spill_begin(fx_bound *b, const fx_node *node, fx_spill_store *store) {
    (void)node;
    *store = (fx_spill_store){.face = {store_row}, .bound = b};
    return (uint32_t)w->units;
}

fx_status fx_op_run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    (void)threads;
    for (int p = 0; p < PROGRAMS; p++)
        for (int s = 0; s < STEPS; s++) {
            if (call->params != &w->nodes[p][s].params)
                continue;
            const int own = w->reads[p][s];
            const fx_load *load = own >= 0 ? &w->loads[p][own] : w->held[p][s];
            if (load)
                check_load(load);
            model_yield();
            if (call->sink && call->sink->write(call->sink, NULL, u0, u1) != FX_OK)
                return FX_ERR_IO;
            if (load)
                check_load(load);
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

int64_t fx_part_bytes(const fx_load *load, int64_t at, int waits) {
    (void)waits;
    return fx_request_bytes(load, at);
}

/* Reads the spill file. */
static void fetch(char *target) {
    w->is_checked[(target - w->arena) / REQUEST] = 0;
    for (int u = 0; u < w->units; u++)
        model_touch(&w->spilled[u], sizeof(int64_t), 0);
    model_touch(target, sizeof(int64_t), 1);
    *number_at(target) = w->spilled[0] == w->spilled[w->units - 1] ? w->spilled[0] : -1;
}

static void bring(char *target, int64_t bytes, int64_t number) {
    for (int64_t at = 0; at < bytes; at += REQUEST) {
        model_touch(target + at, sizeof(int64_t), 1);
        *number_at(target + at) = number + at;
        w->is_checked[(target + at - w->arena) / REQUEST] = 0;
    }
}

fx_error fx_read(const fx_file *file, char *target, int64_t bytes, int64_t offset) {
    model_yield();
    if (w->may_fail && model_choose(2) && w->may_fail) {
        w->may_fail--;
        return (fx_error){.status = FX_ERR_IO};
    }
    if (file->fd == SPILL_FD)
        fetch(target);
    else
        bring(target, bytes, offset);
    return (fx_error){.status = FX_OK};
}

int fx_read_cached(const fx_file *file, char *target, int64_t bytes, int64_t offset) {
    model_yield();
    if (w->may_miss && model_choose(2) && w->may_miss) {
        w->may_miss--;
        return 0;
    }
    if (file->fd == SPILL_FD)
        fetch(target);
    else
        bring(target, bytes, offset);
    return 1;
}

fx_checker fx_check_start(fx_crc_path path, const uint32_t *crcs, const fx_load *load, const char *memory) {
    (void)path, (void)load, (void)memory;
    return (fx_checker){.expected = crcs};
}

/* The checksum of what arrived. */
fx_error fx_check_to(fx_checker *c, const fx_load *load, int64_t available) {
    for (; c->done < available; c->done += REQUEST) {
        char *place = w->arena + load->address + c->done;
        model_touch(place, sizeof(int64_t), 0);
        MODEL_CHECK(*number_at(place) == expected(load, c->done));
        w->is_checked[(place - w->arena) / REQUEST] = 1;
        MODEL_CHECK(!fx_load_is_spilled(load) || c->expected == w->spill_crcs);
        for (int u = 0; fx_load_is_spilled(load) && u < w->units; u++) {
            model_touch(&c->expected[u], sizeof(uint32_t), 0);
            MODEL_CHECK(c->expected[u] == (uint32_t)*number_at(place));
        }
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

fx_status fx_seals_check(fx_engine *e, fx_poll *poll, fx_error *error) {
    (void)poll, (void)error;
    e->is_suspect = 0;
    return FX_OK;
}

uint32_t fx_crc32c_by(fx_crc_path path, uint32_t crc, const void *data, size_t n) {
    (void)path, (void)data, (void)n;
    return crc;
}

void fx_pinned_drop(fx_engine *e, fx_range range) {
    (void)e, (void)range;
}

/* ---- making ---- */

void lay_loads(int number, const sketch *s, int shift) {
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

void make(int number, const sketch *s) {
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

void spill_through(int number, int load) {
    fx_bound *b = &w->bound[number];
    w->loads[number][load].file_offset = FX_SPILL_FROM;
    w->nodes[number][0].out.base = FX_BASE_SPILL;
    b->program.spill = (fx_file){SPILL_FD, -1};
    b->stores = w->stores;
    b->spill_crcs = w->spill_crcs;
}

void hold(int number, int holder) {
    fx_bound *b = &w->bound[number];
    w->held[number][0] = &w->loads[holder][0];
    w->steps[number][0].panel_offset = w->loads[holder][0].address;
    w->used[number][b->touches.used_count++] = (fx_touch){fx_load_target(&w->loads[holder][0]), 1};
    w->bound[holder].touches.write_count = w->bound[holder].program.load_count;
}

fx_engine *open_engine(int threads, int readers, int units) {
    w = model_alloc(sizeof *w);
    fx_engine *e = &w->e;
    w->units = units;
    w->readers = readers;
    e->arena.memory = w->arena;
    e->arena.bytes = ARENA;
    e->poison = 1;
    e->process = (fx_process){.process = getpid()};
    atomic_store(&e->steps_wanted, INT64_MAX);
    MODEL_CHECK(!fx_event_init(&e->to_loader) && !fx_event_init(&e->to_caller));
    fx_placement placement = {.fineness = 1};
    const fx_spare spare = {fx_loader_spare, &e->loading.changes, e};
    MODEL_CHECK(!fx_workers_start(&e->workers, threads, &placement, 0, &spare));
    e->workers.spin_ns = 0;
    if (readers)
        MODEL_CHECK(!fx_loader_start(e));
    e->has_loader = readers != 0;
    e->loading.is_waiting = 1; /* no help, unless a scenario wants it */
    MODEL_CHECK(fx_arena_bind(&e->arena, 1) == FX_OK);
    return e;
}

void close_engine(fx_engine *e) {
    fx_workers_stop(&e->workers);
    if (e->has_loader)
        MODEL_CHECK(fx_loader_stop(e, 0));
}

static int cancels(void *arg) {
    (void)arg;
    return w->wants_cancel > 0;
}

fx_status run(int number, fx_bound *const *next, uint32_t count) {
    const fx_interrupt interrupt = {cancels, NULL};
    fx_bound *b = &w->bound[number];
    fx_run_stats stats;
    fx_error error;
    model_touch(w->done[number], sizeof w->done[number], 1);
    memset(w->done[number], 0, sizeof w->done[number]);
    w->runs += b->stores != NULL;
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

void good(int number, fx_bound *const *next, uint32_t count) {
    MODEL_CHECK(run(number, next, count) == FX_OK);
}