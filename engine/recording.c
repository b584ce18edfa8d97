/* Recordings: made from tapes, walked by the caller's thread when they run. */
#include "flexnn/recording.h"

#include "protocol.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_AHEAD 64 /* entries that are looked at for the programs that run next */

/* Which row of another slot a slot is. */
typedef struct row_place {
    int64_t number;
    uint32_t entry; /* FX_ENTRY_ROW that said so */
} row_place;

struct fx_recording {
    fx_engine *engine;
    fx_recording *others; /* next in the engine's list */

    /* From here to the seal nothing changes. */
    fx_tape tape;      /* its arrays lie behind this, in the same allocation */
    int64_t bytes;     /* of this allocation */
    fx_range slots;    /* of the arena */
    void **places;     /* [slot_count]: addresses in this run; NULL: no entry has said which row it is */
    row_place *rows;   /* [slot_count] */
    void **buffers;    /* [slots of the program with the most buffers] */
    int64_t *counters; /* [counter_count] */
    uint8_t *went;     /* [entry_count]: whether a branch or a turn went elsewhere the last time */
    uint64_t *inside;  /* [entry_count]: a bit for each holder in whose loop an entry is; NULL: there are no holders */
    uint64_t *spoils;  /* [program_count]: the holders of which a program's loads write over what they bring */
    fx_seal seal;

    uint32_t entry; /* where a run that stopped goes on */
    fx_sharing sharing;
    int is_broken;  /* a program of its tape is unbound */
    int is_damaged; /* its seal is broken */
};

/* ---- making ---- */

int fx_recordings_meet(const fx_engine *e, const fx_touches *touches) {
    for (const fx_recording *r = e->recordings; r; r = r->others)
        if (fx_slots_meet(r->slots, touches))
            return 1;
    return 0;
}

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
    CARVE(rows, t->slot_count);
    CARVE(buffers, most_buffers(t));
    CARVE(counters, t->counter_count);
    CARVE(went, t->entry_count);
    if (fx_tape_has_holders(t)) {
        CARVE(inside, t->entry_count);
        CARVE(spoils, t->program_count);
        if (memory)
            fx_tape_note_holders(t, r->inside, r->spoils);
    }
#undef COPY
#undef CARVE
    return used;
}

static uint32_t head_of(const fx_recording *r) {
    const size_t first = offsetof(fx_recording, tape);
    return fx_seal_more(r->engine->crc_path, 0, (const char *)r + first, 1, offsetof(fx_recording, seal) - first);
}

static uint32_t body_of(const fx_recording *r) {
    const fx_tape *t = &r->tape;
    const fx_crc_path path = r->engine->crc_path;
    uint32_t crc = fx_seal_more(path, 0, t->programs, t->program_count, sizeof *t->programs);
    crc = fx_seal_more(path, crc, t->entries, t->entry_count, sizeof *t->entries);
    crc = fx_seal_more(path, crc, t->slots, t->slot_count, sizeof *t->slots);
    crc = fx_seal_more(path, crc, r->inside, r->inside ? t->entry_count : 0, sizeof *r->inside);
    crc = fx_seal_more(path, crc, r->spoils, r->spoils ? t->program_count : 0, sizeof *r->spoils);
    return fx_seal_more(path, crc, t->operands, t->operand_count, sizeof *t->operands);
}

int fx_recordings_are_whole(fx_engine *e) {
    int are_whole = 1;
    for (fx_recording *r = e->recordings; r; r = r->others) {
        if (!r->is_damaged && head_of(r) != r->seal.head) {
            r->tape.program_count = 0; /* of a list that may be anywhere */
            r->is_damaged = 1;
        }
        are_whole &= !r->is_damaged && body_of(r) == r->seal.body;
    }
    return are_whole;
}

fx_recording *fx_recording_make(fx_engine *e, const fx_tape *tape, fx_error *error) {
    fx_poll poll = fx_poll_start(NULL);
    *error = (fx_error){.index = -1};
    const fx_status refused = !fx_process_is_here(&e->process) ? FX_ERR_FORK
                              : fx_arena_is_running(&e->arena) ? FX_ERR_RUNNING
                              : fx_arena_is_lost(&e->arena)    ? FX_ERR_MEMORY
                                                               : FX_OK;
    if (refused != FX_OK) {
        fx_fail(error, refused, 0);
        return NULL;
    }
    if (fx_tape_check(e, tape, error) != FX_OK)
        return NULL;
    const int64_t bytes = lay_out(NULL, tape);
    fx_recording *r = aligned_alloc(64, (size_t)bytes);
    if (!r) {
        e->is_suspect = 1;
        fx_fail(error, FX_ERR_MEMORY, ENOMEM);
        return NULL;
    }
    memset(r, 0, sizeof *r);
    lay_out((char *)r, tape);
    r->engine = e;
    r->sharing.always = e->jitter_seed != 0;
    r->bytes = bytes;
    r->slots = fx_tape_slots(tape);
    fx_loader_pause(e, &poll); /* the arena may move */
    if (fx_engine_grow(e, r->slots.hi, error) != FX_OK) {
        free(r);
        return NULL;
    }
    fx_pinned_drop(e, r->slots); /* of programs unbound since */
    r->seal = (fx_seal){.head = head_of(r), .body = body_of(r)};
    r->others = e->recordings;
    e->recordings = r;
    fx_arena_bind(&e->arena, 1);
    return r;
}

