/* Runs: the caller's part. One program after the other, each walked step by step. */
#include "state.h"

#include <string.h>
#include <unistd.h>

#define LOAD_SPIN_NS 5000

/* ---- turns: what the loader is told ---- */

static int loader_rests(const void *p) {
    return atomic_load(&((const fx_engine *)p)->loader) >= FX_LOADER_PAUSED;
}

fx_status fx_engine_pause(fx_engine *h, fx_poll *poll) {
    h->must_restart = 1;
    if (!h->has_loader)
        return FX_OK;
    atomic_store(&h->command, FX_COMMAND_PAUSE);
    fx_event_notify(&h->to_loader);
    while (!loader_rests(h)) {
        fx_event_wait(&h->to_caller, loader_rests, h, fx_now_ns() + FX_POLL_NS);
        if (fx_polled(poll))
            return FX_ERR_CANCELLED;
    }
    return FX_OK;
}

/* What the loads of a program wait for of one before it: computed when two programs first meet. */
static const uint32_t *loads_after(const fx_bound *before, fx_bound *b) {
    for (int i = 0; i < FX_PREDECESSORS; i++)
        if (b->after[i].before == before)
            return b->after[i].steps;
    fx_after *after = &b->after[b->after_next++ % FX_PREDECESSORS];
    after->before = before;
    for (uint32_t i = 0; i < b->program.load_count; i++)
        after->steps[i] = fx_touches_until(&before->touches, fx_load_target(&b->program.loads[i]));
    return after->steps;
}

/* Tells the loader of one more turn. */
static void add_turn(fx_engine *h, fx_turn turn) {
    const int64_t known = atomic_load(&h->turns_known);
    h->turns[known % FX_RUNS] = turn;
    atomic_store(&h->turns_known, known + 1);
    if (atomic_load(&h->turn_wanted))
        fx_event_notify(&h->to_loader);
}

/* The run that follows another one when all is as announced. */
static fx_announced run_after(const fx_announced *last, fx_bound *b) {
    return (fx_announced){.bound = b,
                          .steps = last->steps + last->bound->program.step_count,
                          .loads = last->loads + last->bound->program.load_count};
}

/* Steps since the run under way began that each load of a run yet to come waits for: the last one that touches its
 * place, of that run and of all announced after it. */
static const uint32_t *waits_of(const fx_engine *h, const fx_announced *now, fx_bound *b) {
    const uint32_t count = b->program.load_count;
    uint32_t *waits = &b->waits[atomic_load(&h->turns_known) % FX_RUNS * count];
    memset(waits, 0, count * sizeof *waits);
    for (int64_t k = -1; k < h->ahead_count; k++) {
        const fx_announced *run = k < 0 ? now : &h->ahead[k];
        const uint32_t *until = loads_after(run->bound, b), since = (uint32_t)(run->steps - now->steps);
        for (uint32_t i = 0; i < count; i++)
            if (until[i])
                waits[i] = since + until[i];
    }
    return waits;
}

/* Tells the loader of a run after all that it knows of. */
static void announce(fx_engine *h, const fx_announced *now, fx_bound *b) {
    const fx_announced *last = h->ahead_count ? &h->ahead[h->ahead_count - 1] : now;
    const fx_announced run = run_after(last, b);
    if (b->program.load_count)
        add_turn(h, (fx_turn){.bound = b,
                              .steps = run.steps,
                              .loads = run.loads,
                              .repeats = last->bound == b,
                              .before = now->steps,
                              .after = last->bound == b ? NULL : waits_of(h, now, b)});
    h->ahead[h->ahead_count++] = run;
}

/* Makes the loader ready for this run, and tells it of those to come. After a run that was broken off, a read that
 * failed, and where another program was announced, it starts afresh: this run reads all its loads itself. */
static fx_status prepare(fx_bound *b, fx_bound *const *next, uint32_t next_count, fx_poll *poll) {
    fx_engine *h = b->host;
    if (h->ahead_count && h->ahead[0].bound != b)
        h->must_restart = 1;
    if (h->must_restart) {
        if (fx_engine_pause(h, poll) != FX_OK)
            return FX_ERR_CANCELLED;
        h->turn = h->loading.next_turn = h->loading.next_index = 0;
        atomic_store(&h->turns_known, 0);
        for (int i = 0; i < FX_RUNS; i++)
            atomic_store(&h->bytes_read[i], 0);
        h->ahead_count = 0;
        h->must_restart = 0;
    }
    if (!h->has_loader)
        return FX_OK;
    const fx_announced now = {b, atomic_load(&h->steps_done),
                              h->ahead_count ? h->ahead[0].loads : atomic_load(&h->loads_done)};
    if (h->ahead_count)
        memmove(h->ahead, h->ahead + 1, --h->ahead_count * sizeof *h->ahead);
    else if (b->program.load_count)
        add_turn(h, (fx_turn){.bound = b, .steps = now.steps, .loads = now.loads});
    for (uint32_t i = 0; i < next_count && i < FX_AHEAD_MAX; i++) {
        if (i == h->ahead_count)
            announce(h, &now, next[i]);
        else if (h->ahead[i].bound != next[i])
            break;
    }
    if (loader_rests(h)) {
        atomic_store(&h->command, FX_COMMAND_GO);
        atomic_store(&h->loader, FX_LOADER_ACTIVE);
        fx_event_notify(&h->to_loader);
    }
    return FX_OK;
}

