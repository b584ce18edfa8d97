/* Pins, kernels and slices of nodes, and the room that a node's kernel leaves for its slices. */
#include "flexnn/draft.h"
#include "sizes.h"

#include <string.h>

#define SLICE_BYTES_MIN ((int64_t)256 << 10) /* less only in less room: below this no device reaches its rate */
#define SLICE_BYTES_MAX ((int64_t)16 << 20)  /* larger slices only delay their step */
#define PART_BYTES_MIN ((int64_t)64 << 10)   /* smallest part of a node's weights that is worth pinning */

/* ---- room ---- */

typedef struct block {
    int64_t bytes, address;
    int64_t gap; /* index of the gap it lies in */
} block;

/* Puts each block at the start of the smallest gap that holds it; returns the largest gap left, or -1 if one does not
 * fit. */
static int64_t fit(const fx_problem *p, const fx_draft_node *node, int64_t working_bytes, block *blocks, int count) {
    const fx_gap *gaps = p->gaps + node->gap_first;
    int64_t largest = 0;
    for (int b = 0; b <= count; b++) {
        int64_t best = -1, best_bytes = 0, best_start = 0;
        for (int64_t g = 0; g <= node->gap_count; g++) {
            int64_t start = g < node->gap_count ? gaps[g].start : node->top_offset,
                    end = g < node->gap_count ? gaps[g].end : working_bytes;
            for (int i = 0; i < b; i++)
                if (blocks[i].gap == g)
                    start += blocks[i].bytes;
            if (b == count)
                largest = end - start > largest ? end - start : largest;
            else if (blocks[b].bytes <= end - start && (best < 0 || end - start < best_bytes)) {
                best = g;
                best_bytes = end - start;
                best_start = start;
            }
        }
        if (b == count)
            return largest;
        if (best < 0)
            return -1;
        blocks[b].gap = best;
        blocks[b].address = best_start;
    }
    return largest;
}

int64_t fx_node_room(const fx_problem *p, const fx_draft_node *node, int64_t working_bytes, const fx_choice *choice,
                     int64_t *address) {
    const fx_variant *variant = &p->variants[node->variant_first + choice->variant];
    block blocks[2 + FX_CONSTANTS_MAX];
    int owner[2 + FX_CONSTANTS_MAX], count = 0;
    for (int i = 0; i <= FX_CONSTANTS_MAX; i++) {
        int wanted =
            !i ? variant->workspace_bytes > 0 : i <= node->constant_count && !(choice->pinned_constants >> (i - 1) & 1);
        address[i] = -1;
        if (!wanted)
            continue;
        blocks[count].bytes = i ? p->constants[node->constant_first + i - 1].room_bytes : variant->workspace_bytes;
        owner[count++] = i;
    }
    int64_t room = fit(p, node, working_bytes, blocks, count),
            panel = node->panel_count ? fx_room_bytes(p, node->panel_bytes) : 0;
    int streams = choice->pinned_panels < node->panel_count;
    if ((room < 0 || (streams && room < panel)) && choice->variant == node->variant_count - 1 &&
        working_bytes >= node->tight_bytes) {
        /* Largest first, with one panel among them, as the smallest working part was computed. */
        if (panel) {
            blocks[count].bytes = panel;
            owner[count++] = FX_CONSTANTS_MAX + 1;
        }
        for (int i = 1; i < count; i++)
            for (int j = i; j && blocks[j].bytes > blocks[j - 1].bytes; j--) {
                block b = blocks[j];
                int o = owner[j];
                blocks[j] = blocks[j - 1], owner[j] = owner[j - 1];
                blocks[j - 1] = b, owner[j - 1] = o;
            }
        room = fit(p, node, node->tight_bytes, blocks, count) < 0 ? -1 : panel;
    }
    for (int i = 0; i < count && room >= 0; i++)
        if (owner[i] <= FX_CONSTANTS_MAX)
            address[owner[i]] = blocks[i].address;
    return room;
}

/* ---- choices ---- */

static int64_t pinned_panel_bytes(const fx_problem *p, const fx_draft_node *node, int64_t panels) {
    return panels ? fx_occupied_bytes(p, node->weight_offset, panels * node->panel_bytes) : 0;
}

void fx_pin_item(const fx_problem *p, int64_t item, int64_t panels, fx_choice *choices) {
    int64_t i = item;
    do {
        fx_choice *choice = &choices[p->items[i].node];
        if (p->items[i].constant < 0)
            choice->pinned_panels = (int32_t)panels;
        else
            choice->pinned_constants |= 1u << p->items[i].constant;
        i = p->items[i].twin;
    } while (i != item);
}

