/* Steps and slices of choices. */
#include "flexnn/draft.h"
#include "sizes.h"

#include <stdlib.h>
#include <string.h>

fx_status fx_draft_make(fx_draft *d, const fx_problem *p) {
    size_t steps = 0, slices = 0;
    for (uint32_t i = 0; i < p->node_count; i++) {
        steps += (size_t)p->nodes[i].panel_count + 1;
        slices += (size_t)p->nodes[i].panel_count + (size_t)p->nodes[i].constant_count;
    }
    *d = (fx_draft){.step_max = (uint32_t)steps, .slice_max = (uint32_t)slices};
    d->steps = malloc((steps + 1) * sizeof *d->steps);
    d->slices = malloc((slices + 1) * sizeof *d->slices);
    d->loads = malloc((slices + 1) * sizeof *d->loads);
    d->work = malloc((4 * slices + 2) * sizeof *d->work);
    d->marks = malloc((steps + 1) * sizeof *d->marks);
    d->starts = malloc((p->node_count + (size_t)1) * sizeof *d->starts);
    d->built = malloc((p->node_count + (size_t)1) * sizeof *d->built);
    d->before = malloc((p->node_count + (size_t)1) * sizeof *d->before);
    d->ranks = malloc((p->node_count + (size_t)1) * sizeof *d->ranks);
    d->twins = malloc((slices + 1) * sizeof *d->twins);
    if (d->steps && d->slices && d->loads && d->marks && d->starts && d->built && d->work && d->before && d->ranks &&
        d->twins)
        return FX_OK;
    fx_draft_free(d);
    return FX_ERR_MEMORY;
}

void fx_draft_free(fx_draft *d) {
    free(d->steps);
    free(d->slices);
    free(d->loads);
    free(d->marks);
    free(d->starts);
    free(d->built);
    free(d->work);
    free(d->before);
    free(d->ranks);
    free(d->twins);
    *d = (fx_draft){0};
}

static void add_slice(fx_draft *d, const fx_problem *p, int32_t constant, int64_t offset, int64_t bytes, int pinned) {
    fx_draft_slice *slice = &d->slices[d->slice_count++];
    *slice = (fx_draft_slice){.step = (int32_t)d->step_count,
                              .constant = constant,
                              .file_offset = offset,
                              .bytes = bytes,
                              .arena_bytes = fx_occupied_bytes(p, offset, bytes),
                              .is_pinned = pinned};
    *(pinned ? &d->pinned_bytes : &d->stream_bytes) += slice->arena_bytes;
}

/* Appends the steps and slices of a node. */
static void add_node(fx_draft *d, const fx_problem *p, uint32_t i, const fx_choice *choice, int64_t working_bytes,
                     int32_t *loads) {
    const fx_draft_node *node = &p->nodes[i];
    const fx_variant *variant = &p->variants[node->variant_first + choice->variant];
    for (int64_t p0 = 0, p1, first = 1; first || p0 < node->panel_count; p0 = p1, first = 0) {
        int pinned = p0 < choice->pinned_panels;
        p1 = pinned ? choice->pinned_panels : p0 + choice->slice_panels;
        p1 = p1 > node->panel_count ? node->panel_count : p1;
        for (int64_t c = 0; first && c < node->constant_count; c++) { /* before the panels, as their places are fixed */
            const fx_constant *constant = &p->constants[node->constant_first + c];
            int is_pinned = choice->pinned_constants >> c & 1;
            add_slice(d, p, (int32_t)(node->constant_first + c), constant->file_offset, constant->bytes, is_pinned);
            *loads += !is_pinned;
        }
        if (p1 > p0) {
            add_slice(d, p, -1, node->weight_offset + p0 * node->panel_bytes, (p1 - p0) * node->panel_bytes, pinned);
            *loads += !pinned;
        }
        double part = node->panel_count ? (double)(p1 - p0) / (double)node->panel_count : 1.0;
        d->steps[d->step_count++] =
            (fx_draft_step){.node = (int32_t)i,
                            .p0 = (int32_t)p0,
                            .p1 = (int32_t)p1,
                            .wait_loads = *loads,
                            .seconds = variant->fixed_s + variant->channels_s * part,
                            .free_bytes = working_bytes - node->live_bytes - variant->workspace_bytes};
        if (!node->panel_count)
            break;
    }
}

/* How many steps a node has. */
static uint32_t steps_of(const fx_draft_node *node, const fx_choice *choice) {
    const uint32_t streamed = (uint32_t)node->panel_count - (uint32_t)choice->pinned_panels;
    const uint32_t slices = streamed ? (streamed - 1) / (uint32_t)choice->slice_panels + 1 : 0;
    return node->panel_count ? slices + (choice->pinned_panels > 0) : 1;
}

