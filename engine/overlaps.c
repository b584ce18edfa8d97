#include "overlaps.h"
#include "flexnn/kernels.h"
#include "times.h"

#include <stdlib.h>

#define PAIRS_MAX ((int64_t)1 << 28)

static fx_range zeros_of(const fx_program *p) {
    return (fx_range){p->zeros_offset, p->zeros_offset + 4 * p->zeros_count};
}

/* Checks that steps and streamed loads write neither over the zeros nor over pinned weights, and that no workspace lies
 * over its own node's operands. */
static fx_status check_places(const fx_program *p, const fx_node_ranges *nodes, const fx_range *pinned, int64_t count,
                              fx_error *error) {
    const fx_range zeros = zeros_of(p);
    for (uint32_t i = 0; i < p->node_count; i++) {
        const fx_range *r = nodes[i].ranges;
        int bad = fx_ranges_meet(r[FX_OUTPUT], zeros) || fx_ranges_meet(r[FX_WORKSPACE], zeros) ||
                  fx_list_meets(pinned, count, r[FX_OUTPUT]) || fx_list_meets(pinned, count, r[FX_WORKSPACE]);
        for (int j = 0; j < FX_WORKSPACE; j++)
            bad |= fx_ranges_meet(r[FX_WORKSPACE], r[j]);
        if (bad)
            return fx_overlap_error(error, FX_ERR_OVERLAP, i, NULL);
    }
    for (uint32_t i = 0; i < p->load_count; i++) {
        const fx_range target = fx_load_target(&p->loads[i]);
        if (fx_ranges_meet(target, zeros) || fx_list_meets(pinned, count, target))
            return fx_overlap_error(error, FX_ERR_OVERLAP, i, &p->loads[i]);
    }
    for (uint32_t i = 0; i < p->pinned_count; i++)
        if (fx_ranges_meet(fx_load_target(&p->pinned[i]), zeros)) {
            fx_overlap_error(error, FX_ERR_OVERLAP, i, &p->pinned[i]);
            error->is_pinned = 1;
            return FX_ERR_OVERLAP;
        }
    return FX_OK;
}

/* An output as rows of `run` bytes, `pitch` bytes apart; pitch 0: only its extent is known. */
static void comb(const fx_node *node, int64_t *run, int64_t *pitch) {
    const fx_params *p = &node->params;
    int64_t row = 0, sw = 0, sh = 0, sn = 0;
    if (node->op == FX_OP_CONV || node->op == FX_OP_CONV_F16)
        row = p->conv.cout, sw = p->conv.y_sw, sh = p->conv.y_sh, sn = p->conv.y_sn;
    else if (node->op == FX_OP_DWCONV || node->op == FX_OP_DWCONV_F16)
        row = p->dwconv.c, sw = p->dwconv.y_sw, sh = p->dwconv.y_sh, sn = p->dwconv.y_sn;
    else if (node->op == FX_OP_POOL || node->op == FX_OP_POOL_F16)
        row = p->pool.c, sw = p->pool.y_sw, sh = p->pool.y_sh, sn = p->pool.y_sn;
    else if (node->op == FX_OP_POOL_U8)
        row = p->pool_u8.c, sw = p->pool_u8.y_sw, sh = p->pool_u8.y_sh, sn = p->pool_u8.y_sn;
    else if (node->op == FX_OP_CONV_U8)
        row = p->conv_u8.cout, sw = p->conv_u8.y_sw, sh = p->conv_u8.y_sh, sn = p->conv_u8.y_sn;
    else if (node->op == FX_OP_DWCONV_U8)
        row = p->dwconv_u8.c, sw = p->dwconv_u8.y_sw, sh = p->dwconv_u8.y_sh, sn = p->dwconv_u8.y_sn;
    const int64_t bytes = fx_op_element_bytes(node->op, p, FX_OUTPUT);
    *run = bytes * row;
    *pitch = sw >= row && sw > 0 && sh % sw == 0 && sn % sw == 0 ? bytes * sw : 0;
}

/* Whether two outputs share no byte: neighbours in the channels of one tensor interleave without meeting. */
static int outputs_apart(const fx_node *a, const fx_node *b, fx_range ra, fx_range rb) {
    int64_t run_a, run_b, pitch_a, pitch_b;
    if (a->out.base != b->out.base || !fx_ranges_meet(ra, rb))
        return 1;
    comb(a, &run_a, &pitch_a);
    comb(b, &run_b, &pitch_b);
    if (!pitch_a || pitch_a != pitch_b)
        return 0;
    int64_t shift = (ra.lo - rb.lo) % pitch_a;
    shift += shift < 0 ? pitch_a : 0;
    return shift >= run_b && shift + run_a <= pitch_a;
}

