/* Recordings: checked when they are made, walked by the caller's thread when they run. */
#include "flexnn/recording.h"

#include "state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_AHEAD 64 /* entries that are looked at for the programs that run next */

struct fx_recording {
    fx_engine *engine;
    fx_recording *others; /* next in the engine's list */
    fx_tape tape;         /* its arrays lie behind this, in the same allocation */
    int64_t bytes;        /* of this allocation */
    fx_range slots;       /* of the arena */
    void **places;        /* [slot_count]: addresses in this run */
    void **buffers;       /* [slots of the program with the most buffers] */
    int64_t *counters;    /* [counter_count] */
    uint8_t *went;        /* [entry_count]: whether a branch or a turn went elsewhere the last time */
    uint32_t entry;       /* where a run that stopped goes on */
    int is_stopped, is_broken;
};

/* ---- checks ---- */

static int is_in(int64_t i, int64_t count) {
    return i >= 0 && i < count;
}

static int is_slot(const fx_tape *t, int32_t slot, int64_t bytes) {
    return is_in(slot, t->slot_count) && bytes >= 0 && bytes <= t->slots[slot].bytes;
}

static int slot_is_good(const fx_tape *t, const fx_slot *s) {
    if (s->offset < 0 || s->bytes < 0 || s->offset > INT64_MAX / 2 || s->bytes > INT64_MAX / 2)
        return 0;
    return s->base == FX_BASE_ARENA || s->base == FX_BASE_ROW || is_in((int64_t)s->base - 1, t->buffer_count);
}

/* Whether the slots of a RUN entry are there and as large as the program's buffers. */
static int run_is_good(const fx_engine *e, const fx_tape *t, const fx_entry *x) {
    if (!is_in(x->a, t->program_count) || t->programs[x->a]->engine != e)
        return 0;
    const fx_program *p = &t->programs[x->a]->program;
    const int64_t count = (int64_t)p->input_count + p->output_count;
    if (x->b < 0 || x->b + count > t->operand_count)
        return 0;
    for (int64_t i = 0; i < count; i++) {
        const uint32_t slot = t->operands[x->b + i];
        if (slot >= t->slot_count || t->slots[slot].bytes != p->io_bytes[i])
            return 0;
    }
    return 1;
}

/* Only NEXT goes back: it counts, and asks whether the caller cancels. */
static int entry_is_good(const fx_engine *e, const fx_tape *t, uint32_t at) {
    const fx_entry *x = &t->entries[at];
    const int goes = x->b > (int64_t)at && x->b <= (int64_t)t->entry_count, counts = is_in(x->a, t->counter_count);
    switch (x->kind) {
    case FX_ENTRY_RUN:
        return run_is_good(e, t, x);
    case FX_ENTRY_COPY:
        return is_slot(t, x->a, x->n) && is_slot(t, x->b, x->n);
    case FX_ENTRY_SWAP:
        return is_slot(t, x->a, 0) && is_slot(t, x->b, 0) && t->slots[x->a].bytes == t->slots[x->b].bytes &&
               t->slots[x->a].base == FX_BASE_ARENA && t->slots[x->b].base == FX_BASE_ARENA;
    case FX_ENTRY_BRANCH:
        return is_slot(t, x->a, 1) && goes;
    case FX_ENTRY_JUMP:
        return goes;
    case FX_ENTRY_BEGIN:
        return counts;
    case FX_ENTRY_TURN:
        return counts && goes && x->n >= -1 && (x->c == -1 || is_slot(t, x->c, 1)) &&
               (x->d == -1 || is_slot(t, x->d, 8));
    case FX_ENTRY_NEXT:
        return counts && is_in(x->b, at);
    case FX_ENTRY_COUNT:
        return counts && is_slot(t, x->b, 8);
    case FX_ENTRY_ROW:
        return is_slot(t, x->a, 0) && t->slots[x->a].base == FX_BASE_ROW && is_slot(t, x->b, 0) &&
               t->slots[x->b].base != FX_BASE_ROW && is_in(x->c, t->counter_count) && x->n >= 0 &&
               x->n == t->slots[x->a].bytes;
    default:
        return 0;
    }
}

static fx_range arena_slots(const fx_tape *t) {
    fx_range all = {INT64_MAX, 0};
    for (uint32_t i = 0; i < t->slot_count; i++) {
        const fx_slot *s = &t->slots[i];
        if (s->base != FX_BASE_ARENA || !s->bytes)
            continue;
        all.lo = s->offset < all.lo ? s->offset : all.lo;
        all.hi = s->offset + s->bytes > all.hi ? s->offset + s->bytes : all.hi;
    }
    return all;
}