static void pin_items(const fx_problem *p, const int32_t *order, int64_t left, fx_choice *choices) {
    for (uint32_t i = 0; i < p->item_count && left > 0; i++) {
        const fx_item *item = &p->items[order[i]];
        const fx_draft_node *node = &p->nodes[item->node];
        const fx_choice *choice = &choices[item->node];
        if (item->constant >= 0 ? choice->pinned_constants >> item->constant & 1 : choice->pinned_panels > 0)
            continue; /* with a twin */
        if (item->constant >= 0) {
            const fx_constant *c = &p->constants[node->constant_first + item->constant];
            if (c->after_node >= 0)
                continue;
            int64_t bytes = fx_occupied_bytes(p, c->file_offset, c->bytes);
            if (bytes <= left) {
                fx_pin_item(p, order[i], 0, choices);
                left -= bytes;
            }
            continue;
        }
        int64_t panels = node->panel_count, bytes = pinned_panel_bytes(p, node, panels);
        if (bytes > left) {
            panels = (left - 2 * p->io_align) / node->panel_bytes;
            if (panels <= 0 || panels * node->panel_bytes < PART_BYTES_MIN)
                continue;
            bytes = pinned_panel_bytes(p, node, panels);
        }
        fx_pin_item(p, order[i], panels, choices);
        left -= bytes;
    }
}

/* Panels of each slice (the last may have fewer), as even as possible, so that `slices_in_room` slices fit the room at
 * once. */
static int32_t slice_panels(const fx_problem *p, int64_t panels, int64_t panel_bytes, int64_t room,
                            int slices_in_room) {
    int64_t target = room / 2 < SLICE_BYTES_MIN ? room / 2 : SLICE_BYTES_MIN;
    if (room / slices_in_room > target)
        target = room / slices_in_room;
    if (target > SLICE_BYTES_MAX)
        target = SLICE_BYTES_MAX;
    if (fx_room_bytes(p, panels * panel_bytes) <= target)
        return (int32_t)panels;
    int64_t most = (target - (p->io_align > FX_LINE ? fx_room_bytes(p, 1) - 1 : 0)) / panel_bytes;
    if (most < 1)
        most = 1;
    int64_t even = (panels + (panels + most - 1) / most - 1) / ((panels + most - 1) / most);
    return (int32_t)(even % 2 && even > 1 && even < most ? even + 1 : even); /* AVX-512 computes two panels at once */
}

void fx_choose_node(const fx_problem *p, uint32_t i, int64_t working_bytes, int slices_in_room, int smallest,
                    fx_choice *choice) {
    const fx_draft_node *node = &p->nodes[i];
    int64_t address[1 + FX_CONSTANTS_MAX], streamed = node->panel_count - choice->pinned_panels, room = 0;
    const int32_t last = (int32_t)node->variant_count - 1;
    for (choice->variant = smallest ? last : 0;; choice->variant++) {
        room = fx_node_room(p, node, working_bytes, choice, address);
        if (choice->variant == last)
            break;
        int64_t workspace = p->variants[node->variant_first + choice->variant].workspace_bytes;
        int64_t panel = streamed ? fx_room_bytes(p, node->panel_bytes) : 0;
        int64_t weight = streamed ? fx_room_bytes(p, streamed * node->panel_bytes) : 0;
        int64_t wanted = workspace > panel ? workspace : panel;
        if (room >= panel && room >= (weight < wanted ? weight : wanted))
            break;
    }
    choice->slice_panels = streamed ? slice_panels(p, streamed, node->panel_bytes, room, slices_in_room) : 0;
}

/* Chooses kernel and slices of the nodes whose pins differ from `before` (NULL: of all nodes). */
static void choose(const fx_problem *p, const fx_recipe *r, const fx_choice *before, fx_choice *choices) {
    for (uint32_t i = 0; i < p->node_count; i++) {
        fx_choice *choice = &choices[i];
        if (before && before[i].pinned_panels == choice->pinned_panels &&
            before[i].pinned_constants == choice->pinned_constants)
            *choice = before[i];
        else
            fx_choose_node(p, i, r->working_bytes, r->slices_in_room, r->smallest, choice);
    }
}

void fx_choose(fx_draft *d, const fx_problem *p, const fx_recipe *r, fx_choice *choices) {
    int64_t pinned = r->bytes_max - r->working_bytes - p->step_bytes * p->node_count;
    const size_t bytes = p->node_count * sizeof *choices;
    const fx_choice *before = NULL;
    for (int64_t over = 1; over > 0; pinned -= over) { /* pins less each time, in the end nothing */
        memset(choices, 0, bytes);
        pin_items(p, r->order, pinned, choices);
        choose(p, r, before, choices);
        fx_draft_build(d, p, choices, r->working_bytes);
        over = fx_draft_bytes(d, p, r->working_bytes) - r->bytes_max;
        if (pinned <= 0)
            break;
        before = memcpy(d->before, choices, bytes);
    }
    fx_draft_time(d, p);
}
