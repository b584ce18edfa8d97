#include "overlaps.h"
#include "flexnn/kernels.h"

#include <stdlib.h>

#define PAIRS_MAX ((int64_t)1 << 28)

typedef struct range {
    int64_t lo, hi; /* of the arena; lo >= hi: empty */
} range;

enum { SCRATCH = FX_OUTPUT + 1, RANGES };

/* What a node touches of the arena, its weights apart: inputs, output, scratch of all threads. */
typedef struct touched {
    range ranges[RANGES];
} touched;

static int meet(range a, range b) {
    return a.lo < b.hi && b.lo < a.hi && a.lo < a.hi && b.lo < b.hi;
}

static range target(const fx_load *load) {
    return (range){load->address, load->address + load->bytes};
}

static void touch(const fx_node *node, int threads, touched *t) {
    for (int i = 0; i <= FX_MAX_INPUTS; i++) {
        const fx_operand *o = i == FX_OUTPUT ? &node->out : &node->in[i];
        int64_t lo, hi;
        fx_op_extent(node->op, &node->params, i, &lo, &hi);
        t->ranges[i] = o->base == FX_BASE_ARENA ? (range){o->offset + lo, o->offset + hi} : (range){0, 0};
    }
    t->ranges[SCRATCH] = (range){node->scratch, node->scratch + threads * node->scratch_bytes};
}

static range weights(const fx_program *p, const fx_step *step) {
    const fx_node *node = &p->nodes[step->node];
    if (!(fx_op_traits(node->op) & FX_TRAIT_PANELS))
        return (range){0, 0};
    int64_t panels = (step->window.c1 + FX_NR - 1) / FX_NR - step->window.c0 / FX_NR;
    return (range){step->weight, step->weight + panels * fx_op_panel_bytes(node->op, &node->params)};
}

static fx_status fail(fx_error *error, fx_status status, int64_t index, const fx_load *load) {
    *error = (fx_error){.status = status, .index = index, .is_load = load != NULL};
    if (load)
        error->file_offset = load->file_offset;
    return status;
}

/* What is written by steps or streamed over: not the zeros, not pinned weights, and no scratch over its node's own. */
static fx_status check_places(const fx_program *p, const touched *nodes, fx_error *error) {
    const range zeros = {p->zeros, p->zeros + 4 * p->zeros_count};
    for (uint32_t i = 0; i < p->node_count; i++) {
        const range *r = nodes[i].ranges;
        int bad = meet(r[FX_OUTPUT], zeros) || meet(r[SCRATCH], zeros);
        for (int j = 0; j < SCRATCH; j++)
            bad |= meet(r[SCRATCH], r[j]);
        for (uint32_t j = 0; j < p->pinned_count; j++)
            bad |= meet(r[FX_OUTPUT], target(&p->pinned[j])) || meet(r[SCRATCH], target(&p->pinned[j]));
        if (bad)
            return fail(error, FX_ERR_OVERLAP, i, NULL);
    }
    for (uint32_t i = 0; i < p->load_count; i++) {
        int bad = meet(target(&p->loads[i]), zeros);
        for (uint32_t j = 0; j < p->pinned_count; j++)
            bad |= meet(target(&p->loads[i]), target(&p->pinned[j]));
        if (bad)
            return fail(error, FX_ERR_OVERLAP, i, &p->loads[i]);
    }
    for (uint32_t i = 0; i < p->pinned_count; i++)
        if (meet(target(&p->pinned[i]), zeros)) {
            fail(error, FX_ERR_OVERLAP, i, &p->pinned[i]);
            error->is_pinned = 1;
            return FX_ERR_OVERLAP;
        }
    return FX_OK;
}

/* Load i of a run may run from the moment `begin` steps of that run are done (below 0: of the run before) until step
 * `end` begins, the first one that waits for it; both follow the order of loads and steps, so they are running maxima.
 * The steps in between must not touch its target. */
static fx_status check_times(const fx_program *p, const touched *nodes, fx_error *error) {
    const int64_t steps = p->step_count;
    int64_t begin = -steps, end = 0, pairs = 0;
    for (uint32_t i = 0; i < p->load_count; i++) /* the last loads of the run before come first */
        if (p->loads[i].wait_steps - steps > begin)
            begin = p->loads[i].wait_steps - steps;
    for (uint32_t i = 0; i < p->load_count; i++) {
        const fx_load *load = &p->loads[i];
        begin = load->wait_steps > begin ? load->wait_steps : begin;
        while (end < steps && p->steps[end].wait_loads <= i)
            end++;
        pairs += end - begin;
        if (pairs > PAIRS_MAX)
            return fail(error, FX_ERR_PARAMS, i, load);
        for (int64_t j = begin; j < end; j++) {
            const fx_step *step = &p->steps[j < 0 ? j + steps : j];
            int bad = meet(target(load), weights(p, step));
            for (int k = 0; k < RANGES; k++)
                bad |= meet(target(load), nodes[step->node].ranges[k]);
            if (bad)
                return fail(error, FX_ERR_OVERLAP, i, load);
        }
    }
    return FX_OK;
}

fx_status fx_program_check_overlaps(const fx_program *p, int threads, fx_error *error) {
    if ((p->node_count + (int64_t)p->load_count) * p->pinned_count > PAIRS_MAX)
        return fail(error, FX_ERR_PARAMS, -1, NULL);
    touched *nodes = malloc((p->node_count + 1) * sizeof *nodes);
    if (!nodes)
        return fail(error, FX_ERR_MEMORY, -1, NULL);
    for (uint32_t i = 0; i < p->node_count; i++)
        touch(&p->nodes[i], threads, &nodes[i]);
    fx_status status = check_places(p, nodes, error);
    if (status == FX_OK)
        status = check_times(p, nodes, error);
    free(nodes);
    return status;
}