static fx_status check(const fx_engine *e, const fx_tape *t, fx_error *error) {
    if (t->counter_count > FX_COUNTERS_MAX)
        return fx_fail(error, FX_ERR_PARAMS, 0);
    for (uint32_t i = 0; i < t->slot_count; i++)
        if (!slot_is_good(t, &t->slots[i]))
            return fx_fail(error, FX_ERR_PARAMS, 0);
    for (uint32_t i = 0; i < t->entry_count; i++)
        if (!entry_is_good(e, t, i)) {
            fx_fail(error, FX_ERR_PARAMS, 0);
            error->index = i;
            return FX_ERR_PARAMS;
        }
    const fx_range slots = arena_slots(t);
    for (const fx_bound *b = e->bound; b; b = b->others)
        if (fx_lists_meet(&slots, slots.lo < slots.hi, b->touches.pinned, b->touches.pinned_count))
            return fx_fail(error, FX_ERR_OVERLAP, 0);
    for (uint32_t i = 0; i < t->program_count; i++)
        if (fx_lists_meet(&slots, slots.lo < slots.hi, t->programs[i]->touches.writes,
                          t->programs[i]->touches.write_count))
            return fx_fail(error, FX_ERR_OVERLAP, 0);
    return FX_OK;
}

int fx_recordings_meet(const fx_engine *e, const fx_touches *touches) {
    for (const fx_recording *r = e->recordings; r; r = r->others)
        if (fx_lists_meet(&r->slots, r->slots.lo < r->slots.hi, touches->pinned, touches->pinned_count))
            return 1;
    return 0;
}

/* ---- making ---- */

static uint32_t most_buffers(const fx_tape *t) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < t->program_count; i++) {
        const fx_program *p = &t->programs[i]->program;
        most = p->input_count + p->output_count > most ? p->input_count + p->output_count : most;
    }
    return most;
}

/* Lays the recording out in memory (NULL: only counts) and returns the bytes it takes. */
static int64_t lay_out(char *memory, const fx_tape *t) {
    int64_t used = 0;
    fx_recording *r = fx_carve(memory, &used, sizeof *r);
#define COPY(field, count)                                                                                             \
    do {                                                                                                               \
        void *at = fx_carve(memory, &used, (int64_t)(count) * (int64_t)sizeof *t->field);                              \
        if (memory) {                                                                                                  \
            if (count)                                                                                                 \
                memcpy(at, t->field, (size_t)(count) * sizeof *t->field);                                              \
            r->tape.field = at;                                                                                        \
        }                                                                                                              \
    } while (0)
#define CARVE(field, count)                                                                                            \
    do {                                                                                                               \
        void *at = fx_carve(memory, &used, (int64_t)(count) * (int64_t)sizeof *r->field);                              \
        if (memory) {                                                                                                  \
            memset(at, 0, (size_t)(count) * sizeof *r->field);                                                         \
            r->field = at;                                                                                             \
        }                                                                                                              \
    } while (0)
    if (memory)
        r->tape = *t;
    COPY(programs, t->program_count);
    COPY(entries, t->entry_count);
    COPY(slots, t->slot_count);
    COPY(operands, t->operand_count);
    CARVE(places, t->slot_count);
    CARVE(buffers, most_buffers(t));
    CARVE(counters, t->counter_count);
    CARVE(went, t->entry_count);
#undef COPY
#undef CARVE
    return used;
}

fx_recording *fx_recording_make(fx_engine *e, const fx_tape *tape, fx_error *error) {
    fx_poll poll = fx_poll_start(NULL);
    *error = (fx_error){.index = -1};
    const fx_status refused = getpid() != e->process           ? FX_ERR_FORK
                              : fx_arena_is_running(&e->arena) ? FX_ERR_RUNNING
                              : fx_arena_is_lost(&e->arena)    ? FX_ERR_MEMORY
                                                               : FX_OK;
    if (refused != FX_OK) {
        fx_fail(error, refused, 0);
        return NULL;
    }
    if (check(e, tape, error) != FX_OK)
        return NULL;
    const int64_t bytes = lay_out(NULL, tape);
    fx_recording *r = aligned_alloc(64, (size_t)bytes);
    if (!r) {
        fx_fail(error, FX_ERR_MEMORY, ENOMEM);
        return NULL;
    }
    memset(r, 0, sizeof *r);
    lay_out((char *)r, tape);
    r->engine = e;
    r->bytes = bytes;
    r->slots = arena_slots(tape);
    fx_loader_pause(e, &poll); /* the arena may move */
    if (fx_engine_grow(e, r->slots.hi, error) != FX_OK) {
        free(r);
        return NULL;
    }
    r->others = e->recordings;
    e->recordings = r;
    fx_arena_bind(&e->arena, 1);
    return r;
}

