/* Pins, slices, kernels and the size of the working part by threshold accepting (Dueck, Scheuer 1990). A random change
 * stays when it makes the run longer by no more than a threshold, which falls to 0. Each change is judged with
 * addresses, as only those show what fragmentation costs. */
#include "flexnn/draft.h"
#include "sizes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define REPAIRS 8       /* nodes pinned or unpinned after a change, so that the draft fits the memory and uses it */
#define THRESHOLD 0.005 /* part of the run by which a change may lengthen it at first */
#define WORKING_PART 8  /* a change of the working part is at most this part of bytes_max */
#define SEED UINT64_C(0x9e3779b97f4a7c15)

typedef struct state {
    fx_choice *choices; /* [nodes] */
    int64_t working_bytes;
    int from_top;
    double seconds;
} state;

typedef struct annealing {
    fx_draft *d;
    const fx_problem *p;
    int64_t bytes_max, working_bytes_min;
    uint64_t random;
    int64_t *address, *node_address;
} annealing;

static uint32_t below(annealing *a, uint32_t count) { /* xorshift64* */
    a->random ^= a->random >> 12;
    a->random ^= a->random << 25;
    a->random ^= a->random >> 27;
    return (uint32_t)(((a->random * UINT64_C(2685821657736338717)) >> 32) * count >> 32);
}

static void copy(const annealing *a, state *to, const state *from) {
    memcpy(to->choices, from->choices, a->p->node_count * sizeof *to->choices);
    to->working_bytes = from->working_bytes;
    to->from_top = from->from_top;
    to->seconds = from->seconds;
}

static int alike(const annealing *a, const state *x, const state *y) {
    return x->working_bytes == y->working_bytes && x->from_top == y->from_top &&
           !memcmp(x->choices, y->choices, a->p->node_count * sizeof *x->choices);
}

/* An item that is panels, or -1. */
static int64_t some_item(annealing *a) {
    const int64_t i = below(a, a->p->item_count);
    return a->p->items[i].constant < 0 ? i : -1;
}

static void choose_slices(annealing *a, state *s, int64_t i, int slices_in_room) {
    const fx_choice before = s->choices[i];
    fx_choose_node(a->p, (uint32_t)i, s->working_bytes, slices_in_room, 0, &s->choices[i]);
    if (before.variant > s->choices[i].variant && below(a, 2))
        s->choices[i].variant = before.variant;
}

/* Pins so many panels of an item and of its twins. */
static void pin(annealing *a, state *s, int64_t item, int64_t panels) {
    static const int slices_in_room[] = {1, 2, 2, 4, 4, 8};
    int64_t i = item;
    fx_pin_item(a->p, item, panels, s->choices);
    do {
        choose_slices(a, s, a->p->items[i].node, slices_in_room[below(a, 6)]);
        i = a->p->items[i].twin;
    } while (i != item);
}

static void change(annealing *a, state *s) {
    const fx_problem *p = a->p;
    const uint32_t kind = below(a, 100);
    if (kind < 18) {
        int64_t by = a->bytes_max / WORKING_PART / (1 << below(a, 6)), at = (int64_t)below(a, 2 * 1024) - 1024;
        const int64_t changed = (s->working_bytes + by * at / 1024) & -FX_LINE;
        if (changed <= a->bytes_max)
            s->working_bytes = changed < a->working_bytes_min ? a->working_bytes_min : changed;
        return;
    }
    if (kind < 22) {
        s->from_top = !s->from_top;
        return;
    }
    const int64_t item = some_item(a);
    if (item < 0)
        return;
    const int64_t i = p->items[item].node;
    const fx_draft_node *node = &p->nodes[i];
    fx_choice *c = &s->choices[i];
    const int64_t streamed = node->panel_count - c->pinned_panels;
    if (kind < 55) {
        pin(a, s, item, streamed ? node->panel_count : 0);
    } else if (kind < 65) {
        pin(a, s, item, (int64_t)below(a, (uint32_t)node->panel_count + 1));
    } else if (kind < 85) {
        if (!streamed)
            return;
        int64_t count = (streamed + c->slice_panels - 1) / c->slice_panels + (below(a, 2) ? 1 : -1);
        count = count < 1 ? 1 : count > streamed ? streamed : count;
        c->slice_panels = (int32_t)((streamed + count - 1) / count);
    } else {
        c->variant = (int32_t)below(a, (uint32_t)node->variant_count);
    }
}

/* Unpins nodes while the draft takes too much memory, and pins others where some is left; 0 if it still takes too
 * much. */
