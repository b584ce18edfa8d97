/* Programs that share the arrays of another one: they have only the words in which their nodes and steps differ from
 * the owner's. These are exchanged with the owner's before they run. */
#include "state.h"

#include <stdlib.h>
#include <string.h>

static const char *bytes_of(const fx_program *p, int which) {
    return which ? (const char *)p->steps : (const char *)p->nodes;
}

static int64_t size_of(const fx_program *p, int which) {
    return which ? (int64_t)p->step_count * (int64_t)sizeof *p->steps
                 : (int64_t)p->node_count * (int64_t)sizeof *p->nodes;
}

/* Counts the words of the nodes and steps of p that differ from the owner's, and writes them to `edits` unless that is
 * NULL. */
static int64_t compare(const fx_bound *owner, const fx_program *p, fx_edit *edits) {
    int64_t count = 0;
    for (int which = 0; which < 2; which++) {
        const char *own = bytes_of(&owner->program, which), *new = bytes_of(p, which);
        for (int64_t at = 0; at < size_of(p, which); at += (int64_t)sizeof edits->word) {
            if (!memcmp(own + at, new + at, sizeof edits->word))
                continue;
            if (edits) {
                edits[count].at = (uint32_t)((own + at - owner->records) / (int64_t)sizeof edits->word);
                memcpy(&edits[count].word, new + at, sizeof edits->word);
            }
            count++;
        }
    }
    return count;
}

static int equal(const void *a, const void *b, uint32_t count, size_t bytes) {
    return !count || a == b || !memcmp(a, b, count * bytes);
}

/* Whether programs of one file have equal counts, pins and loads. */
static int may_share(const fx_program *a, const fx_program *b) {
    return a->file.fd == b->file.fd && a->node_count == b->node_count && a->step_count == b->step_count &&
           a->group_count == b->group_count && a->load_count == b->load_count && a->table_count == b->table_count &&
           !a->spill_count && !b->spill_count && a->crc_count == b->crc_count && a->input_count == b->input_count &&
           a->output_count == b->output_count && fx_share_pins(a, b) &&
           equal(a->groups, b->groups, a->group_count, sizeof *a->groups) &&
           equal(a->loads, b->loads, a->load_count, sizeof *a->loads) &&
           equal(a->tables, b->tables, a->table_count, sizeof *a->tables) &&
           equal(a->crcs, b->crcs, a->crc_count, sizeof *a->crcs);
}

/* The bound program, or the owner of one, whose arrays a new one may share; NULL: none. */
static fx_bound *owner_for(const fx_engine *e, const fx_program *p) {
    for (fx_bound *b = e->bound; b; b = b->others)
        if (may_share(&b->program, p))
            return fx_owner(b);
    return NULL;
}

/* Exchanges the words of a program with those of its owner. */
static void exchange(fx_bound *b) {
    for (int64_t i = 0; i < b->edit_count; i++) {
        char *at = b->owner->records + (int64_t)b->edits[i].at * (int64_t)sizeof b->edits->word;
        uint32_t word;
        memcpy(&word, at, sizeof word);
        memcpy(at, &b->edits[i].word, sizeof word);
        b->edits[i].word = word;
    }
}

void fx_edits_show(fx_bound *b) {
    fx_bound *owner = fx_owner(b), *wanted = b->owner ? b : NULL;
    if (owner->shown == wanted)
        return;
    if (owner->shown)
        exchange(owner->shown);
    if (wanted)
        exchange(wanted);
    owner->shown = wanted;
}

/* Lays the bound program out in memory (NULL: only counts) and returns the bytes it takes. */
static int64_t lay_out(char *memory, const fx_program *p, int64_t edit_count, fx_bound *owner) {
    int64_t used = 0;
    const int64_t io_bytes = ((int64_t)p->input_count + p->output_count) * (int64_t)sizeof *p->io_bytes;
    fx_bound *b = fx_carve(memory, &used, sizeof *b);
    fx_edit *edits = fx_carve(memory, &used, edit_count * (int64_t)sizeof *edits);
    void *sizes = fx_carve(memory, &used, io_bytes);
    if (!memory)
        return used;
    *b = *owner;
    b->owner = owner;
    b->shown = NULL;
    b->sharers = 0;
    b->edits = edits;
    b->edit_count = edit_count;
    compare(owner, p, edits);
    if (io_bytes)
        memcpy(sizes, p->io_bytes, (size_t)io_bytes);
    b->program.io_bytes = sizes;
    b->program.arena_bytes = p->arena_bytes;
    return used;
}

fx_bound *fx_edits_make(fx_engine *e, const fx_program *p, int64_t *bytes) {
    fx_bound *owner = owner_for(e, p);
    if (!owner)
        return NULL;
    fx_edits_show(owner);
    const int64_t count = compare(owner, p, NULL), needed = lay_out(NULL, p, count, owner);
    char *memory = aligned_alloc(64, (size_t)needed);
    if (!memory)
        return NULL;
    *bytes = needed;
    lay_out(memory, p, count, owner);
    owner->sharers++;
    return (fx_bound *)memory;
}

static void drop_unbound(fx_bound *owner) {
    fx_bound **at = &owner->engine->unbound;
    while (*at && *at != owner)
        at = &(*at)->others;
    if (!*at)
        return;
    *at = owner->others;
    free(owner);
}

void fx_edits_free(fx_bound *b) {
    fx_bound *owner = b->owner;
    b->bytes -= b->touches.bytes;
    fx_touches_free(&b->touches);
    if (b->sharers) { /* its arrays stay until the last of these is freed */
        b->others = b->engine->unbound;
        b->engine->unbound = b;
        return;
    }
    if (owner && owner->shown == b)
        fx_edits_show(owner);
    free(b);
    if (owner && !--owner->sharers)
        drop_unbound(owner);
}
