/* A draft's activations, workspaces and streamed slices as blocks of memory by steps, and their placement. */
#include "flexnn/draft.h"
#include "flexnn/streams.h"

#include <stdlib.h>

#define ROW (1 + FX_CONSTANTS_MAX)
#define LARGE 4096 /* blocks and slices */

typedef struct blocks {
    int64_t *start, *end, *first, *last;    /* fixed */
    int64_t *bytes, *use, *forced, *stored; /* streamed slices */
    int64_t *address, *wait;
    int32_t *begin, *until; /* steps of each node */
    int64_t fixed, slices;
} blocks;

/* Adds a block that is in use from one step to another, both included. */
static void hold(blocks *b, int64_t start, int64_t bytes, int32_t first, int32_t last) {
    b->start[b->fixed] = start;
    b->end[b->fixed] = start + bytes;
    b->first[b->fixed] = first;
    b->last[b->fixed++] = last;
}

static fx_status gather(blocks *b, const fx_draft *d, const fx_problem *p, const fx_choice *choices,
                        int64_t working_bytes, int64_t *node_address) {
    for (uint32_t j = d->step_count; j-- > 0;)
        b->begin[d->steps[j].node] = (int32_t)j;
    for (uint32_t j = 0; j < d->step_count; j++)
        b->until[d->steps[j].node] = (int32_t)j;
    for (uint32_t h = 0; h < p->lifetime_count; h++) {
        if (p->lifetimes[h].end > working_bytes)
            return FX_ERR_BOUNDS;
        hold(b, p->lifetimes[h].start, p->lifetimes[h].end - p->lifetimes[h].start,
             b->begin[p->lifetimes[h].first_node], b->until[p->lifetimes[h].last_node]);
    }
    for (uint32_t i = 0; i < p->node_count; i++) {
        const fx_draft_node *node = &p->nodes[i];
        if (fx_node_room(p, node, working_bytes, &choices[i], node_address + i * ROW) < 0)
            return FX_ERR_BOUNDS;
        int64_t workspace = p->variants[node->variant_first + choices[i].variant].workspace_bytes;
        if (workspace)
            hold(b, node_address[i * ROW], workspace, b->begin[i], b->until[i]);
    }
    for (uint32_t i = 0; i < d->slice_count; i++) {
        const fx_draft_slice *slice = &d->slices[i];
        if (slice->is_pinned)
            continue;
        int64_t forced = -1;
        if (slice->constant >= 0) {
            int64_t node = d->steps[slice->step].node, which = slice->constant - p->nodes[node].constant_first;
            forced = (node_address[node * ROW + 1 + which] + p->io_align - 1) & -p->io_align;
            if (b->until[node] > slice->step) /* the node's other steps read the constant, too */
                hold(b, forced, slice->arena_bytes, slice->step + 1, b->until[node]);
        }
        b->bytes[b->slices] = slice->arena_bytes;
        b->use[b->slices] = slice->step;
        b->stored[b->slices] = fx_stored_step(d, p, slice);
        b->forced[b->slices++] = forced;
    }
    return FX_OK;
}

fx_status fx_draft_place(fx_draft *d, const fx_problem *p, const fx_choice *choices, int64_t working_bytes,
                         int from_top, int64_t *address, int64_t *node_address) {
    const size_t fixed = (size_t)p->lifetime_count + p->node_count + p->constant_count, slices = d->slice_count;
    int64_t *memory = malloc((4 * fixed + 6 * slices + p->node_count + 1) * sizeof *memory);
    if (!memory)
        return FX_ERR_MEMORY;
    blocks b = {.start = memory, .end = memory + fixed, .first = memory + 2 * fixed, .last = memory + 3 * fixed};
    b.bytes = memory + 4 * fixed;
    b.use = b.bytes + slices;
    b.forced = b.use + slices;
    b.stored = b.forced + slices;
    b.address = b.stored + slices;
    b.wait = b.address + slices;
    b.begin = (int32_t *)(b.wait + slices);
    b.until = b.begin + p->node_count;
    fx_status status = gather(&b, d, p, choices, working_bytes, node_address);
    if (status == FX_OK) {
        fx_streams streams = {.steps = d->step_count,
                              .arena = working_bytes,
                              .align = p->io_align,
                              .fixed_count = b.fixed,
                              .fixed_start = b.start,
                              .fixed_end = b.end,
                              .fixed_first = b.first,
                              .fixed_last = b.last,
                              .count = b.slices,
                              .bytes = b.bytes,
                              .use = b.use,
                              .forced = b.forced,
                              .stored = b.stored,
                              .from_top = from_top,
                              .is_large = b.fixed + b.slices > LARGE,
                              .interrupt = d->interrupt};
        status = fx_place_streams(&streams, b.address, b.wait);
    }
    int64_t next = 0;
    for (uint32_t i = 0; i < d->slice_count && status == FX_OK; i++) {
        address[i] = -1;
        if (d->slices[i].is_pinned)
            continue;
        address[i] = b.address[next];
        d->slices[i].wait_steps = (int32_t)b.wait[next++];
    }
    free(memory);
    if (status == FX_OK)
        fx_draft_simulate(d, p);
    return status;
}
