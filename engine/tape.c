/* The checks of a tape before it becomes a recording. */
#include "state.h"

#define BYTES_MAX ((int64_t)1 << 48)    /* of the arena and buffers: no sum of a few overflows */
#define ALIGN ((int64_t)sizeof(double)) /* of slots: that of the largest element */

static int is_in(int64_t i, int64_t count) {
    return i >= 0 && i < count;
}

static int is_slot(const fx_tape *t, int32_t slot, int64_t bytes) {
    return is_in(slot, t->slot_count) && bytes >= 0 && bytes <= t->slots[slot].bytes;
}

static int slot_is_good(const fx_tape *t, const fx_slot *s) {
    if (s->offset < 0 || s->bytes < 0 || s->offset > BYTES_MAX || s->bytes > BYTES_MAX || s->offset % ALIGN)
        return 0;
    return s->base == FX_BASE_ARENA || s->base == FX_BASE_ROW || is_in((int64_t)s->base - 1, t->buffer_count);
}

/* Whether a slot may be written: neither an input nor a row of one. */
static int is_writable(const fx_tape *t, uint32_t slot) {
    const int32_t base = t->slots[slot].base;
    if (base != FX_BASE_ROW)
        return base == FX_BASE_ARENA || (uint32_t)base > t->input_count;
    for (uint32_t i = 0; i < t->entry_count; i++) {
        const fx_entry *x = &t->entries[i];
        if (x->kind == FX_ENTRY_ROW && x->a == (int64_t)slot && is_in(x->b, t->slot_count) &&
            t->slots[x->b].base != FX_BASE_ROW && !is_writable(t, (uint32_t)x->b))
            return 0;
    }
    return 1;
}

/* Whether the slots of a RUN entry are there and as large as the program's buffers. */
static int run_is_good(const fx_tape *t, const fx_entry *x) {
    if (!is_in(x->a, t->program_count))
        return 0;
    const fx_program *p = &t->programs[x->a]->program;
    const int64_t count = (int64_t)p->input_count + p->output_count;
    if (x->b < 0 || x->b + count > t->operand_count)
        return 0;
    for (int64_t i = 0; i < count; i++) {
        const uint32_t slot = t->operands[x->b + i];
        if (slot >= t->slot_count || t->slots[slot].bytes != p->io_bytes[i])
            return 0;
        if (i >= p->input_count && !is_writable(t, slot))
            return 0;
    }
    return 1;
}

/* Whether a TURN has no holder, or one that takes no buffers. */
static int holder_is_good(const fx_tape *t, const fx_entry *x) {
    if (!x->holder)
        return 1;
    if (!is_in((int64_t)x->holder - 1, t->program_count))
        return 0;
    const fx_program *p = &t->programs[x->holder - 1]->program;
    return !p->input_count && !p->output_count;
}

uint32_t fx_tape_loop_end(const fx_tape *t, uint32_t turn) {
    for (uint32_t i = t->entry_count; i-- > turn + 1;)
        if (t->entries[i].kind == FX_ENTRY_NEXT && t->entries[i].b == (int64_t)turn)
            return i;
    return turn;
}

int fx_tape_has_holders(const fx_tape *t) {
    for (uint32_t i = 0; i < t->entry_count; i++)
        if (t->entries[i].holder)
            return 1;
    return 0;
}

void fx_tape_note_holders(const fx_tape *t, uint64_t *inside, uint64_t *spoils) {
    uint64_t bit = 1;
    for (uint32_t turn = 0; turn < t->entry_count; turn++) {
        if (!t->entries[turn].holder)
            continue;
        const fx_touches *held = &t->programs[t->entries[turn].holder - 1]->touches;
        const uint32_t end = fx_tape_loop_end(t, turn);
        for (uint32_t i = turn; i <= end; i++)
            inside[i] |= bit;
        for (uint32_t i = 0; i < t->program_count; i++) {
            const fx_program *p = &t->programs[i]->program;
            for (uint32_t j = 0; j < p->load_count; j++)
                if (fx_list_meets(held->writes, held->write_count, fx_load_target(&p->loads[j])))
                    spoils[i] |= bit;
        }
        bit <<= 1;
    }
}

