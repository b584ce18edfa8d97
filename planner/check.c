/* Checks of what Python hands over: tables, choices, drafts. */
#include "flexnn/draft.h"

#define BYTES_MAX ((int64_t)1 << 48) /* of any one size or offset, so that no sum of a few overflows */
#define STEPS_MAX (1 << 22)

static int sane(int64_t size) {
    return size >= 0 && size <= BYTES_MAX;
}

static int inside(int64_t first, int64_t count, uint32_t total) {
    return first >= 0 && count >= 0 && first <= total && count <= total - first;
}

static int node_sane(const fx_problem *p, const fx_draft_node *node) {
    if (!inside(node->variant_first, node->variant_count, p->variant_count) || !node->variant_count ||
        !inside(node->constant_first, node->constant_count, p->constant_count) ||
        node->constant_count > FX_CONSTANTS_MAX || !inside(node->gap_first, node->gap_count, p->gap_count))
        return 0;
    if (node->panel_count < 0 || node->panel_count > STEPS_MAX || !sane(node->panel_bytes) ||
        !sane(node->weight_offset) || !sane(node->top_offset) || !sane(node->live_bytes) || !sane(node->tight_bytes))
        return 0;
    return !node->panel_count || (node->panel_bytes > 0 && node->panel_bytes <= BYTES_MAX / node->panel_count);
}

/* Whether an item's twin is one: the rings that these make end only if each item is the twin of one item. */
static int twins(const fx_problem *p, uint32_t i) {
    const fx_item *item = &p->items[i], *twin = &p->items[i];
    if (item->twin < 0 || item->twin >= p->item_count)
        return 0;
    twin = &p->items[item->twin];
    if (twin->node < 0 || twin->node >= p->node_count)
        return 0;
    const fx_draft_node *a = &p->nodes[item->node], *b = &p->nodes[twin->node];
    if (item->constant < 0)
        return twin->constant < 0 && a->panel_bytes == b->panel_bytes && a->panel_count == b->panel_count &&
               a->weight_offset == b->weight_offset;
    if (twin->constant < 0 || twin->constant >= b->constant_count)
        return 0;
    const fx_constant *x = &p->constants[a->constant_first + item->constant],
                      *y = &p->constants[b->constant_first + twin->constant];
    return x->file_offset == y->file_offset && x->bytes == y->bytes;
}

fx_status fx_problem_check(const fx_problem *p) {
    int64_t steps = 0, items = 0;
    if (p->io_align < 1 || p->io_align > (1 << 20) || (p->io_align & (p->io_align - 1)) || !sane(p->step_bytes) ||
        !(p->storage_bytes_per_second > 0) || !(p->request_s >= 0) || !(p->latency_s >= 0) ||
        !(p->compute_speed > 0 && p->compute_speed <= 1) || !(p->load_speed > 0 && p->load_speed <= 1))
        return FX_ERR_PARAMS;
    for (uint32_t i = 0; i < p->node_count; i++) {
        if (!node_sane(p, &p->nodes[i]))
            return FX_ERR_PARAMS;
        steps += p->nodes[i].panel_count + 2 + p->nodes[i].constant_count;
        items += (p->nodes[i].panel_count > 0) + p->nodes[i].constant_count;
        if (steps > STEPS_MAX)
            return FX_ERR_PARAMS;
    }
    if (items != p->item_count)
        return FX_ERR_PARAMS;
    for (uint32_t i = 0; i < p->item_count; i++) {
        const fx_item *item = &p->items[i];
        if (item->node < 0 || item->node >= p->node_count || item->constant < -1 ||
            item->constant >= p->nodes[item->node].constant_count ||
            (item->constant < 0 && !p->nodes[item->node].panel_count) || !twins(p, i))
            return FX_ERR_PARAMS;
    }
    for (uint32_t i = 0; i < p->variant_count; i++)
        if (!sane(p->variants[i].workspace_bytes))
            return FX_ERR_PARAMS;
    for (uint32_t i = 0; i < p->constant_count; i++)
        if (!sane(p->constants[i].file_offset) || !sane(p->constants[i].bytes) || !sane(p->constants[i].room_bytes) ||
            p->constants[i].after_node < -1 || p->constants[i].after_node >= (int64_t)p->node_count)
            return FX_ERR_PARAMS;
    for (uint32_t i = 0; i < p->gap_count; i++)
        if (!sane(p->gaps[i].start) || !sane(p->gaps[i].end))
            return FX_ERR_PARAMS;
    return FX_OK;
}

int fx_choices_fit(const fx_problem *p, const fx_choice *choices) {
    for (uint32_t i = 0; i < p->node_count; i++) {
        const fx_draft_node *node = &p->nodes[i];
        const fx_choice *c = &choices[i];
        if (c->variant < 0 || c->variant >= node->variant_count || c->pinned_panels < 0 ||
            c->pinned_panels > node->panel_count || c->slice_panels < (c->pinned_panels < node->panel_count) ||
            c->slice_panels > node->panel_count)
            return 0;
    }
    return 1;
}

int fx_draft_sane(fx_draft *d, const int32_t *order, uint32_t count) {
    int32_t loads = 0, streamed = 0;
    uint32_t next = 0;
    d->is_built = 0;
    d->pinned_bytes = d->stream_bytes = 0;
    for (uint32_t i = 0; i < d->slice_count; i++) {
        const fx_draft_slice *slice = &d->slices[i];
        if (slice->step < 0 || (uint32_t)slice->step >= d->step_count || !sane(slice->arena_bytes))
            return 0;
        *(slice->is_pinned ? &d->pinned_bytes : &d->stream_bytes) += slice->arena_bytes;
    }
    for (uint32_t j = 0; j < d->step_count; j++) {
        if (d->steps[j].wait_loads < loads)
            return 0;
        loads = d->steps[j].wait_loads;
        for (; streamed < loads; next++) { /* no load waits for the step that needs it */
            if (next >= d->slice_count || d->slices[next].wait_steps > (int64_t)j)
                return 0;
            streamed += !d->slices[next].is_pinned;
        }
    }
    for (uint32_t i = 0; i < count; i++)
        if (order[i] < 0 || (uint32_t)order[i] >= d->slice_count || d->slices[order[i]].is_pinned)
            return 0;
    return 1;
}