fx_status fx_recording_free(fx_recording *r) {
    fx_engine *e = r->engine;
    if (fx_process_is_here(&e->process) && fx_arena_is_running(&e->arena))
        return FX_ERR_RUNNING;
    fx_recording **at = &e->recordings;
    while (*at != r)
        at = &(*at)->others;
    *at = r->others;
    if (e->stopped == r)
        e->stopped = NULL;
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

/* Whether a slot has a place in this run. */
static int is_placed(const fx_recording *r, int32_t slot) {
    return r->tape.slots[slot].base != FX_BASE_ROW || r->places[slot];
}

/* Whether the slots that an entry reads or writes by itself have places. */
static int entry_is_placed(const fx_recording *r, const fx_entry *x) {
    switch (x->kind) {
    case FX_ENTRY_COPY:
        return is_placed(r, x->a) && is_placed(r, x->b);
    case FX_ENTRY_BRANCH:
        return is_placed(r, x->a);
    case FX_ENTRY_TURN:
        return (x->c < 0 || is_placed(r, x->c)) && (x->d < 0 || is_placed(r, x->d));
    case FX_ENTRY_COUNT:
        return is_placed(r, x->b);
    default:
        return 1;
    }
}

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

/* Whether a TURN is expected to be left at this count of turns. *is_sure: it certainly goes so. */
static int leaves(const fx_entry *x, int64_t turns, uint8_t went, int *is_sure) {
    const int goes = x->n >= 0 ? turns >= x->n : turns == 0 && went > 1;
    *is_sure = x->n >= 0 && (goes || (x->c < 0 && x->d < 0));
    return goes;
}

/* The programs that are expected to run after entry `at`: branches go where they went the last time (`went`), loops go
 * on unless their count says otherwise, and after the end the recording begins again. Behind a decision that may fall
 * otherwise, none is named whose loads would write over what a holder has brought to a loop that then goes on. */
static uint32_t look_ahead(const fx_recording *r, uint32_t at, fx_bound **next) {
    const fx_tape *t = &r->tape;
    int64_t turns[FX_COUNTERS_MAX];
    uint64_t unsure = 0;
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
        const uint64_t inside = r->inside ? r->inside[at] : 0;
        int64_t program = -1;
        int goes = 0, is_sure = 1;
        if (x->kind == FX_ENTRY_RUN)
            program = x->a;
        else if (x->kind == FX_ENTRY_BEGIN)
            turns[x->a] = 0;
        else if (x->kind == FX_ENTRY_NEXT)
            turns[x->a]++, goes = 1;
        else if (x->kind == FX_ENTRY_JUMP)
            goes = 1;
        else if (x->kind == FX_ENTRY_BRANCH) {
            goes = r->went[at];
            unsure |= inside;
        } else if (x->kind == FX_ENTRY_TURN) {
            goes = leaves(x, turns[x->a], r->went[at], &is_sure);
            if (!goes && !turns[x->a] && x->holder)
                program = (int64_t)x->holder - 1;
            if (!is_sure) /* before its first turn a loop's own holder has brought nothing */
                unsure |= turns[x->a] ? inside : at && r->inside ? inside & r->inside[at - 1] : 0;
        }
        if (program >= 0 && r->spoils && r->spoils[program] & unsure)
            break;
        if (program >= 0)
            next[count++] = t->programs[program];
        if (goes)
            at = (uint32_t)x->b - 1; /* may wrap around; ++at mends it */
    }
    return count;
}

/* Runs a program of the tape; its buffers are slots from operand `first` on. */
static fx_status run_program(fx_recording *r, uint32_t at, int32_t program, int32_t first, fx_poll *poll,
                             fx_run_stats *stats, fx_error *error) {
    fx_bound *b = r->tape.programs[program], *next[FX_AHEAD_MAX];
    const uint32_t *operands = &r->tape.operands[first];
    const uint32_t count = b->program.input_count + b->program.output_count;
    for (uint32_t i = 0; i < count; i++) {
        if (!is_placed(r, (int32_t)operands[i]))
            return fx_fail(error, FX_ERR_BOUNDS, 0);
        r->buffers[i] = r->places[operands[i]];
    }
    fx_run_stats own = {0};
    const uint32_t ahead = r->engine->has_loader && r->tape.looks_ahead ? look_ahead(r, at, next) : 0;
    const fx_status status = fx_run_bound(b, r->buffers, next, ahead, poll, &own, error);
    stats->stall_ns += own.stall_ns;
    stats->bytes_read += own.bytes_read;
    return status;
}

