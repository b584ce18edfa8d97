/* Programs bound to the engine: checked, copied, their pinned weights in place. */
#include "state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BACKED_MAX ((int64_t)512 << 10) /* more is zeroed by all threads as they first reach it */

static uint32_t largest_group(const fx_program *p) {
    uint32_t largest = 1;
    for (uint32_t i = 0; i < p->group_count; i++)
        largest = p->groups[i] > largest ? p->groups[i] : largest;
    return largest;
}

/* Lays the bound program out in memory (NULL: only counts) and returns the bytes it takes. */
static int64_t lay_out(char *memory, const fx_program *p, const fx_engine *e) {
    int64_t used = 0;
    fx_bound *b = fx_carve(memory, &used, sizeof *b);
#define CARVE(field, count, wanted)                                                                                    \
    do {                                                                                                               \
        void *at = fx_carve(memory, &used, (wanted) ? (int64_t)(count) * (int64_t)sizeof *b->field : 0);               \
        if (memory)                                                                                                    \
            b->field = (wanted) ? at : NULL;                                                                           \
    } while (0)
#define COPY(field, count)                                                                                             \
    do {                                                                                                               \
        void *at = fx_carve(memory, &used, (int64_t)(count) * (int64_t)sizeof *p->field);                              \
        if (memory) {                                                                                                  \
            if (count)                                                                                                 \
                memcpy(at, p->field, (size_t)(count) * sizeof *p->field);                                              \
            b->program.field = at;                                                                                     \
        }                                                                                                              \
    } while (0)
    if (memory) {
        b->program = *p;
        b->records = memory + used;
    }
    COPY(nodes, p->node_count);
    COPY(steps, p->step_count);
    COPY(groups, p->group_count);
    COPY(pinned, p->pinned_count);
    COPY(loads, p->load_count);
    COPY(tables, p->table_count);
    COPY(spills, p->spill_count);
    COPY(crcs, p->crc_count);
    COPY(io_bytes, p->input_count + p->output_count);
    for (int i = 0; i < FX_PREDECESSORS; i++)
        CARVE(after[i].steps, p->load_count, 1);
    CARVE(waits, (int64_t)FX_RUNS * p->load_count, 1);
    CARVE(load_spans, (int64_t)FX_RUNS * p->load_count, e->trace);
    CARVE(spans, (int64_t)p->step_count + p->load_count, e->trace);
    CARVE(lanes, (int64_t)p->step_count * e->workers.threads, e->trace > 1);
    CARVE(stalls, (int64_t)p->step_count + 1, e->trace > 1);
    CARVE(first_steps, p->step_count, e->poison);
    CARVE(tasks, largest_group(p), 1);
    CARVE(costs, p->group_count ? p->group_count : p->step_count, 1);
    CARVE(tables, p->table_count, 1);
    CARVE(stores, largest_group(p), p->spill_count);
    CARVE(spill_crcs, p->spill_crc_count, p->spill_count);
#undef COPY
#undef CARVE
    return used;
}

static void mark_first_steps(fx_bound *b) {
    const fx_program *p = &b->program;
    for (uint32_t i = 0; i < p->step_count; i++) {
        uint32_t before = 0;
        while (before < i && p->steps[before].node != p->steps[i].node)
            before++;
        b->first_steps[i] = before == i;
    }
}

/* Returns a copy of the program with arrays of its own. NULL: there is no memory. */
static fx_bound *make_alone(fx_engine *e, const fx_program *p, int64_t *bytes) {
    *bytes = lay_out(NULL, p, e);
    char *memory = aligned_alloc(64, (size_t)*bytes);
    if (!memory)
        return NULL;
    memset(memory, 0, sizeof(fx_bound));
    lay_out(memory, p, e);
    fx_bound *b = (fx_bound *)memory;
    b->engine = e;
    b->sharing.always = e->jitter_seed != 0;
    memset(b->costs, 0, (p->group_count ? p->group_count : p->step_count) * sizeof *b->costs);
    fx_tables_start(b);
    if (e->poison)
        mark_first_steps(b);
    return b;
}

/* Returns a copy of the program with the ranges it touches, which is not yet in the engine's list. */
static fx_bound *make(fx_engine *e, const fx_program *p, fx_poll *poll, fx_error *error) {
    int64_t bytes;
    fx_bound *b = fx_edits_make(e, p, &bytes);
    b = b ? b : make_alone(e, p, &bytes);
    const fx_status status = b ? fx_touches_make(&b->touches, p, e->workers.threads, poll) : FX_ERR_MEMORY;
    if (status == FX_OK) {
        b->bytes = bytes + b->touches.bytes;
        return b;
    }
    if (b) {
        b->touches = (fx_touches){0};
        fx_edits_free(b);
    }
    e->is_suspect |= status == FX_ERR_MEMORY;
    fx_fail(error, status, status == FX_ERR_MEMORY ? ENOMEM : 0);
    return NULL;
}

int fx_share_pins(const fx_program *a, const fx_program *b) {
    return a->pinned_count == b->pinned_count && a->zeros_offset == b->zeros_offset &&
           a->zeros_count == b->zeros_count &&
           (!a->pinned_count ||
            (a->file.fd == b->file.fd && !memcmp(a->pinned, b->pinned, a->pinned_count * sizeof *a->pinned)));
}

