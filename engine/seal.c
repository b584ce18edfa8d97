#include "state.h"

#include <stddef.h>
#include <string.h>

#define CHECK_BYTES ((int64_t)4 << 20) /* between two questions whether the caller cancels */

static uint32_t head_of(const fx_bound *b) {
    const fx_crc_path path = b->engine->crc_path;
    const size_t first = offsetof(fx_bound, program);
    uint32_t crc = fx_seal_more(path, 0, (const char *)b + first, 1, offsetof(fx_bound, seal) - first);
    for (int i = 0; i < FX_PREDECESSORS; i++)
        crc = fx_seal_more(path, crc, &b->after[i].steps, 1, sizeof b->after[i].steps);
    return crc;
}

static uint32_t lists_of(const fx_bound *b) {
    const fx_crc_path path = b->engine->crc_path;
    uint32_t crc = fx_seal_more(path, 0, &b->touches, 1, sizeof b->touches);
    for (int64_t i = 0; i < b->edit_count; i++)
        crc = fx_seal_more(path, crc, &b->edits[i].at, 1, sizeof b->edits[i].at);
    return crc;
}

/* Of a program that is shown. */
static uint32_t body_of(const fx_bound *b) {
    const fx_program *p = &b->program;
    const fx_touches *t = &b->touches;
    const fx_crc_path path = b->engine->crc_path;
    uint32_t crc = fx_seal_more(path, 0, p->nodes, p->node_count, sizeof *p->nodes);
    crc = fx_seal_more(path, crc, p->steps, p->step_count, sizeof *p->steps);
    crc = fx_seal_more(path, crc, p->groups, p->group_count, sizeof *p->groups);
    crc = fx_seal_more(path, crc, p->pinned, p->pinned_count, sizeof *p->pinned);
    crc = fx_seal_more(path, crc, p->loads, p->load_count, sizeof *p->loads);
    crc = fx_seal_more(path, crc, p->tables, p->table_count, sizeof *p->tables);
    crc = fx_seal_more(path, crc, p->spills, p->spill_count, sizeof *p->spills);
    crc = fx_seal_more(path, crc, p->crcs, p->crc_count, sizeof *p->crcs);
    crc = fx_seal_more(path, crc, p->io_bytes, (uint64_t)p->input_count + p->output_count, sizeof *p->io_bytes);
    crc = fx_seal_more(path, crc, t->used, (uint64_t)t->used_count, sizeof *t->used);
    crc = fx_seal_more(path, crc, t->writes, (uint64_t)t->write_count, sizeof *t->writes);
    crc = fx_seal_more(path, crc, t->pinned, (uint64_t)t->pinned_count, sizeof *t->pinned);
    crc = fx_seal_more(path, crc, b->first_steps, b->first_steps ? p->step_count : 0, sizeof *b->first_steps);
    return fx_seal_more(path, crc, b->tables, p->table_count, sizeof *b->tables);
}

void fx_seal_bound(fx_bound *b) {
    fx_edits_show(b);
    b->seal = (fx_seal){.head = head_of(b), .lists = lists_of(b), .body = body_of(b)};
}

static int is_listed(const fx_bound *list, const fx_bound *b) {
    while (list && list != b)
        list = list->others;
    return list != NULL;
}

/* Makes a program whose pointers may lead anywhere one that can be unbound: some of its memory stays taken. */
static void disarm(fx_bound *b) {
    b->is_damaged = 1;
    b->touches = (fx_touches){0};
    b->edit_count = 0;
    if (b->owner && !is_listed(b->engine->bound, b->owner) && !is_listed(b->engine->unbound, b->owner))
        b->owner = NULL;
}

/* Whether the structures of all programs are whole, so that their pointers may be followed. Of those unbound whose
 * arrays others share, only these arrays are used. */
static int are_heads_whole(fx_engine *e) {
    int are_whole = 1;
    for (fx_bound *b = e->unbound; b; b = b->others)
        are_whole &= !b->is_damaged && head_of(b) == b->seal.head;
    for (fx_bound *b = e->bound; b; b = b->others) {
        if (!b->is_damaged && (head_of(b) != b->seal.head || lists_of(b) != b->seal.lists))
            disarm(b);
        are_whole &= !b->is_damaged;
    }
    return are_whole;
}

int fx_seal_holds(const fx_engine *e, const fx_program *p, const fx_load *load, int64_t begin, int64_t end,
                  int64_t address) {
    const char *data = e->arena.memory + address;
    const uint32_t *crcs = &p->crcs[load->crc_first + begin / load->chunk_bytes];
    for (int64_t at = begin; at < end; at += load->chunk_bytes) {
        const int64_t bytes = end - at < load->chunk_bytes ? end - at : load->chunk_bytes;
        if (fx_crc32c_by(e->crc_path, 0, data + (at - begin), (size_t)bytes) != *crcs++)
            return 0;
    }
    return 1;
}

static fx_status check_pinned(const fx_engine *e, const fx_program *p, fx_poll *poll, fx_error *error) {
    for (uint32_t i = 0; i < p->pinned_count; i++) {
        const fx_load *load = &p->pinned[i];
        for (int64_t at = 0, part; at < load->check_bytes; at += part) {
            part = load->chunk_bytes * (CHECK_BYTES / load->chunk_bytes + 1);
            const int64_t end = load->check_bytes - at < part ? load->check_bytes : at + part;
            if (!fx_seal_holds(e, p, load, at, end, load->address + load->check_lead + at)) {
                fx_fail(error, FX_ERR_SEAL, 0);
                error->is_pinned = 1;
                error->file_offset = load->file_offset + load->check_lead + at;
                return FX_ERR_SEAL;
            }
            if (fx_polled(poll))
                return fx_fail(error, FX_ERR_CANCELLED, 0);
        }
    }
    const uint32_t *zeros = (const uint32_t *)(e->arena.memory + p->zeros_offset);
    uint32_t any = 0;
    for (int64_t i = 0; i < p->zeros_count; i++)
        any |= zeros[i];
    return any ? fx_fail(error, FX_ERR_SEAL, 0) : FX_OK;
}

/* Whether a program before it in the engine's list has the same pinned weights and zeros. */
static int is_checked(const fx_engine *e, const fx_bound *b) {
    const fx_bound *other = e->bound;
    while (other != b && !fx_share_pins(&other->program, &b->program))
        other = other->others;
    return other != b;
}

fx_status fx_seals_check(fx_engine *e, fx_poll *poll, fx_error *error) {
    if (!e->is_suspect)
        return FX_OK;
    if (!are_heads_whole(e) || !fx_recordings_are_whole(e))
        return fx_fail(error, FX_ERR_SEAL, 0);
    for (fx_bound *b = e->bound; b; b = b->others) {
        fx_edits_show(b);
        if (body_of(b) != b->seal.body)
            return fx_fail(error, FX_ERR_SEAL, 0);
    }
    for (fx_bound *b = e->bound; b; b = b->others) {
        const fx_status status = is_checked(e, b) ? FX_OK : check_pinned(e, &b->program, poll, error);
        if (status != FX_OK)
            return status;
        for (int i = 0; i < FX_PREDECESSORS; i++)
            b->after[i].before = NULL; /* computed again */
    }
    e->must_restart = 1;
    e->is_suspect = 0;
    return FX_OK;
}