/* Whether no program of a loop writes over what its holder brings. */
static int loop_keeps(const fx_tape *t, uint32_t turn) {
    const fx_touches *held = &t->programs[t->entries[turn].holder - 1]->touches;
    const uint32_t end = fx_tape_loop_end(t, turn);
    for (uint32_t i = turn + 1; i <= end; i++) {
        const fx_entry *x = &t->entries[i];
        const int64_t program = x->kind == FX_ENTRY_RUN ? x->a : x->kind == FX_ENTRY_TURN ? x->holder - 1 : -1;
        if (program < 0)
            continue;
        const fx_touches *other = &t->programs[program]->touches;
        if (fx_lists_meet(held->writes, held->write_count, other->writes, other->write_count))
            return 0;
    }
    return 1;
}

/* Only NEXT goes back: it counts, and asks whether the caller cancels. */
static int entry_is_good(const fx_tape *t, uint32_t at) {
    const fx_entry *x = &t->entries[at];
    const int goes = x->b > (int64_t)at && x->b <= (int64_t)t->entry_count, counts = is_in(x->a, t->counter_count);
    if (x->holder && x->kind != FX_ENTRY_TURN)
        return 0;
    switch (x->kind) {
    case FX_ENTRY_RUN:
        return run_is_good(t, x);
    case FX_ENTRY_COPY:
        return is_slot(t, x->a, x->n) && is_slot(t, x->b, x->n) && is_writable(t, (uint32_t)x->a);
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
               (x->d == -1 || is_slot(t, x->d, 8)) && holder_is_good(t, x);
    case FX_ENTRY_NEXT:
        return counts && is_in(x->b, at);
    case FX_ENTRY_COUNT:
        return counts && is_slot(t, x->b, 8) && is_writable(t, (uint32_t)x->b);
    case FX_ENTRY_ROW:
        return is_slot(t, x->a, 0) && t->slots[x->a].base == FX_BASE_ROW && is_slot(t, x->b, 0) &&
               t->slots[x->b].base != FX_BASE_ROW && is_in(x->c, t->counter_count) && x->n >= 0 &&
               x->n == t->slots[x->a].bytes && (x->d == 0 || x->d == 1);
    default:
        return 0;
    }
}

fx_range fx_tape_slots(const fx_tape *t) {
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

int fx_slots_meet(fx_range slots, const fx_touches *touches) {
    return fx_list_meets(touches->pinned, touches->pinned_count, slots) ||
           fx_list_meets(touches->writes, touches->write_count, slots);
}

fx_status fx_tape_check(const fx_engine *e, const fx_tape *t, fx_error *error) {
    if (t->counter_count > FX_COUNTERS_MAX || t->input_count > t->buffer_count || t->buffer_count > INT32_MAX)
        return fx_fail(error, FX_ERR_PARAMS, 0);
    for (uint32_t i = 0; i < t->program_count; i++)
        if (t->programs[i]->engine != e)
            return fx_fail(error, FX_ERR_PARAMS, 0);
    for (uint32_t i = 0; i < t->slot_count; i++)
        if (!slot_is_good(t, &t->slots[i]))
            return fx_fail(error, FX_ERR_PARAMS, 0);
    for (uint32_t i = 0; i < t->entry_count; i++)
        if (!entry_is_good(t, i)) {
            fx_fail(error, FX_ERR_PARAMS, 0);
            error->index = i;
            return FX_ERR_PARAMS;
        }
    uint32_t holders = 0;
    for (uint32_t i = 0; i < t->entry_count; i++) {
        if (!t->entries[i].holder)
            continue;
        if (++holders > FX_HOLDERS_MAX)
            return fx_fail(error, FX_ERR_PARAMS, 0);
        if (!loop_keeps(t, i)) {
            fx_fail(error, FX_ERR_OVERLAP, 0);
            error->index = i;
            return FX_ERR_OVERLAP;
        }
    }
    const fx_range slots = fx_tape_slots(t);
    for (const fx_bound *b = e->bound; b; b = b->others)
        if (fx_slots_meet(slots, &b->touches))
            return fx_fail(error, FX_ERR_OVERLAP, 0);
    return FX_OK;
}