fx_status fx_recording_free(fx_recording *r) {
    fx_engine *e = r->engine;
    if (getpid() == e->process && fx_arena_is_running(&e->arena))
        return FX_ERR_RUNNING;
    fx_recording **at = &e->recordings;
    while (*at != r)
        at = &(*at)->others;
    *at = r->others;
    free(r);
    fx_arena_bind(&e->arena, e->bound || e->recordings);
    return FX_OK;
}

void fx_recordings_break(const fx_bound *b) {
    for (fx_recording *r = b->engine->recordings; r; r = r->others)
        for (uint32_t i = 0; i < r->tape.program_count; i++)
            r->is_broken |= r->tape.programs[i] == b;
}

int64_t fx_recordings_arena(const fx_engine *e) {
    int64_t bytes = 0;
    for (const fx_recording *r = e->recordings; r; r = r->others)
        bytes = r->slots.hi > bytes ? r->slots.hi : bytes;
    return bytes;
}

int64_t fx_recordings_bytes(const fx_engine *e) {
    int64_t bytes = 0;
    for (const fx_recording *r = e->recordings; r; r = r->others)
        bytes += r->bytes;
    return bytes;
}

/* ---- running ---- */

/* Whether a loop's turn is left at this count of turns. */
static int is_done(const fx_recording *r, const fx_entry *x, int64_t turns) {
    int64_t most;
    if (x->n >= 0 && turns >= x->n)
        return 1;
    if (x->d >= 0) {
        memcpy(&most, r->places[x->d], sizeof most);
        if (turns >= most)
            return 1;
    }
    return x->c >= 0 && !*(const uint8_t *)r->places[x->c];
}

/* The programs that are expected to run after entry `at`: branches go where they went the last time, loops go on unless
 * their count says otherwise, and after the end the recording begins again. */
static uint32_t look_ahead(const fx_recording *r, uint32_t at, fx_bound **next) {
    const fx_tape *t = &r->tape;
    int64_t turns[FX_COUNTERS_MAX];
    uint32_t count = 0;
    int has_ended = 0;
    memcpy(turns, r->counters, t->counter_count * sizeof *turns);
    for (int looked = 0; looked < LOOK_AHEAD && count < FX_AHEAD_MAX; looked++) {
        if (++at >= t->entry_count) {
            if (has_ended++)
                break;
            at = 0;
        }
        const fx_entry *x = &t->entries[at];
        int goes = 0;
        if (x->kind == FX_ENTRY_RUN)
            next[count++] = t->programs[x->a];
        else if (x->kind == FX_ENTRY_BEGIN)
            turns[x->a] = 0;
        else if (x->kind == FX_ENTRY_NEXT)
            turns[x->a]++, goes = 1;
        else if (x->kind == FX_ENTRY_JUMP)
            goes = 1;
        else if (x->kind == FX_ENTRY_BRANCH)
            goes = r->went[at];
        else if (x->kind == FX_ENTRY_TURN)
            goes = x->n >= 0 ? turns[x->a] >= x->n : turns[x->a] == 0 && r->went[at] > 1;
        if (goes)
            at = (uint32_t)x->b - 1; /* may wrap around; ++at mends it */
    }
    return count;
}

static fx_status run_program(fx_recording *r, uint32_t at, fx_poll *poll, fx_run_stats *stats, fx_error *error) {
    const fx_entry *x = &r->tape.entries[at];
    fx_bound *b = r->tape.programs[x->a], *next[FX_AHEAD_MAX];
    const uint32_t *operands = &r->tape.operands[x->b];
    const uint32_t count = b->program.input_count + b->program.output_count;
    for (uint32_t i = 0; i < count; i++)
        r->buffers[i] = r->places[operands[i]];
    fx_run_stats own = {0};
    const uint32_t ahead = r->engine->has_loader && r->tape.looks_ahead ? look_ahead(r, at, next) : 0;
    const fx_status status = fx_run_bound(b, r->buffers, next, ahead, poll, &own, error);
    stats->stall_ns += own.stall_ns;
    stats->bytes_read += own.bytes_read;
    return status;
}

/* Sets the place of a row. 0: it lies beyond its slot. */
static int place_row(fx_recording *r, const fx_entry *x, const int64_t *buffer_bytes) {
    const fx_slot *whole = &r->tape.slots[x->b];
    int64_t row = r->counters[x->c], bytes = whole->bytes, end;
    if (whole->base > FX_BASE_ARENA)
        bytes = buffer_bytes[whole->base - 1] - whole->offset;
    if (__builtin_mul_overflow(row + 1, x->n, &end) || end > bytes)
        return 0;
    r->places[x->a] = (char *)r->places[x->b] + (x->d ? bytes - end : end - x->n);
    return 1;
}

/* Where the slots lie in this run. Swapped ones stay as they are if the run goes on. FX_ERR_BOUNDS: a buffer is too
 * small. */
