#include "draft.h"

#include <stdlib.h>
#include <string.h>

#define LINE 64
#define BYTES_MAX ((int64_t)1 << 48) /* of any one size or offset: no sum of a few overflows */
#define STEPS_MAX (1 << 22)
#define SLICE_BYTES_MIN ((int64_t)256 << 10) /* smaller only where the room is: no device reaches its rate below */
#define SLICE_BYTES_MAX ((int64_t)16 << 20)  /* larger ones only delay their step */
#define PART_BYTES_MIN ((int64_t)64 << 10)   /* of a layer's weights, worth pinning alone */

static int64_t align_up(int64_t size, int64_t align) { /* a power of two: no division */
    return (size + align - 1) & -align;
}

/* Arena bytes that a part of the file takes: rounded outwards. */
static int64_t occupied(const fx_problem *p, int64_t offset, int64_t bytes) {
    return align_up(offset + bytes, p->io_align) - (offset & -p->io_align);
}

/* The same wherever the part lies in the file. */
static int64_t room_of(const fx_problem *p, int64_t bytes) {
    return p->io_align <= LINE ? align_up(bytes, LINE) : align_up(bytes, p->io_align) + 2 * p->io_align;
}

static int sane(int64_t size) {
    return size >= 0 && size <= BYTES_MAX;
}

static int inside(int64_t first, int64_t count, uint32_t total) {
    return first >= 0 && count >= 0 && first <= total && count <= total - first;
}

static int layer_sane(const fx_problem *p, const fx_layer *l) {
    if (!inside(l->variant, l->variants, p->variant_count) || !l->variants ||
        !inside(l->constant, l->constants, p->constant_count) || l->constants > FX_CONSTANTS_MAX ||
        !inside(l->gap, l->gaps, p->gap_count))
        return 0;
    if (l->panels < 0 || l->panels > STEPS_MAX || !sane(l->panel_bytes) || !sane(l->weight_offset) || !sane(l->top) ||
        !sane(l->live_bytes) || !sane(l->tight_bytes))
        return 0;
    return !l->panels || (l->panel_bytes > 0 && l->panel_bytes <= BYTES_MAX / l->panels);
}

fx_status fx_problem_check(const fx_problem *p) {
    int64_t steps = 0, items = 0;
    if (p->io_align < 1 || p->io_align > (1 << 20) || (p->io_align & (p->io_align - 1)) || !sane(p->step_bytes) ||
        !(p->storage_bytes_per_second > 0) || !(p->request_s >= 0) ||
        !(p->compute_share > 0 && p->compute_share <= 1) || !(p->load_share > 0 && p->load_share <= 1))
        return FX_ERR_PARAMS;
    for (uint32_t i = 0; i < p->layer_count; i++) {
        if (!layer_sane(p, &p->layers[i]))
            return FX_ERR_PARAMS;
        steps += p->layers[i].panels + 2 + p->layers[i].constants;
        items += (p->layers[i].panels > 0) + p->layers[i].constants;
        if (steps > STEPS_MAX)
            return FX_ERR_PARAMS;
    }
    if (items != p->item_count)
        return FX_ERR_PARAMS;
    for (uint32_t i = 0; i < p->item_count; i++) {
        const fx_item *item = &p->items[i];
        if (item->layer < 0 || item->layer >= p->layer_count || item->constant < -1 ||
            item->constant >= p->layers[item->layer].constants ||
            (item->constant < 0 && !p->layers[item->layer].panels))
            return FX_ERR_PARAMS;
    }
    for (uint32_t i = 0; i < p->variant_count; i++)
        if (!sane(p->variants[i].workspace_bytes))
            return FX_ERR_PARAMS;
    for (uint32_t i = 0; i < p->constant_count; i++)
        if (!sane(p->constants[i].file_offset) || !sane(p->constants[i].bytes) || !sane(p->constants[i].room))
            return FX_ERR_PARAMS;
    for (uint32_t i = 0; i < p->gap_count; i++)
        if (!sane(p->gaps[i].start) || !sane(p->gaps[i].end))
            return FX_ERR_PARAMS;
    return FX_OK;
}

