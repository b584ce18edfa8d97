/* A session: one program, one arena, its threads; runs one after the other. */
#include "session.h"

#include "arena.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOAD_SPIN_NS 5000

static fx_status fail(fx_error *error, fx_status status, int os_error) {
    *error = (fx_error){.status = status, .os_error = os_error, .index = -1};
    return status;
}

/* ---- opening ---- */

/* Takes bytes for an array out of the allocation behind the session; counts only while memory is NULL. */
static void *carve(char *memory, int64_t *used, int64_t bytes) {
    int64_t at = *used;
    *used = (at + bytes + 63) / 64 * 64;
    return memory ? memory + at : NULL;
}

static uint32_t largest_group(const fx_program *p) {
    uint32_t largest = 1;
    for (uint32_t i = 0; i < p->group_count; i++)
        largest = p->groups[i] > largest ? p->groups[i] : largest;
    return largest;
}

/* Lays the session out in memory (NULL: only counts); bytes it takes. */
static int64_t lay_out(char *memory, const fx_program *p, const fx_options *o) {
    int64_t used = 0;
    fx_session *s = carve(memory, &used, sizeof *s);
#define CARVE(field, count, wanted)                                                                                    \
    do {                                                                                                               \
        void *at = carve(memory, &used, (wanted) ? (int64_t)(count) * (int64_t)sizeof *s->field : 0);                  \
        if (memory)                                                                                                    \
            s->field = (wanted) ? at : NULL;                                                                           \
    } while (0)
#define COPY(field, count)                                                                                             \
    do {                                                                                                               \
        void *at = carve(memory, &used, (int64_t)(count) * (int64_t)sizeof *p->field);                                 \
        if (memory) {                                                                                                  \
            if (count)                                                                                                 \
                memcpy(at, p->field, (size_t)(count) * sizeof *p->field);                                              \
            s->program.field = at;                                                                                     \
        }                                                                                                              \
    } while (0)
    if (memory)
        s->program = *p;
    COPY(nodes, p->node_count);
    COPY(steps, p->step_count);
    COPY(groups, p->group_count);
    COPY(pinned, p->pinned_count);
    COPY(loads, p->load_count);
    COPY(tables, p->table_count);
    COPY(crcs, p->crc_count);
    COPY(io_bytes, p->input_count + p->output_count);
    CARVE(load_spans, (int64_t)FX_RUNS * p->load_count, o->trace);
    CARVE(spans, (int64_t)p->step_count + p->load_count, o->trace);
    CARVE(first_steps, p->step_count, o->poison);
    CARVE(tasks, largest_group(p), 1);
    CARVE(tables, p->table_count, 1);
#undef COPY
#undef CARVE
    return used;
}

static int pinned_interrupted(void *poll) {
    return fx_polled(poll);
}

static fx_status read_pinned(fx_session *s, const fx_options *o, fx_error *error) {
    fx_poll poll = fx_poll_start(o->poll, o->poll_arg);
    for (uint32_t i = 0; i < s->program.pinned_count; i++) {
        fx_status status = fx_load_read(s, &s->program.pinned[i], pinned_interrupted, &poll, error);
        if (status != FX_OK) {
            error->is_load = error->is_pinned = 1;
            error->index = i;
            return status;
        }
    }
    return FX_OK;
}

static void mark_first_steps(fx_session *s) {
    const fx_program *p = &s->program;
    for (uint32_t i = 0; i < p->step_count; i++) {
        uint32_t before = 0;
        while (before < i && p->steps[before].node != p->steps[i].node)
            before++;
        s->first_steps[i] = before == i;
    }
}

static void free_memory(fx_session *s) {
    if (s->arena)
        fx_arena_unmap(s->arena, s->program.arena_bytes);
    free(s);
}

/* Threads and what they wait on; all or nothing. */
static fx_status start_threads(fx_session *s, const fx_options *o, fx_error *error) {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed))
        CPU_ZERO(&allowed);
    s->placement = fx_place_threads(FX_CORES_ROOT, &allowed, o->threads);
    int os_error = fx_event_init(&s->to_loader);
    if (os_error)
        return fail(error, FX_ERR_THREAD, os_error);
    os_error = fx_event_init(&s->to_caller);
    if (os_error)
        goto no_event;
    os_error = fx_pool_start(&s->pool, o->threads, &s->placement, o->jitter_seed);
    if (os_error)
        goto no_pool;
    os_error = s->program.load_count ? fx_loader_start(s, o->jitter_seed) : 0;
    if (!os_error)
        return FX_OK;
    fx_pool_stop(&s->pool);
no_pool:
    fx_event_destroy(&s->to_caller);
no_event:
    fx_event_destroy(&s->to_loader);
    return fail(error, FX_ERR_THREAD, os_error);
}