static fx_status place_slots(fx_recording *r, void *const *buffers, const int64_t *buffer_bytes, int goes_on) {
    const fx_tape *t = &r->tape;
    for (uint32_t i = 0; i < t->slot_count; i++) {
        const fx_slot *s = &t->slots[i];
        if (s->base == FX_BASE_ARENA && !goes_on)
            r->places[i] = r->engine->arena.memory + s->offset;
        else if (s->base > FX_BASE_ARENA) {
            if (s->offset + s->bytes > buffer_bytes[s->base - 1])
                return FX_ERR_BOUNDS;
            r->places[i] = (char *)buffers[s->base - 1] + s->offset;
        }
    }
    return FX_OK;
}

/* Walks the entries from r->entry on. */
static fx_status walk(fx_recording *r, const int64_t *buffer_bytes, fx_poll *poll, fx_recording_stats *stats,
                      fx_error *error) {
    const fx_tape *t = &r->tape;
    for (uint32_t at = r->entry; at < t->entry_count;) {
        const fx_entry *x = &t->entries[at];
        fx_status status = FX_OK;
        void *place;
        int goes = 0;
        switch (x->kind) {
        case FX_ENTRY_RUN:
            status = run_program(r, at, poll, &stats->run, error);
            break;
        case FX_ENTRY_COPY:
            memmove(r->places[x->a], r->places[x->b], (size_t)x->n);
            break;
        case FX_ENTRY_SWAP:
            place = r->places[x->a];
            r->places[x->a] = r->places[x->b];
            r->places[x->b] = place;
            break;
        case FX_ENTRY_BRANCH:
            goes = r->went[at] = !*(const uint8_t *)r->places[x->a];
            break;
        case FX_ENTRY_JUMP:
            goes = 1;
            break;
        case FX_ENTRY_BEGIN:
            r->counters[x->a] = 0;
            break;
        case FX_ENTRY_TURN:
            goes = is_done(r, x, r->counters[x->a]);
            r->went[at] = (uint8_t)(goes ? 1 + (r->counters[x->a] == 0) : 0);
            break;
        case FX_ENTRY_NEXT:
            r->counters[x->a]++;
            goes = 1;
            if (fx_polled(poll))
                status = fx_fail(error, FX_ERR_CANCELLED, 0);
            break;
        case FX_ENTRY_COUNT:
            memcpy(r->places[x->b], &r->counters[x->a], sizeof *r->counters);
            break;
        case FX_ENTRY_ROW:
            if (!place_row(r, x, buffer_bytes)) {
                r->entry = at;
                r->is_stopped = 1;
                stats->stopped = at;
                return FX_OK;
            }
            break;
        }
        if (status != FX_OK) {
            r->entry = at;
            return status;
        }
        at = goes ? (uint32_t)x->b : at + 1;
    }
    return FX_OK;
}

fx_status fx_recording_run(fx_recording *r, void *const *buffers, const int64_t *buffer_bytes, int goes_on,
                           const fx_interrupt *interrupt, fx_recording_stats *stats, fx_error *error) {
    fx_engine *e = r->engine;
    *stats = (fx_recording_stats){.stopped = -1};
    *error = (fx_error){.index = -1};
    if (getpid() != e->process)
        return fx_fail(error, FX_ERR_FORK, 0);
    if (fx_arena_is_lost(&e->arena))
        return fx_fail(error, FX_ERR_MEMORY, 0);
    if (r->is_broken || (goes_on && !r->is_stopped))
        return fx_fail(error, FX_ERR_PARAMS, 0);
    if (fx_arena_begin(&e->arena) != FX_OK)
        return fx_fail(error, FX_ERR_RUNNING, 0);
    const int64_t start = fx_now_ns();
    fx_poll poll = fx_poll_start(interrupt);
    r->entry = goes_on ? r->entry : 0;
    r->is_stopped = 0;
    fx_status status = place_slots(r, buffers, buffer_bytes, goes_on);
    if (status != FX_OK)
        fx_fail(error, status, 0);
    if (e->poison && !goes_on && r->slots.lo < r->slots.hi)
        fx_poison(e->arena.memory + r->slots.lo, r->slots.hi - r->slots.lo);
    if (status == FX_OK)
        status = walk(r, buffer_bytes, &poll, stats, error);
    stats->run.run_ns = fx_now_ns() - start;
    fx_arena_end(&e->arena);
    return status;
}

int64_t fx_recording_counter(const fx_recording *r, uint32_t i) {
    return i < r->tape.counter_count ? r->counters[i] : 0;
}

int64_t fx_recording_entry(const fx_recording *r) {
    return r->entry;
}

int64_t fx_recording_bytes(const fx_recording *r) {
    return r->bytes;
}