/* ---- steps ---- */

typedef struct need {
    const fx_engine *h;
    int64_t loads;
    int64_t seen; /* of them */
} need;

static int has_loads(const void *p) {
    const need *n = p;
    return atomic_load(&n->h->loads_done) >= n->loads || loader_rests(n->h);
}

static int has_more_loads(const void *p) {
    const need *n = p;
    return atomic_load(&n->h->loads_done) > n->seen || loader_rests(n->h);
}

/* Waits until loads_done reaches a number; adds the time to *stall_ns, and says in *stall, if not NULL, when it was: 0
 * to 0 where nothing was missing. */
static fx_status wait_loads(fx_engine *h, int64_t loads, fx_poll *poll, int64_t *stall_ns, fx_span *stall,
                            fx_error *error) {
    need n = {.h = h, .loads = loads};
    if (stall)
        *stall = (fx_span){0};
    if (atomic_load(&h->loads_done) >= loads)
        return FX_OK;
    int64_t start = fx_now_ns();
    if (!fx_spin(has_loads, &n, LOAD_SPIN_NS))
        while (!has_loads(&n)) {
            n.seen = atomic_load(&h->loads_done);
            if (!fx_loader_help(h))
                fx_event_wait(&h->to_caller, has_more_loads, &n, fx_now_ns() + FX_POLL_NS);
            if (fx_polled(poll))
                return fx_fail(error, FX_ERR_CANCELLED, 0);
        }
    int64_t end = fx_now_ns();
    *stall_ns += end - start;
    if (stall)
        *stall = (fx_span){start, end};
    if (atomic_load(&h->loads_done) >= loads)
        return FX_OK;
    *error = h->loading.error; /* it rests although nobody paused it: it failed */
    return error->status;
}

static void *address(const fx_engine *h, const fx_place *o, void *const *buffers) {
    if (o->base < 0)
        return NULL;
    return (o->base == FX_BASE_ARENA ? h->arena : (char *)buffers[o->base - 1]) + o->offset;
}

static void make_task(const fx_bound *b, const fx_step *step, void *const *buffers, fx_task *task) {
    const fx_engine *h = b->host;
    const fx_node *node = &b->program.nodes[step->node];
    *task = (fx_task){.call = {.kernels = h->kernels,
                               .params = &node->params,
                               .op = node->op,
                               .kernel = node->kernel,
                               .window = step->window,
                               .out = address(h, &node->out, buffers),
                               .zeros = (const float *)(h->arena + b->program.zeros),
                               .workspace = h->arena + node->workspace},
                      .workspace_bytes = node->workspace_bytes};
    for (int i = 0; i < FX_MAX_INPUTS; i++)
        task->call.in[i] = address(h, &node->in[i], buffers);
    if (node->in[0].base == FX_BASE_FILE)
        task->call.table = &b->tables[node->in[0].offset].face;
    if (fx_op_traits(node->op) & FX_TRAIT_PANELS)
        task->call.weight = (const float *)(h->arena + step->weight);
    if (h->poison)
        fx_poison_step(b, step, &task->call);
    task->units = fx_op_units(h->kernels, node->op, node->kernel, &node->params, step->window, h->pool.cut_threads);
}

/* Takes start from absolute times, but for spans that are none. */
static void since(fx_span *spans, int64_t count, int64_t start) {
    for (int64_t i = 0; spans && i < count; i++)
        if (spans[i].start_ns) {
            spans[i].start_ns -= start;
            spans[i].end_ns -= start;
        }
}

/* Turns the absolute times of a run in a turn into the trace. */
static void finish_trace(fx_bound *b, int64_t turn, int64_t start) {
    const uint32_t steps = b->program.step_count, loads = b->program.load_count;
    for (uint32_t i = 0; i < steps; i++) {
        b->spans[i].start_ns -= start;
        b->spans[i].end_ns -= start;
    }
    since(b->lanes, (int64_t)steps * b->host->pool.threads, start);
    since(b->stalls, (int64_t)steps + 1, start);
    for (uint32_t i = 0; i < loads; i++) {
        fx_span span = b->load_spans[turn % FX_RUNS * loads + i];
        b->spans[steps + i] = (fx_span){span.start_ns - start, span.end_ns - start};
    }
}

