/* The caller's part of a run: programs run one after the other, each step by step. */
#include "protocol.h"

#include <string.h>
#include <unistd.h>

#define LOAD_SPIN_NS 5000

/* Makes the loader ready for this run and tells it of those to come. After a run that was broken off or a read that
 * failed, or if another program was announced, it starts afresh and reads all loads of this run. */
static fx_status prepare(fx_bound *b, fx_bound *const *next, uint32_t next_count, fx_poll *poll) {
    fx_engine *e = b->engine;
    if (fx_turns_must_restart(e, b)) {
        if (fx_loader_pause(e, poll) != FX_OK)
            return FX_ERR_CANCELLED;
        fx_turns_restart(e);
    }
    if (e->has_loader)
        fx_turns_announce(b, next, next_count);
    return FX_OK;
}

/* Waits until loads_done reaches `loads` and adds the time to *stall_ns. *stall, if not NULL, becomes the span of the
 * wait, 0 to 0 where there was none. */
static fx_status wait_loads(fx_engine *e, int64_t loads, fx_poll *poll, int64_t *stall_ns, fx_span *stall,
                            fx_error *error) {
    fx_need n = {.e = e, .loads = loads};
    const int64_t spin_ns = e->loading.spin_ns > LOAD_SPIN_NS ? e->loading.spin_ns : LOAD_SPIN_NS;
    if (stall)
        *stall = (fx_span){0};
    if (atomic_load(&e->loads_done) >= loads)
        return FX_OK;
    int64_t start = fx_now_ns();
    /* What nobody reads is read here at once, as a reader that wakes takes longer; what somebody reads may come soon.
     * Where compute threads read, what this thread reads now no thread reads later: it waits only if it cannot help. */
    while (!fx_has_loads(&n) && fx_loader_help_alone(e))
        if (fx_polled(poll))
            return fx_fail(error, FX_ERR_CANCELLED, 0);
    if (!atomic_load(&e->loading.is_shared))
        fx_spin(fx_has_loads, &n, LOAD_SPIN_NS);
    while (!fx_has_loads(&n)) {
        n.seen = atomic_load(&e->loads_done);
        if (!fx_loader_help(e) && !fx_spin(fx_has_more_loads, &n, spin_ns))
            fx_event_wait(&e->to_caller, fx_has_more_loads, &n, fx_now_ns() + FX_POLL_NS);
        if (fx_polled(poll))
            return fx_fail(error, FX_ERR_CANCELLED, 0);
    }
    int64_t end = fx_now_ns();
    *stall_ns += end - start;
    if (stall)
        *stall = (fx_span){start, end};
    if (atomic_load(&e->loads_done) >= loads)
        return FX_OK;
    *error = e->loading.error; /* the loader rests although nobody paused it, so it failed */
    return error->status;
}

static void *address(const fx_engine *e, const fx_place *o, void *const *buffers) {
    if (o->base < 0)
        return NULL;
    return (o->base == FX_BASE_ARENA ? e->arena.memory : (char *)buffers[o->base - 1]) + o->offset;
}

fx_status fx_step_fail(fx_engine *e, fx_error error) {
    int none = 0; /* the first thread that fails reports its error */
    if (atomic_compare_exchange_strong(&e->step_failed, &none, 1))
        e->step_error = error;
    return error.status;
}

static void make_task(fx_bound *b, const fx_step *step, void *const *buffers, uint32_t number) {
    fx_task *task = &b->tasks[number];
    const fx_engine *e = b->engine;
    const fx_node *node = &b->program.nodes[step->node];
    *task = (fx_task){.call = {.kernels = e->kernels,
                               .params = &node->params,
                               .op = node->op,
                               .kernel = node->kernel,
                               .window = step->window,
                               .out = address(e, &node->out, buffers),
                               .zeros = (const float *)(e->arena.memory + b->program.zeros_offset),
                               .workspace = e->arena.memory + node->workspace_offset,
                               .shared = e->arena.memory + node->workspace_offset,
                               .shared_step = node->workspace_bytes,
                               .draw = e->draws},
                      .workspace_bytes = node->workspace_bytes};
    for (int i = 0; i < FX_MAX_INPUTS; i++)
        task->call.in[i] = address(e, &node->in[i], buffers);
    if (node->in[0].base == FX_BASE_FILE)
        task->call.table = &b->tables[node->in[0].offset].face;
    if (fx_op_traits(node->op) & FX_TRAIT_PANELS)
        task->call.weight = (const float *)(e->arena.memory + step->panel_offset);
    if (e->poison)
        fx_poison_step(b, step, &task->call);
    task->units = fx_op_units(e->kernels, node->op, node->kernel, &node->params, step->window, e->workers.cut_threads);
    task->phases = fx_op_phases(e->kernels, node->op, &node->params, e->workers.cut_threads);
    if (node->out.base == FX_BASE_SPILL) {
        task->units = fx_spill_begin(b, node, &b->stores[number]);
        task->call.sink = &b->stores[number].face;
    }
}

/* Makes absolute times relative to start; empty spans stay 0 to 0. */
static void since(fx_span *spans, int64_t count, int64_t start) {
    for (int64_t i = 0; spans && i < count; i++)
        if (spans[i].start_ns) {
            spans[i].start_ns -= start;
            spans[i].end_ns -= start;
        }
}