/* The range that an operand touches in its own buffer. */
static fx_range extent(const fx_node *node, int operand) {
    const fx_place *o = operand == FX_OUTPUT ? &node->out : &node->in[operand];
    int64_t lo, hi;
    fx_op_extent(node->op, &node->params, operand, &lo, &hi);
    return o->base < 0 ? (fx_range){0, 0} : (fx_range){o->offset + lo, o->offset + hi};
}

/* Whether the output of one step is apart from everything but the output that the other step touches. */
static int output_apart(const fx_program *p, const fx_step *writer, const fx_step *other, const fx_node_ranges *nodes) {
    const fx_node *a = &p->nodes[writer->node], *b = &p->nodes[other->node];
    fx_range out = extent(a, FX_OUTPUT);
    for (int i = 0; i < FX_MAX_INPUTS; i++)
        if (b->in[i].base == a->out.base && fx_ranges_meet(out, extent(b, i)))
            return 0;
    return a->out.base != FX_BASE_ARENA || (!fx_ranges_meet(out, nodes[other->node].ranges[FX_WORKSPACE]) &&
                                            !fx_ranges_meet(out, fx_step_weights(p, other)));
}

/* Whether the workspace of one step is apart from what the other touches. Both may use the same workspace: then each
 * thread has its own part. */
static int workspace_apart(const fx_program *p, const fx_step *step, const fx_step *other,
                           const fx_node_ranges *nodes) {
    const fx_node *a = &p->nodes[step->node], *b = &p->nodes[other->node];
    fx_range own = nodes[step->node].ranges[FX_WORKSPACE];
    for (int i = 0; i <= FX_OUTPUT; i++)
        if (fx_ranges_meet(own, nodes[other->node].ranges[i]))
            return 0;
    return !fx_ranges_meet(own, fx_step_weights(p, other)) &&
           (!fx_ranges_meet(own, nodes[other->node].ranges[FX_WORKSPACE]) ||
            (a->workspace_offset == b->workspace_offset && a->workspace_bytes == b->workspace_bytes));
}

/* Whether two steps may run at the same time: windows of one node that do not meet, or nodes whose memory is apart. */
static int steps_apart(const fx_program *p, const fx_step *a, const fx_step *b, const fx_node_ranges *nodes) {
    if (a->node == b->node) {
        fx_window v = a->window, w = b->window;
        return v.y1 <= w.y0 || w.y1 <= v.y0 || v.c1 <= w.c0 || w.c1 <= v.c0;
    }
    const fx_node *m = &p->nodes[a->node], *n = &p->nodes[b->node];
    return outputs_apart(m, n, extent(m, FX_OUTPUT), extent(n, FX_OUTPUT)) && output_apart(p, a, b, nodes) &&
           output_apart(p, b, a, nodes) && workspace_apart(p, a, b, nodes) && workspace_apart(p, b, a, nodes);
}

static fx_status check_groups(const fx_program *p, const fx_node_ranges *nodes, fx_error *error) {
    int64_t pairs = 0;
    for (uint32_t group = 0, first = 0; group < p->group_count; first += p->groups[group++]) {
        const uint32_t end = first + p->groups[group];
        pairs += (int64_t)p->groups[group] * p->groups[group];
        if (pairs > PAIRS_MAX)
            return fx_overlap_error(error, FX_ERR_PARAMS, p->steps[first].node, NULL);
        for (uint32_t i = first; i < end; i++)
            for (uint32_t j = first; j < i; j++)
                if (!steps_apart(p, &p->steps[j], &p->steps[i], nodes))
                    return fx_overlap_error(error, FX_ERR_OVERLAP, p->steps[i].node, NULL);
    }
    return FX_OK;
}

fx_status fx_program_check_overlaps(const fx_program *p, int threads, fx_error *error) {
    fx_node_ranges *nodes = malloc((p->node_count + 1) * sizeof *nodes);
    fx_range *pinned = malloc((p->pinned_count + 1) * sizeof *pinned);
    if (!nodes || !pinned) {
        free(nodes);
        free(pinned);
        return fx_overlap_error(error, FX_ERR_MEMORY, -1, NULL);
    }
    for (uint32_t i = 0; i < p->node_count; i++)
        fx_node_touches(&p->nodes[i], threads, &nodes[i]);
    for (uint32_t i = 0; i < p->pinned_count; i++)
        pinned[i] = fx_load_target(&p->pinned[i]);
    fx_status status = check_places(p, nodes, pinned, fx_ranges_join(pinned, p->pinned_count), error);
    if (status == FX_OK)
        status = check_groups(p, nodes, error);
    if (status == FX_OK)
        status = fx_times_check(p, nodes, FX_PAIRS_EACH * ((int64_t)p->load_count + p->step_count), error);
    free(nodes);
    free(pinned);
    return status;
}