/* Whether two programs leave each other's pinned weights and zeros alone, or share all of them. */
static int agree(const fx_bound *a, const fx_bound *b) {
    const fx_touches *x = &a->touches, *y = &b->touches;
    return fx_share_pins(&a->program, &b->program) ||
           (!fx_lists_meet(x->pinned, x->pinned_count, y->pinned, y->pinned_count) &&
            !fx_lists_meet(x->pinned, x->pinned_count, y->writes, y->write_count) &&
            !fx_lists_meet(x->writes, x->write_count, y->pinned, y->pinned_count));
}

/* The bound program that has the same pins in place; NULL: none. */
static const fx_bound *with_same_pins(const fx_engine *e, const fx_program *p) {
    const fx_bound *other = e->bound;
    while (other && !fx_share_pins(p, &other->program))
        other = other->others;
    return other;
}

fx_status fx_engine_grow(fx_engine *e, int64_t bytes, fx_error *error) {
    const int64_t before = e->arena.memory ? e->arena.bytes : 0;
    if (bytes > before)
        fx_engine_trim_heap(e); /* what planning has freed goes back first: the budget covers both */
    const fx_status status = fx_arena_grow(&e->arena, bytes);
    if (e->arena.bytes != before)
        e->stopped = NULL;
    if (status != FX_OK) {
        e->is_suspect = 1;
        return fx_fail(error, status, ENOMEM);
    }
    if (e->poison && e->arena.bytes > before)
        fx_poison(e->arena.memory + before, e->arena.bytes - before);
    else if (e->is_loose && before && e->arena.bytes > before && e->arena.bytes - before <= BACKED_MAX)
        fx_arena_back(&e->arena, fx_arena_size(before), e->arena.bytes - before);
    return FX_OK;
}

static fx_status start_loader(fx_engine *e, fx_error *error) {
    int os_error = fx_loader_start(e);
    e->has_loader = !os_error;
    return os_error ? fx_fail(error, FX_ERR_THREAD, os_error) : FX_OK;
}

static fx_status bring(fx_engine *e, fx_bound *b, fx_poll *poll, fx_bind_stats *stats, fx_error *error) {
    const fx_program *p = &b->program;
    if (fx_loader_pause(e, poll) != FX_OK)
        return fx_fail(error, FX_ERR_CANCELLED, 0);
    fx_status status = fx_engine_grow(e, p->arena_bytes, error);
    if (status == FX_OK && !e->is_suspect && with_same_pins(e, p))
        for (uint32_t i = 0; i < p->pinned_count; i++)
            stats->kept += p->pinned[i].check_bytes;
    else if (status == FX_OK)
        status = fx_pinned_bring(e, p, &b->touches, poll, stats, error);
    if (status != FX_OK)
        return status;
    for (int64_t i = 0; i < b->touches.write_count && e->poison; i++)
        fx_poison(e->arena.memory + b->touches.writes[i].lo, b->touches.writes[i].hi - b->touches.writes[i].lo);
    if (p->zeros_count)
        memset(e->arena.memory + p->zeros_offset, 0, (size_t)p->zeros_count * 4);
    return p->load_count && !e->has_loader ? start_loader(e, error) : FX_OK;
}

fx_bound *fx_bind(fx_engine *e, const fx_program *p, const fx_interrupt *interrupt, fx_bind_stats *stats,
                  fx_error *error) {
    fx_poll poll = fx_poll_start_every(interrupt, FX_SETUP_POLL_NS);
    *stats = (fx_bind_stats){0};
    const fx_status refused = !fx_process_is_here(&e->process) ? FX_ERR_FORK
                              : fx_arena_is_running(&e->arena) ? FX_ERR_RUNNING
                              : fx_arena_is_lost(&e->arena)    ? FX_ERR_MEMORY
                                                               : FX_OK;
    if (refused != FX_OK) {
        fx_fail(error, refused, 0);
        return NULL;
    }
    if (fx_program_check_asking(p, e->workers.threads, e->kernels, &poll, error) != FX_OK)
        return NULL;
    fx_bound *b = make(e, p, &poll, error);
    if (!b)
        return NULL;
    for (const fx_bound *other = e->bound; other; other = other->others)
        if (!agree(b, other)) {
            fx_fail(error, FX_ERR_OVERLAP, 0);
            fx_edits_free(b);
            return NULL;
        }
    if (fx_recordings_meet(e, &b->touches)) {
        fx_fail(error, FX_ERR_OVERLAP, 0);
        fx_edits_free(b);
        return NULL;
    }
    if (bring(e, b, &poll, stats, error) != FX_OK) {
        e->is_suspect = 1;
        fx_edits_free(b);
        return NULL;
    }
    fx_seal_bound(b);
    b->others = e->bound;
    e->bound = b;
    fx_arena_bind(&e->arena, 1);
    return b;
}

/* Makes the programs of a list forget what they know of running after b. */
static void forget_before(fx_bound *list, const fx_bound *b) {
    for (fx_bound *other = list; other; other = other->others)
        for (int i = 0; i < FX_PREDECESSORS; i++)
            if (other->after[i].before == b)
                other->after[i].before = NULL;
}

fx_status fx_unbind(fx_bound *b) {
    fx_engine *e = b->engine;
    fx_poll poll = fx_poll_start(NULL);
    const int is_ours = fx_process_is_here(&e->process);
    if (is_ours && fx_arena_is_running(&e->arena))
        return FX_ERR_RUNNING;
    if (is_ours)
        fx_loader_pause(e, &poll);
    fx_recordings_break(b);
    fx_bound **at = &e->bound;
    while (*at != b)
        at = &(*at)->others;
    *at = b->others;
    forget_before(e->bound, b);
    forget_before(e->unbound, b);
    fx_edits_free(b);
    fx_arena_bind(&e->arena, e->bound || e->recordings);
    return FX_OK;
}