static int same_choice(const fx_choice *a, const fx_choice *b) {
    return a->variant == b->variant && a->slice_panels == b->slice_panels && a->pinned_panels == b->pinned_panels &&
           a->pinned_constants == b->pinned_constants;
}

void fx_draft_build(fx_draft *d, const fx_problem *p, const fx_choice *choices, int64_t working_bytes) {
    uint32_t first = 0, last = p->node_count;
    if (d->is_built && d->working_bytes == working_bytes) {
        while (first < last && same_choice(&choices[first], &d->built[first]))
            first++;
        while (last > first && same_choice(&choices[last - 1], &d->built[last - 1]))
            last--;
    } else {
        memset(d->starts, 0, (p->node_count + (size_t)1) * sizeof *d->starts);
        d->pinned_bytes = d->stream_bytes = 0;
        d->is_built = 1;
        d->working_bytes = working_bytes;
    }
    const fx_start from = d->starts[first], tail = d->starts[last], end = d->starts[p->node_count];
    for (uint32_t i = from.slice; i < tail.slice; i++)
        *(d->slices[i].is_pinned ? &d->pinned_bytes : &d->stream_bytes) -= d->slices[i].arena_bytes;
    fx_start to = from; /* where the unchanged tail moves to */
    for (uint32_t i = first; i < last; i++) {
        const uint32_t steps = steps_of(&p->nodes[i], &choices[i]);
        to.step += steps;
        to.slice += (uint32_t)p->nodes[i].constant_count + (p->nodes[i].panel_count ? steps : 0);
    }
    memmove(d->steps + to.step, d->steps + tail.step, (end.step - tail.step) * sizeof *d->steps);
    memmove(d->slices + to.slice, d->slices + tail.slice, (end.slice - tail.slice) * sizeof *d->slices);
    d->step_count = from.step;
    d->slice_count = from.slice;
    to.loads = from.loads;
    for (uint32_t i = first; i < last; i++) {
        d->starts[i] = (fx_start){d->step_count, d->slice_count, to.loads};
        d->built[i] = choices[i];
        add_node(d, p, i, &choices[i], working_bytes, &to.loads);
    }
    d->step_count += end.step - tail.step;
    d->slice_count += end.slice - tail.slice;
    for (uint32_t j = to.step; j < d->step_count; j++)
        d->steps[j].wait_loads += to.loads - tail.loads;
    for (uint32_t i = to.slice; i < d->slice_count; i++)
        d->slices[i].step += (int32_t)(to.step - tail.step);
    for (uint32_t i = last; i <= p->node_count; i++) {
        fx_start *start = &d->starts[i];
        *start = (fx_start){start->step + to.step - tail.step, start->slice + to.slice - tail.slice,
                            start->loads + to.loads - tail.loads};
    }
}

/* Bytes of the pinned part of an item. */
static int64_t pinned_item(const fx_draft *d, const fx_problem *p, const fx_item *item) {
    const fx_draft_node *node = &p->nodes[item->node];
    const fx_choice *choice = &d->built[item->node];
    if (item->constant < 0)
        return choice->pinned_panels
                   ? fx_occupied_bytes(p, node->weight_offset, choice->pinned_panels * node->panel_bytes)
                   : 0;
    const fx_constant *constant = &p->constants[node->constant_first + item->constant];
    return choice->pinned_constants >> item->constant & 1 ? fx_occupied_bytes(p, constant->file_offset, constant->bytes)
                                                          : 0;
}

/* Bytes that a draft which was built counts more than once: of items that are pinned as the twin before them is. */
static int64_t counted_again(const fx_draft *d, const fx_problem *p) {
    int64_t again = 0;
    for (uint32_t i = 0; i < p->item_count && d->is_built && p->has_twins; i++) {
        const int64_t twin = p->items[i].twin;
        if (twin <= (int64_t)i)
            continue;
        const int64_t bytes = pinned_item(d, p, &p->items[i]);
        again += bytes && bytes == pinned_item(d, p, &p->items[twin]) ? bytes : 0;
    }
    return again;
}

int64_t fx_draft_bytes(const fx_draft *d, const fx_problem *p, int64_t working_bytes) {
    int64_t rows = d->step_count > d->slice_count ? d->step_count : d->slice_count;
    return working_bytes + d->pinned_bytes - counted_again(d, p) + p->step_bytes * rows;
}