static int repair(annealing *a, state *s) {
    const fx_problem *p = a->p;
    int64_t over = 1;
    fx_draft_build(a->d, p, s->choices, s->working_bytes);
    for (int n = 0; n < 3 * REPAIRS; n++) {
        over = fx_draft_bytes(a->d, p, s->working_bytes) - a->bytes_max;
        const int64_t item = some_item(a);
        if (item < 0 || (over <= 0 && n >= REPAIRS))
            continue;
        const int64_t i = p->items[item].node;
        const fx_draft_node *node = &p->nodes[i];
        const int64_t pinned = s->choices[i].pinned_panels;
        const int64_t needed = (over + p->io_align + node->panel_bytes - 1) / node->panel_bytes;
        if (over > 0 && pinned) {
            pin(a, s, item, pinned > needed && needed * 2 < pinned ? pinned - needed : 0);
        } else if (over <= 0 && pinned < node->panel_count &&
                   (node->panel_count - pinned) * node->panel_bytes + 2 * p->io_align <= -over) {
            pin(a, s, item, node->panel_count);
        } else {
            continue;
        }
        fx_draft_build(a->d, p, s->choices, s->working_bytes);
    }
    return fx_draft_bytes(a->d, p, s->working_bytes) <= a->bytes_max;
}

/* Whether the state's run takes at most `most` seconds; sets the state's seconds. */
static fx_status judge(annealing *a, state *s, double most, int *good) {
    *good = 0;
    fx_draft_time(a->d, a->p); /* a run without addresses is a lower bound */
    if (a->d->seconds > most)
        return FX_OK;
    fx_status status =
        fx_draft_place(a->d, a->p, s->choices, s->working_bytes, s->from_top, a->address, a->node_address);
    if (status == FX_ERR_BOUNDS)
        return FX_OK;
    s->seconds = a->d->seconds;
    *good = status == FX_OK && s->seconds <= most;
    return status;
}

/* Chooses the better direction for the state's addresses; FX_ERR_BOUNDS if neither works, or it takes too much
 * memory. */
static fx_status begin(annealing *a, state *s) {
    double best = INFINITY;
    int found = 0, top = 0, good;
    fx_draft_build(a->d, a->p, s->choices, s->working_bytes);
    if (fx_draft_bytes(a->d, a->p, s->working_bytes) > a->bytes_max)
        return FX_ERR_BOUNDS;
    for (s->from_top = 0; s->from_top < 2; s->from_top++) {
        fx_status status = judge(a, s, best, &good);
        if (status != FX_OK)
            return status;
        if (good) {
            best = s->seconds;
            top = s->from_top;
            found = 1;
        }
    }
    s->from_top = top;
    s->seconds = best;
    return found ? FX_OK : FX_ERR_BOUNDS;
}

static fx_status anneal(annealing *a, state *best, state *now, state *next, int tries) {
    fx_status status = begin(a, best);
    if (status == FX_OK)
        copy(a, now, best);
    for (int n = 0; n < tries && status == FX_OK; n++) {
        int good;
        copy(a, next, now);
        for (uint32_t changes = 1 + below(a, 2); changes; changes--)
            change(a, next);
        if (!repair(a, next) || alike(a, next, now))
            continue;
        status = judge(a, next, now->seconds * (1.0 + THRESHOLD * (double)(tries - n) / (double)tries), &good);
        if (!good)
            continue;
        copy(a, now, next);
        if (now->seconds < best->seconds)
            copy(a, best, now);
    }
    return status;
}

/* The smallest working part worth trying: constants that are pinned stay pinned, so no node needs room for them. */
static int64_t needed(const fx_problem *p, const fx_choice *choices) {
    int64_t most = 0;
    for (uint32_t i = 0; i < p->node_count; i++) {
        const fx_draft_node *node = &p->nodes[i];
        int64_t bytes = node->tight_bytes;
        for (int64_t c = 0; c < node->constant_count; c++)
            if (choices[i].pinned_constants >> c & 1)
                bytes -= p->constants[node->constant_first + c].room_bytes;
        most = bytes > most ? bytes : most;
    }
    return most;
}

fx_status fx_anneal(fx_draft *d, const fx_problem *p, fx_choice *choices, int64_t *working_bytes, int *from_top,
                    int64_t bytes_max, int tries) {
    const size_t nodes = p->node_count;
    annealing a = {.d = d, .p = p, .bytes_max = bytes_max, .random = SEED};
    a.working_bytes_min = fx_align_up(needed(p, choices), FX_LINE);
    fx_choice *changed = malloc((2 * nodes + 1) * sizeof *changed);
    a.address = malloc(((size_t)d->slice_max + 1 + nodes * (1 + FX_CONSTANTS_MAX)) * sizeof *a.address);
    fx_status status = FX_ERR_MEMORY;
    if (changed && a.address) {
        a.node_address = a.address + d->slice_max + 1;
        state best = {.choices = choices, .working_bytes = *working_bytes};
        state now = {.choices = changed}, next = {.choices = changed + nodes};
        status = anneal(&a, &best, &now, &next, p->item_count ? tries : 0);
        *working_bytes = best.working_bytes;
        *from_top = best.from_top;
    }
    free(changed);
    free(a.address);
    return status;
}