int fx_choices_fit(const fx_problem *p, const fx_choice *choices) {
    for (uint32_t i = 0; i < p->layer_count; i++) {
        const fx_layer *l = &p->layers[i];
        const fx_choice *c = &choices[i];
        if (c->variant < 0 || c->variant >= l->variants || c->pinned_panels < 0 || c->pinned_panels > l->panels ||
            c->slice_panels < (c->pinned_panels < l->panels) || c->slice_panels > l->panels)
            return 0;
    }
    return 1;
}

int fx_draft_sane(fx_draft *d, const int32_t *order, uint32_t count) {
    int32_t loads = 0, streamed = 0;
    uint32_t next = 0;
    d->is_built = 0;
    d->pinned_bytes = d->stream_bytes = 0;
    for (uint32_t i = 0; i < d->piece_count; i++) {
        const fx_piece_draft *piece = &d->pieces[i];
        if (piece->step < 0 || (uint32_t)piece->step >= d->step_count || !sane(piece->arena_bytes))
            return 0;
        *(piece->stays ? &d->pinned_bytes : &d->stream_bytes) += piece->arena_bytes;
    }
    for (uint32_t j = 0; j < d->step_count; j++) {
        if (d->steps[j].loads < loads)
            return 0;
        loads = d->steps[j].loads;
        for (; streamed < loads; next++) { /* no wait passes the step that needs the load */
            if (next >= d->piece_count || d->pieces[next].wait_steps > (int64_t)j)
                return 0;
            streamed += !d->pieces[next].stays;
        }
    }
    for (uint32_t i = 0; i < count; i++)
        if (order[i] < 0 || (uint32_t)order[i] >= d->piece_count || d->pieces[order[i]].stays)
            return 0;
    return 1;
}

fx_status fx_draft_make(fx_draft *d, const fx_problem *p) {
    size_t steps = 0, pieces = 0;
    for (uint32_t i = 0; i < p->layer_count; i++) {
        steps += (size_t)p->layers[i].panels + 1;
        pieces += (size_t)p->layers[i].panels + (size_t)p->layers[i].constants;
    }
    *d = (fx_draft){.step_max = (uint32_t)steps, .piece_max = (uint32_t)pieces};
    d->steps = malloc((steps + 1) * sizeof *d->steps);
    d->pieces = malloc((pieces + 1) * sizeof *d->pieces);
    d->loads = malloc((pieces + 1) * sizeof *d->loads);
    d->work = malloc((4 * pieces + 2) * sizeof *d->work);
    d->marks = malloc((steps + 1) * sizeof *d->marks);
    d->starts = malloc((p->layer_count + (size_t)1) * sizeof *d->starts);
    d->built = malloc((p->layer_count + (size_t)1) * sizeof *d->built);
    d->before = malloc((p->layer_count + (size_t)1) * sizeof *d->before);
    d->ranks = malloc((p->layer_count + (size_t)1) * sizeof *d->ranks);
    if (d->steps && d->pieces && d->loads && d->marks && d->starts && d->built && d->work && d->before && d->ranks)
        return FX_OK;
    fx_draft_free(d);
    return FX_ERR_MEMORY;
}

void fx_draft_free(fx_draft *d) {
    free(d->steps);
    free(d->pieces);
    free(d->loads);
    free(d->marks);
    free(d->starts);
    free(d->built);
    free(d->work);
    free(d->before);
    free(d->ranks);
    *d = (fx_draft){0};
}

/* ---- room ---- */

typedef struct block {
    int64_t bytes, address;
    int64_t gap; /* that it lies in */
} block;