static fx_status run_steps(fx_bound *b, void *const *buffers, fx_bound *const *next, uint32_t next_count, fx_poll *poll,
                           fx_run_stats *stats, fx_error *error) {
    fx_engine *h = b->host;
    const fx_program *p = &b->program;
    fx_status status = prepare(b, next, next_count, poll);
    if (status != FX_OK)
        return fx_fail(error, status, 0);
    atomic_store(&h->table_failed, 0);
    atomic_store(&h->table_bytes_read, 0);
    const int64_t loads_before = p->load_count ? h->turns[h->turn % FX_RUNS].loads : 0;
    for (uint32_t first = 0, group = 0, count; first < p->step_count; first += count, group++) {
        const fx_step *steps = &p->steps[first];
        count = p->group_count ? p->groups[group] : 1;
        uint32_t loads = 0;
        for (uint32_t i = 0; i < count; i++)
            loads = steps[i].wait_loads > loads ? steps[i].wait_loads : loads;
        fx_jitter_pause(&h->jitter);
        fx_span *stall = b->stalls ? &b->stalls[first] : NULL;
        if (stall)
            memset(stall, 0, count * sizeof *stall);
        status = loads ? wait_loads(h, loads_before + loads, poll, &stats->stall_ns, stall, error) : FX_OK;
        if (status != FX_OK)
            return status;
        int64_t start = h->trace ? fx_now_ns() : 0;
        for (uint32_t i = 0; i < count; i++)
            make_task(b, &steps[i], buffers, &b->tasks[i]);
        fx_span *lanes = b->lanes ? &b->lanes[(int64_t)first * h->pool.threads] : NULL;
        if (lanes)
            memset(lanes, 0, count * (size_t)h->pool.threads * sizeof *lanes);
        status = fx_workers_run(&h->pool, b->tasks, count, lanes, poll);
        if (status != FX_OK) {
            fx_fail(error, status, 0);
            if (atomic_load(&h->table_failed))
                error->os_error = h->table_error.os_error, error->file_offset = h->table_error.file_offset;
            error->index = steps->node;
            return status;
        }
        int64_t end = h->trace ? fx_now_ns() : 0;
        for (uint32_t i = 0; i < count && h->trace; i++)
            b->spans[first + i] = (fx_span){start, end};
        if (atomic_fetch_add(&h->steps_done, count) + count >= atomic_load(&h->steps_wanted))
            fx_event_notify(&h->to_loader);
        if (fx_polled(poll))
            return fx_fail(error, FX_ERR_CANCELLED, 0);
    }
    /* A program may load what no step waits for; the next turn counts on all loads of this one. */
    fx_span *stall = b->stalls ? &b->stalls[p->step_count] : NULL;
    return wait_loads(h, loads_before + p->load_count, poll, &stats->stall_ns, stall, error);
}

fx_status fx_run(fx_bound *b, void *const *buffers, fx_bound *const *next, uint32_t next_count, int (*ask)(void *),
                 void *poll_arg, fx_run_stats *stats, fx_error *error) {
    fx_engine *h = b->host;
    *stats = (fx_run_stats){0};
    *error = (fx_error){.index = -1};
    if (getpid() != h->process)
        return fx_fail(error, FX_ERR_FORK, 0);
    if (h->is_lost)
        return fx_fail(error, FX_ERR_MEMORY, 0);
    for (uint32_t i = 0; i < next_count; i++)
        if (next[i]->host != h)
            return fx_fail(error, FX_ERR_PARAMS, 0);
    int64_t start = fx_now_ns();
    fx_poll poll = fx_poll_start(ask, poll_arg);
    fx_status status = run_steps(b, buffers, next, next_count, &poll, stats, error);
    if (status != FX_OK) {
        h->must_restart = 1;
        if (h->has_loader) {
            atomic_store(&h->command, FX_COMMAND_PAUSE);
            fx_event_notify(&h->to_loader);
        }
        return status;
    }
    stats->bytes_read = atomic_load(&h->table_bytes_read);
    if (b->program.load_count)
        stats->bytes_read += atomic_exchange(&h->bytes_read[h->turn % FX_RUNS], 0);
    stats->run_ns = fx_now_ns() - start;
    if (h->trace)
        finish_trace(b, h->turn, start);
    h->turn += b->program.load_count > 0;
    return FX_OK;
}

const fx_span *fx_trace(const fx_bound *b) {
    return b->spans;
}
const fx_span *fx_trace_threads(const fx_bound *b) {
    return b->lanes;
}
const fx_span *fx_trace_stalls(const fx_bound *b) {
    return b->stalls;
}