/* Turns the absolute times of a turn's run into the trace. */
static void finish_trace(fx_bound *b, int64_t turn, int64_t start) {
    const uint32_t steps = b->program.step_count, loads = b->program.load_count;
    for (uint32_t i = 0; i < steps; i++) {
        b->spans[i].start_ns -= start;
        b->spans[i].end_ns -= start;
    }
    since(b->lanes, (int64_t)steps * b->engine->workers.threads, start);
    since(b->stalls, (int64_t)steps + 1, start);
    for (uint32_t i = 0; i < loads; i++) {
        fx_span span = b->load_spans[turn % FX_RUNS * loads + i];
        b->spans[steps + i] = (fx_span){span.start_ns - start, span.end_ns - start};
    }
}

static fx_status run_steps(fx_bound *b, void *const *buffers, fx_bound *const *next, uint32_t next_count, fx_poll *poll,
                           fx_run_stats *stats, fx_error *error) {
    fx_engine *e = b->engine;
    const fx_program *p = &b->program;
    fx_status status = prepare(b, next, next_count, poll);
    if (status != FX_OK)
        return fx_fail(error, status, 0);
    atomic_store(&e->step_failed, 0);
    atomic_store(&e->table_bytes_read, 0);
    atomic_store(&e->bytes_written, 0);
    const int64_t loads_before = fx_turn_loads(b);
    for (uint32_t first = 0, group = 0, count; first < p->step_count; first += count, group++) {
        const fx_step *steps = &p->steps[first];
        count = p->group_count ? p->groups[group] : 1;
        uint32_t loads = 0;
        for (uint32_t i = 0; i < count; i++)
            loads = steps[i].wait_loads > loads ? steps[i].wait_loads : loads;
        fx_jitter_pause(&e->jitter);
        fx_span *stall = b->stalls ? &b->stalls[first] : NULL;
        if (stall)
            memset(stall, 0, count * sizeof *stall);
        status = loads ? wait_loads(e, loads_before + loads, poll, &stats->stall_ns, stall, error) : FX_OK;
        if (status != FX_OK)
            return status;
        for (uint32_t i = 0; i < count; i++)
            make_task(b, &steps[i], buffers, i);
        fx_span *lanes = b->lanes ? &b->lanes[(int64_t)first * e->workers.threads] : NULL;
        if (lanes)
            memset(lanes, 0, count * (size_t)e->workers.threads * sizeof *lanes);
        const uint32_t parts =
            fx_sharing_parts(e->sharing, b->costs[group], (uint32_t)fx_workers_phases(b->tasks, count));
        status = fx_workers_run(&e->workers, b->tasks, count, parts, lanes, poll);
        if (status != FX_OK) {
            fx_fail(error, status, 0);
            if (atomic_load(&e->step_failed))
                *error = e->step_error;
            error->index = steps->node;
            return status;
        }
        fx_sharing_learn(e->sharing, &b->costs[group], &e->workers);
        for (uint32_t i = 0; i < count && e->trace; i++)
            b->spans[first + i] = e->workers.last;
        fx_steps_finish(e, count);
    }
    /* There may be loads that no step waits for, and the next turn relies on all loads of this one being done. */
    fx_span *stall = b->stalls ? &b->stalls[p->step_count] : NULL;
    return wait_loads(e, loads_before + p->load_count, poll, &stats->stall_ns, stall, error);
}

fx_status fx_run_bound(fx_bound *b, void *const *buffers, fx_bound *const *next, uint32_t next_count, fx_poll *poll,
                       fx_run_stats *stats, fx_error *error) {
    fx_engine *e = b->engine;
    const int64_t start = fx_now_ns();
    e->draws++;
    fx_edits_show(b);
    const fx_status status = run_steps(b, buffers, next, next_count, poll, stats, error);
    if (status != FX_OK) {
        fx_loader_ask_to_pause(e);
        return status;
    }
    stats->bytes_read = atomic_load(&e->table_bytes_read);
    stats->bytes_written = atomic_load(&e->bytes_written);
    if (b->program.load_count)
        stats->bytes_read += atomic_exchange(&e->bytes_read[e->turn % FX_RUNS], 0);
    stats->run_ns = fx_now_ns() - start;
    if (e->trace)
        finish_trace(b, e->turn, start);
    fx_turn_end(b);
    return FX_OK;
}

fx_status fx_run(fx_bound *b, void *const *buffers, fx_bound *const *next, uint32_t next_count,
                 const fx_interrupt *interrupt, fx_run_stats *stats, fx_error *error) {
    fx_engine *e = b->engine;
    *stats = (fx_run_stats){0};
    *error = (fx_error){.index = -1};
    if (!fx_process_is_here(&e->process))
        return fx_fail(error, FX_ERR_FORK, 0);
    if (fx_arena_is_lost(&e->arena))
        return fx_fail(error, FX_ERR_MEMORY, 0);
    for (uint32_t i = 0; i < next_count; i++)
        if (next[i]->engine != e)
            return fx_fail(error, FX_ERR_PARAMS, 0);
    if (fx_arena_begin(&e->arena) != FX_OK)
        return fx_fail(error, FX_ERR_RUNNING, 0);
    e->stopped = NULL;
    fx_poll poll = fx_poll_start(interrupt);
    fx_status status = fx_seals_check(e, &poll, error);
    if (status == FX_OK) {
        e->sharing = &b->sharing;
        fx_workers_keep_apart(&e->workers);
        fx_sharing_begin(&b->sharing, fx_now_ns());
        status = fx_run_bound(b, buffers, next, next_count, &poll, stats, error);
        fx_sharing_end(&b->sharing, fx_now_ns());
        e->is_suspect = status != FX_OK;
    }
    fx_arena_end(&e->arena);
    return status;
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