/* Each block into the smallest gap that holds it, at its start; the largest gap left, or -1. */
static int64_t fit(const fx_problem *p, const fx_layer *l, int64_t region, block *blocks, int count) {
    const fx_gap *gaps = p->gaps + l->gap;
    int64_t largest = 0;
    for (int b = 0; b <= count; b++) {
        int64_t best = -1, best_bytes = 0, best_start = 0;
        for (int64_t g = 0; g <= l->gaps; g++) {
            int64_t start = g < l->gaps ? gaps[g].start : l->top, end = g < l->gaps ? gaps[g].end : region;
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

int64_t fx_layer_room(const fx_problem *p, const fx_layer *l, int64_t region, const fx_choice *choice,
                      int64_t *address) {
    const fx_variant *way = &p->variants[l->variant + choice->variant];
    block blocks[2 + FX_CONSTANTS_MAX];
    int owner[2 + FX_CONSTANTS_MAX], count = 0;
    for (int i = 0; i <= FX_CONSTANTS_MAX; i++) {
        int wanted = !i ? way->workspace_bytes > 0 : i <= l->constants && !(choice->pinned_constants >> (i - 1) & 1);
        address[i] = -1;
        if (!wanted)
            continue;
        blocks[count].bytes = i ? p->constants[l->constant + i - 1].room : way->workspace_bytes;
        owner[count++] = i;
    }
    int64_t room = fit(p, l, region, blocks, count), panel = l->panels ? room_of(p, l->panel_bytes) : 0;
    int streams = choice->pinned_panels < l->panels;
    if ((room < 0 || (streams && room < panel)) && choice->variant == l->variants - 1 && region >= l->tight_bytes) {
        /* Largest first, one panel among them: what the smallest region was made for. */
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
        room = fit(p, l, l->tight_bytes, blocks, count) < 0 ? -1 : panel;
    }
    for (int i = 0; i < count && room >= 0; i++)
        if (owner[i] <= FX_CONSTANTS_MAX)
            address[owner[i]] = blocks[i].address;
    return room;
}

/* ---- choices ---- */

static int64_t pinned_panel_bytes(const fx_problem *p, const fx_layer *l, int64_t panels) {
    return panels ? occupied(p, l->weight_offset, panels * l->panel_bytes) : 0;
}

static void pin_items(const fx_problem *p, const int32_t *order, int64_t left, fx_choice *choices) {
    for (uint32_t i = 0; i < p->item_count && left > 0; i++) {
        const fx_item *item = &p->items[order[i]];
        const fx_layer *l = &p->layers[item->layer];
        fx_choice *choice = &choices[item->layer];
        if (item->constant >= 0) {
            const fx_constant *c = &p->constants[l->constant + item->constant];
            int64_t bytes = occupied(p, c->file_offset, c->bytes);
            if (bytes <= left) {
                choice->pinned_constants |= 1u << item->constant;
                left -= bytes;
            }
            continue;
        }
        int64_t panels = l->panels, bytes = pinned_panel_bytes(p, l, panels);
        if (bytes > left) {
            panels = (left - 2 * p->io_align) / l->panel_bytes;
            if (panels <= 0 || panels * l->panel_bytes < PART_BYTES_MIN)
                continue;
            bytes = pinned_panel_bytes(p, l, panels);
        }
        choice->pinned_panels = (int32_t)panels;
        left -= bytes;
    }
}

/* Panels of each slice but the last: as many as `share` slices in the room allow, evenly spread. */
static int32_t slice_panels(const fx_problem *p, int64_t panels, int64_t panel_bytes, int64_t room, int share) {
    int64_t target = room / 2 < SLICE_BYTES_MIN ? room / 2 : SLICE_BYTES_MIN;
    if (room / share > target)
        target = room / share;
    if (target > SLICE_BYTES_MAX)
        target = SLICE_BYTES_MAX;
    if (room_of(p, panels * panel_bytes) <= target)
        return (int32_t)panels;
    int64_t most = (target - (p->io_align > LINE ? room_of(p, 1) - 1 : 0)) / panel_bytes;
    if (most < 1)
        most = 1;
    int64_t even = (panels + (panels + most - 1) / most - 1) / ((panels + most - 1) / most);
    return (int32_t)(even % 2 && even > 1 && even < most ? even + 1 : even); /* AVX-512 computes two panels at once */
}

void fx_choose_layer(const fx_problem *p, uint32_t i, int64_t region, int share, int smallest, fx_choice *choice) {
    const fx_layer *l = &p->layers[i];
    int64_t address[1 + FX_CONSTANTS_MAX], streamed = l->panels - choice->pinned_panels, room = 0;
    const int32_t last = (int32_t)l->variants - 1;
    for (choice->variant = smallest ? last : 0;; choice->variant++) {
        room = fx_layer_room(p, l, region, choice, address);
        if (choice->variant == last)
            break;
        int64_t workspace = p->variants[l->variant + choice->variant].workspace_bytes;
        int64_t panel = streamed ? room_of(p, l->panel_bytes) : 0;
        int64_t weight = streamed ? room_of(p, streamed * l->panel_bytes) : 0;
        int64_t wanted = workspace > panel ? workspace : panel;
        if (room >= panel && room >= (weight < wanted ? weight : wanted))
            break;
    }
    choice->slice_panels = streamed ? slice_panels(p, streamed, l->panel_bytes, room, share) : 0;
}

/* Kernel and slices of the layers whose pins are not as in `before` (NULL: of all). */
static void choose(const fx_problem *p, int64_t region, int share, int smallest, const fx_choice *before,
                   fx_choice *choices) {
    for (uint32_t i = 0; i < p->layer_count; i++) {
        fx_choice *choice = &choices[i];
        if (before && before[i].pinned_panels == choice->pinned_panels &&
            before[i].pinned_constants == choice->pinned_constants)
            *choice = before[i];
        else
            fx_choose_layer(p, i, region, share, smallest, choice);
    }
}

/* ---- steps and pieces ---- */

static void add_piece(fx_draft *d, const fx_problem *p, int32_t constant, int64_t offset, int64_t bytes, int stays) {
    fx_piece_draft *piece = &d->pieces[d->piece_count++];
    *piece = (fx_piece_draft){.step = (int32_t)d->step_count,
                              .constant = constant,
                              .file_offset = offset,
                              .bytes = bytes,
                              .arena_bytes = occupied(p, offset, bytes),
                              .stays = stays};
    *(stays ? &d->pinned_bytes : &d->stream_bytes) += piece->arena_bytes;
}

/* Steps and pieces of a layer, after those that are there. */
static void add_layer(fx_draft *d, const fx_problem *p, uint32_t i, const fx_choice *choice, int64_t region,
                      int32_t *loads) {
    const fx_layer *l = &p->layers[i];
    const fx_variant *way = &p->variants[l->variant + choice->variant];
    for (int64_t p0 = 0, p1, first = 1; first || p0 < l->panels; p0 = p1, first = 0) {
        int stays = p0 < choice->pinned_panels;
        p1 = stays ? choice->pinned_panels : p0 + choice->slice_panels;
        p1 = p1 > l->panels ? l->panels : p1;
        for (int64_t c = 0; first && c < l->constants; c++) { /* first: where they lie is already settled */
            const fx_constant *constant = &p->constants[l->constant + c];
            int pinned = choice->pinned_constants >> c & 1;
            add_piece(d, p, (int32_t)(l->constant + c), constant->file_offset, constant->bytes, pinned);
            *loads += !pinned;
        }
        if (p1 > p0) {
            add_piece(d, p, -1, l->weight_offset + p0 * l->panel_bytes, (p1 - p0) * l->panel_bytes, stays);
            *loads += !stays;
        }
        double share = l->panels ? (double)(p1 - p0) / (double)l->panels : 1.0;
        d->steps[d->step_count++] = (fx_step_draft){.node = (int32_t)i,
                                                    .p0 = (int32_t)p0,
                                                    .p1 = (int32_t)p1,
                                                    .loads = *loads,
                                                    .seconds = way->fixed_s + way->channels_s * share,
                                                    .free_bytes = region - l->live_bytes - way->workspace_bytes};
        if (!l->panels)
            break;
    }
}

/* How many steps a layer has. */
static uint32_t steps_of(const fx_layer *l, const fx_choice *choice) {
    const uint32_t streamed = (uint32_t)l->panels - (uint32_t)choice->pinned_panels;
    const uint32_t slices = streamed ? (streamed - 1) / (uint32_t)choice->slice_panels + 1 : 0;
    return l->panels ? slices + (choice->pinned_panels > 0) : 1;
}

static int same_choice(const fx_choice *a, const fx_choice *b) {
    return a->variant == b->variant && a->slice_panels == b->slice_panels && a->pinned_panels == b->pinned_panels &&
           a->pinned_constants == b->pinned_constants;
}

void fx_draft_build(fx_draft *d, const fx_problem *p, const fx_choice *choices, int64_t region) {
    uint32_t first = 0, last = p->layer_count;
    if (d->is_built && d->region == region) {
        while (first < last && same_choice(&choices[first], &d->built[first]))
            first++;
        while (last > first && same_choice(&choices[last - 1], &d->built[last - 1]))
            last--;
    } else {
        memset(d->starts, 0, (p->layer_count + (size_t)1) * sizeof *d->starts);
        d->pinned_bytes = d->stream_bytes = 0;
        d->is_built = 1;
        d->region = region;
    }
    const fx_start from = d->starts[first], tail = d->starts[last], end = d->starts[p->layer_count];
    for (uint32_t i = from.piece; i < tail.piece; i++)
        *(d->pieces[i].stays ? &d->pinned_bytes : &d->stream_bytes) -= d->pieces[i].arena_bytes;
    fx_start to = from; /* where the tail goes */
    for (uint32_t i = first; i < last; i++) {
        const uint32_t steps = steps_of(&p->layers[i], &choices[i]);
        to.step += steps;
        to.piece += (uint32_t)p->layers[i].constants + (p->layers[i].panels ? steps : 0);
    }
    memmove(d->steps + to.step, d->steps + tail.step, (end.step - tail.step) * sizeof *d->steps);
    memmove(d->pieces + to.piece, d->pieces + tail.piece, (end.piece - tail.piece) * sizeof *d->pieces);
    d->step_count = from.step;
    d->piece_count = from.piece;
    to.loads = from.loads;
    for (uint32_t i = first; i < last; i++) {
        d->starts[i] = (fx_start){d->step_count, d->piece_count, to.loads};
        d->built[i] = choices[i];
        add_layer(d, p, i, &choices[i], region, &to.loads);
    }
    d->step_count += end.step - tail.step;
    d->piece_count += end.piece - tail.piece;
    for (uint32_t j = to.step; j < d->step_count; j++)
        d->steps[j].loads += to.loads - tail.loads;
    for (uint32_t i = to.piece; i < d->piece_count; i++)
        d->pieces[i].step += (int32_t)(to.step - tail.step);
    for (uint32_t i = last; i <= p->layer_count; i++) {
        fx_start *start = &d->starts[i];
        *start = (fx_start){start->step + to.step - tail.step, start->piece + to.piece - tail.piece,
                            start->loads + to.loads - tail.loads};
    }
}

int64_t fx_draft_bytes(const fx_draft *d, const fx_problem *p, int64_t region) {
    int64_t rows = d->step_count > d->piece_count ? d->step_count : d->piece_count;
    return region + d->pinned_bytes + p->step_bytes * rows;
}

void fx_choose(fx_draft *d, const fx_problem *p, const int32_t *order, int64_t region, int64_t memory, int share,
               int smallest, fx_choice *choices) {
    int64_t pinned = memory - region - p->step_bytes * p->layer_count;
    const size_t bytes = p->layer_count * sizeof *choices;
    const fx_choice *before = NULL;
    for (int64_t over = 1; over > 0; pinned -= over) { /* less and less pinned: in the end nothing */
        memset(choices, 0, bytes);
        pin_items(p, order, pinned, choices);
        choose(p, region, share, smallest, before, choices);
        fx_draft_build(d, p, choices, region);
        over = fx_draft_bytes(d, p, region) - memory;
        if (pinned <= 0)
            break;
        before = memcpy(d->before, choices, bytes);
    }
    fx_draft_time(d, p);
}