fx_session *fx_session_open(const fx_program *p, const fx_options *o, fx_error *error) {
    const fx_kernels *kernels = fx_kernels_for(o->isa);
    if (!kernels || o->threads < 1 || o->threads > FX_MAX_THREADS || o->read_bytes_per_second < 0) {
        fail(error, FX_ERR_PARAMS, 0);
        return NULL;
    }
    if (fx_program_check(p, o->threads, kernels, error) != FX_OK)
        return NULL;
    int64_t bytes = lay_out(NULL, p, o);
    char *memory = aligned_alloc(64, (size_t)bytes);
    if (!memory) {
        fail(error, FX_ERR_MEMORY, ENOMEM);
        return NULL;
    }
    memset(memory, 0, sizeof(fx_session));
    lay_out(memory, p, o);
    fx_session *s = (fx_session *)memory;
    s->kernels = kernels;
    fx_tables_start(s);
    s->crc_path = fx_crc_path_best();
    s->fd = o->fd;
    s->direct_fd = o->direct_fd;
    s->poison = o->poison;
    s->trace = o->trace;
    s->fresh = o->fresh;
    s->read_bytes_per_second = o->read_bytes_per_second;
    s->process = getpid();
    s->jitter = fx_jitter_start(o->jitter_seed, 101);
    atomic_init(&s->command, FX_COMMAND_GO);
    atomic_init(&s->loader, FX_LOADER_ACTIVE);
    atomic_init(&s->steps_wanted, INT64_MAX);
    s->arena = fx_arena_map(p->arena_bytes);
    if (!s->arena) {
        fail(error, FX_ERR_MEMORY, ENOMEM);
        free_memory(s);
        return NULL;
    }
    if (s->poison) {
        fx_poison(s->arena, p->arena_bytes);
        if (p->zeros_count)
            memset(s->arena + p->zeros, 0, (size_t)p->zeros_count * 4);
        mark_first_steps(s);
    }
    if (read_pinned(s, o, error) != FX_OK || start_threads(s, o, error) != FX_OK) {
        free_memory(s);
        return NULL;
    }
    s->bytes =
        bytes + fx_arena_size(p->arena_bytes) + fx_thread_stack_bytes() * (s->pool.threads - 1 + s->loading.threads);
    return s;
}

void fx_session_close(fx_session *s) {
    if (!s)
        return;
    if (getpid() == s->process) { /* in a child of fork there are no threads, and their locks stay as they were */
        if (s->program.load_count)
            fx_loader_stop(s);
        fx_pool_stop(&s->pool);
        fx_event_destroy(&s->to_caller);
        fx_event_destroy(&s->to_loader);
    }
    free_memory(s);
}

int64_t fx_session_bytes(const fx_session *s) {
    return s->bytes;
}
int fx_session_threads(const fx_session *s) {
    return s->pool.threads;
}
const fx_span *fx_session_trace(const fx_session *s) {
    return s->spans;
}

/* ---- running ---- */

static int loader_rests(const void *p) {
    return atomic_load(&((const fx_session *)p)->loader) >= FX_LOADER_PAUSED;
}

/* Makes counters and loader ready for the next run: after a run that was broken off both counters jump past everything
 * that may have been begun, and the run reads all its loads itself; after a read that failed it is tried again. */
static fx_status prepare(fx_session *s, fx_poll *poll) {
    const int has_loader = s->program.load_count > 0;
    if (s->must_restart) {
        if (has_loader) {
            atomic_store(&s->command, FX_COMMAND_PAUSE);
            fx_event_notify(&s->to_loader);
            while (!loader_rests(s)) {
                fx_event_wait(&s->to_caller, loader_rests, s, fx_now_ns() + FX_POLL_NS);
                if (fx_polled(poll))
                    return FX_ERR_CANCELLED;
            }
        }
        s->run += 2; /* the loader was at most in the run after the one broken off */
        atomic_store(&s->steps_done, s->run * s->program.step_count);
        atomic_store(&s->loads_done, s->run * s->program.load_count);
        s->loading.next_load = s->run * s->program.load_count;
        for (int i = 0; i < FX_RUNS; i++)
            atomic_store(&s->bytes_read[i], 0);
        s->must_restart = 0;
    }
    if (has_loader && loader_rests(s)) {
        atomic_store(&s->command, FX_COMMAND_GO);
        atomic_store(&s->loader, FX_LOADER_ACTIVE);
        fx_event_notify(&s->to_loader);
    }
    return FX_OK;
}

typedef struct need {
    const fx_session *s;
    int64_t loads;
} need;

static int has_loads(const void *p) {
    const need *n = p;
    return atomic_load(&n->s->loads_done) >= n->loads || loader_rests(n->s);
}

/* Waits until loads_done reaches a number; adds the time to *stall_ns. */
static fx_status wait_loads(fx_session *s, int64_t loads, fx_poll *poll, int64_t *stall_ns, fx_error *error) {
    need n = {.s = s, .loads = loads};
    if (atomic_load(&s->loads_done) >= loads)
        return FX_OK;
    int64_t start = fx_now_ns();
    if (!fx_spin(has_loads, &n, LOAD_SPIN_NS))
        while (!has_loads(&n)) {
            fx_event_wait(&s->to_caller, has_loads, &n, fx_now_ns() + FX_POLL_NS);
            if (fx_polled(poll))
                return fail(error, FX_ERR_CANCELLED, 0);
        }
    *stall_ns += fx_now_ns() - start;
    if (atomic_load(&s->loads_done) >= loads)
        return FX_OK;
    *error = s->loading.error; /* it rests although nobody paused it: it failed */
    return error->status;
}