/* Makes a slot the row that an entry says. 0: it lies beyond its slot. */
static int place_row(fx_recording *r, row_place row, const int64_t *buffer_bytes) {
    const fx_entry *x = &r->tape.entries[row.entry];
    const fx_slot *whole = &r->tape.slots[x->b];
    int64_t bytes = whole->bytes, end;
    if (whole->base > FX_BASE_ARENA)
        bytes = buffer_bytes[whole->base - 1] - whole->offset;
    if (__builtin_mul_overflow(row.number + 1, x->n, &end) || end > bytes)
        return 0;
    r->places[x->a] = (char *)r->places[x->b] + (x->d ? bytes - end : end - x->n);
    r->rows[x->a] = row;
    return 1;
}

static fx_status stop(fx_recording *r, uint32_t at, fx_recording_stats *stats, fx_error *error) {
    r->entry = at;
    if (r->tape.slots[r->tape.entries[at].b].base <= FX_BASE_ARENA)
        return fx_fail(error, FX_ERR_BOUNDS, 0); /* a larger buffer would not help */
    r->engine->stopped = r;
    stats->stopped = at;
    return FX_OK;
}

/* Where the slots lie in this run. If it goes on, those of the arena stay as they are, and rows of buffers move with
 * these. FX_ERR_BOUNDS: a buffer is too small. */
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
        } else if (s->base == FX_BASE_ROW && !goes_on)
            r->places[i] = NULL;
    }
    for (uint32_t i = 0; i < t->slot_count && goes_on; i++)
        if (t->slots[i].base == FX_BASE_ROW && r->places[i] &&
            t->slots[t->entries[r->rows[i].entry].b].base > FX_BASE_ARENA && !place_row(r, r->rows[i], buffer_bytes))
            return FX_ERR_BOUNDS;
    return FX_OK;
}

/* Leaves a loop, or begins a turn: the first one has the holder bring what stays for all of them. */
static fx_status begin_turn(fx_recording *r, uint32_t at, int *goes, fx_poll *poll, fx_recording_stats *stats,
                            fx_error *error) {
    const fx_entry *x = &r->tape.entries[at];
    const int is_first = r->counters[x->a] == 0;
    *goes = is_done(r, x, r->counters[x->a]);
    r->went[at] = (uint8_t)(*goes ? 1 + is_first : 0);
    if (*goes || !is_first || !x->holder)
        return FX_OK;
    return run_program(r, at, x->holder - 1, 0, poll, &stats->run, error);
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
        if (!entry_is_placed(r, x)) {
            r->entry = at;
            return fx_fail(error, FX_ERR_BOUNDS, 0);
        }
        switch (x->kind) {
        case FX_ENTRY_RUN:
            status = run_program(r, at, x->a, x->b, poll, &stats->run, error);
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
            status = begin_turn(r, at, &goes, poll, stats, error);
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
            if (!place_row(r, (row_place){r->counters[x->c], at}, buffer_bytes))
                return stop(r, at, stats, error);
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
    if (!fx_process_is_here(&e->process))
        return fx_fail(error, FX_ERR_FORK, 0);
    if (fx_arena_is_lost(&e->arena))
        return fx_fail(error, FX_ERR_MEMORY, 0);
    if (r->is_broken || (goes_on && e->stopped != r))
        return fx_fail(error, FX_ERR_PARAMS, 0);
    if (fx_arena_begin(&e->arena) != FX_OK)
        return fx_fail(error, FX_ERR_RUNNING, 0);
    const int64_t start = fx_now_ns();
    fx_poll poll = fx_poll_start(interrupt);
    r->entry = goes_on ? r->entry : 0;
    e->stopped = NULL;
    fx_status status = fx_seals_check(e, &poll, error);
    if (status != FX_OK) {
        fx_arena_end(&e->arena);
        return status;
    }
    if (!goes_on)
        memset(r->counters, 0, r->tape.counter_count * sizeof *r->counters);
    e->sharing = &r->sharing;
    fx_workers_keep_apart(&e->workers);
    fx_sharing_begin(&r->sharing, start);
    status = place_slots(r, buffers, buffer_bytes, goes_on);
    if (status != FX_OK)
        fx_fail(error, status, 0);
    if (e->poison && !goes_on && r->slots.lo < r->slots.hi)
        fx_poison(e->arena.memory + r->slots.lo, r->slots.hi - r->slots.lo);
    if (status == FX_OK)
        status = walk(r, buffer_bytes, &poll, stats, error);
    const int64_t end = fx_now_ns();
    fx_sharing_end(&r->sharing, end);
    stats->run.run_ns = end - start;
    e->is_suspect = status != FX_OK;
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
