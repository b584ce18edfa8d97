/* A draft's activations, workspaces and streamed pieces, as blocks of memory and steps. */
#include "draft.h"
#include "streams.h"

#include <stdlib.h>

#define ROW (1 + FX_CONSTANTS_MAX)

typedef struct blocks {
    int64_t *start, *end, *first, *last; /* fixed */
    int64_t *bytes, *use, *forced;       /* streamed pieces */
    int64_t *address, *wait;
    int32_t *begin, *until; /* steps of each layer */
    int64_t fixed, pieces;
} blocks;

/* Steps, both included. */
static void hold(blocks *b, int64_t start, int64_t bytes, int32_t first, int32_t last) {
    b->start[b->fixed] = start;
    b->end[b->fixed] = start + bytes;
    b->first[b->fixed] = first;
    b->last[b->fixed++] = last;
}

static fx_status gather(blocks *b, const fx_draft *d, const fx_problem *p, const fx_choice *choices, int64_t region,
                        int64_t *layer_address) {
    for (uint32_t j = d->step_count; j-- > 0;)
        b->begin[d->steps[j].node] = (int32_t)j;
    for (uint32_t j = 0; j < d->step_count; j++)
        b->until[d->steps[j].node] = (int32_t)j;
    for (uint32_t h = 0; h < p->held_count; h++)
        hold(b, p->held[h].low, p->held[h].high - p->held[h].low, b->begin[p->held[h].first],
             b->until[p->held[h].last]);
    for (uint32_t i = 0; i < p->layer_count; i++) {
        const fx_layer *l = &p->layers[i];
        if (fx_layer_room(p, l, region, &choices[i], layer_address + i * ROW) < 0)
            return FX_ERR_BOUNDS;
        int64_t workspace = p->variants[l->variant + choices[i].variant].workspace_bytes;
        if (workspace)
            hold(b, layer_address[i * ROW], workspace, b->begin[i], b->until[i]);
    }
    for (uint32_t i = 0; i < d->piece_count; i++) {
        const fx_piece_draft *piece = &d->pieces[i];
        if (piece->stays)
            continue;
        int64_t forced = -1;
        if (piece->constant >= 0) {
            int64_t layer = d->steps[piece->step].node, which = piece->constant - p->layers[layer].constant;
            forced = (layer_address[layer * ROW + 1 + which] + p->io_align - 1) & -p->io_align;
            if (b->until[layer] > piece->step) /* the layer's other steps read it, too */
                hold(b, forced, piece->arena_bytes, piece->step + 1, b->until[layer]);
        }
        b->bytes[b->pieces] = piece->arena_bytes;
        b->use[b->pieces] = piece->step;
        b->forced[b->pieces++] = forced;
    }
    return FX_OK;
}

fx_status fx_draft_place(fx_draft *d, const fx_problem *p, const fx_choice *choices, int64_t region, int from_top,
                         int64_t *address, int64_t *layer_address) {
    const size_t fixed = (size_t)p->held_count + p->layer_count + p->constant_count, pieces = d->piece_count;
    int64_t *memory = malloc((4 * fixed + 5 * pieces + p->layer_count + 1) * sizeof *memory);
    if (!memory)
        return FX_ERR_MEMORY;
    blocks b = {.start = memory, .end = memory + fixed, .first = memory + 2 * fixed, .last = memory + 3 * fixed};
    b.bytes = memory + 4 * fixed;
    b.use = b.bytes + pieces;
    b.forced = b.use + pieces;
    b.address = b.forced + pieces;
    b.wait = b.address + pieces;
    b.begin = (int32_t *)(b.wait + pieces);
    b.until = b.begin + p->layer_count;
    fx_status status = gather(&b, d, p, choices, region, layer_address);
    if (status == FX_OK) {
        fx_streams streams = {.steps = d->step_count,
                              .arena = region,
                              .align = p->io_align,
                              .fixed_count = b.fixed,
                              .fixed_start = b.start,
                              .fixed_end = b.end,
                              .fixed_first = b.first,
                              .fixed_last = b.last,
                              .count = b.pieces,
                              .bytes = b.bytes,
                              .use = b.use,
                              .forced = b.forced,
                              .from_top = from_top};
        status = fx_place_streams(&streams, b.address, b.wait);
    }
    int64_t next = 0;
    for (uint32_t i = 0; i < d->piece_count && status == FX_OK; i++) {
        address[i] = -1;
        if (d->pieces[i].stays)
            continue;
        address[i] = b.address[next];
        d->pieces[i].wait_steps = (int32_t)b.wait[next++];
    }
    free(memory);
    if (status == FX_OK)
        fx_draft_simulate(d, p);
    return status;
}