static void *address(const fx_session *s, const fx_operand *o, void *const *buffers) {
    if (o->base < 0)
        return NULL;
    return (o->base == FX_BASE_ARENA ? s->arena : (char *)buffers[o->base - 1]) + o->offset;
}

static void make_task(fx_session *s, const fx_step *step, void *const *buffers, fx_task *task) {
    const fx_node *node = &s->program.nodes[step->node];
    *task = (fx_task){.call = {.kernels = s->kernels,
                               .params = &node->params,
                               .op = node->op,
                               .kernel = node->kernel,
                               .window = step->window,
                               .out = address(s, &node->out, buffers),
                               .zeros = (const float *)(s->arena + s->program.zeros),
                               .scratch = s->arena + node->scratch},
                      .scratch_bytes = node->scratch_bytes};
    for (int i = 0; i < FX_MAX_INPUTS; i++)
        task->call.in[i] = address(s, &node->in[i], buffers);
    if (node->in[0].base == FX_BASE_FILE)
        task->call.table = &s->tables[node->in[0].offset].face;
    if (fx_op_traits(node->op) & FX_TRAIT_PANELS)
        task->call.weight = (const float *)(s->arena + step->weight);
    if (s->poison)
        fx_poison_step(s, step, &task->call);
    task->units = fx_op_units(s->kernels, node->op, node->kernel, &node->params, step->window, s->pool.cut_threads);
}

/* Turns the absolute times of run r into the trace. */
static void finish_trace(fx_session *s, int64_t run, int64_t start) {
    const uint32_t steps = s->program.step_count, loads = s->program.load_count;
    for (uint32_t i = 0; i < steps; i++) {
        s->spans[i].start_ns -= start;
        s->spans[i].end_ns -= start;
    }
    for (uint32_t i = 0; i < loads; i++) {
        fx_span span = s->load_spans[run % FX_RUNS * loads + i];
        s->spans[steps + i] = (fx_span){span.start_ns - start, span.end_ns - start};
    }
}

static fx_status run_steps(fx_session *s, void *const *buffers, fx_poll *poll, fx_run_stats *stats, fx_error *error) {
    fx_status status = prepare(s, poll);
    if (status != FX_OK)
        return fail(error, status, 0);
    const fx_program *p = &s->program;
    const int64_t loads_before = s->run * p->load_count;
    atomic_store(&s->table_failed, 0);
    for (uint32_t first = 0, group = 0, count; first < p->step_count; first += count, group++) {
        const fx_step *steps = &p->steps[first];
        count = p->group_count ? p->groups[group] : 1;
        uint32_t loads = 0;
        for (uint32_t i = 0; i < count; i++)
            loads = steps[i].wait_loads > loads ? steps[i].wait_loads : loads;
        fx_jitter_pause(&s->jitter);
        status = wait_loads(s, loads_before + loads, poll, &stats->stall_ns, error);
        if (status != FX_OK)
            return status;
        int64_t start = s->trace ? fx_now_ns() : 0;
        for (uint32_t i = 0; i < count; i++)
            make_task(s, &steps[i], buffers, &s->tasks[i]);
        status = fx_pool_run(&s->pool, s->tasks, count, poll);
        if (status != FX_OK) {
            fail(error, status, 0);
            if (atomic_load(&s->table_failed))
                error->os_error = s->table_error.os_error, error->file_offset = s->table_error.file_offset;
            error->index = steps->node;
            return status;
        }
        int64_t end = s->trace ? fx_now_ns() : 0;
        for (uint32_t i = 0; i < count && s->trace; i++)
            s->spans[first + i] = (fx_span){start, end};
        if (atomic_fetch_add(&s->steps_done, count) + count >= atomic_load(&s->steps_wanted))
            fx_event_notify(&s->to_loader);
        if (fx_polled(poll))
            return fail(error, FX_ERR_CANCELLED, 0);
    }
    /* A program may load what no step waits for; the next run counts on all loads of this one. */
    return wait_loads(s, loads_before + s->program.load_count, poll, &stats->stall_ns, error);
}

fx_status fx_session_run(fx_session *s, void *const *buffers, int (*ask)(void *), void *poll_arg, fx_run_stats *stats,
                         fx_error *error) {
    *stats = (fx_run_stats){0};
    *error = (fx_error){.index = -1};
    if (getpid() != s->process)
        return fail(error, FX_ERR_FORK, 0);
    int64_t start = fx_now_ns();
    fx_poll poll = fx_poll_start(ask, poll_arg);
    fx_status status = run_steps(s, buffers, &poll, stats, error);
    if (status != FX_OK) {
        s->must_restart = 1;
        atomic_store(&s->command, FX_COMMAND_PAUSE);
        fx_event_notify(&s->to_loader);
        return status;
    }
    stats->bytes_read = atomic_exchange(&s->bytes_read[s->run % FX_RUNS], 0);
    stats->run_ns = fx_now_ns() - start;
    if (s->trace)
        finish_trace(s, s->run, start);
    s->run++;
    return FX_OK;
}
