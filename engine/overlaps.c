#include "overlaps.h"
#include "groups.h"
#include "times.h"

#include <stdlib.h>

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

fx_status fx_program_check_overlaps(const fx_program *p, int threads, fx_poll *poll, fx_error *error) {
    fx_node_ranges *nodes = malloc((p->node_count + 1) * sizeof *nodes);
    fx_range *pinned = malloc((p->pinned_count + 1) * sizeof *pinned);
    if (!nodes || !pinned) {
        free(nodes);
        free(pinned);
        return fx_overlap_error(error, FX_ERR_MEMORY, -1, NULL);
    }
    for (uint32_t i = 0; i < p->node_count && (i % FX_ASK_EVERY || !fx_polled(poll)); i++)
        fx_node_touches(&p->nodes[i], threads, &nodes[i]);
    if (poll && poll->cancelled) {
        free(nodes);
        free(pinned);
        return fx_overlap_error(error, FX_ERR_CANCELLED, -1, NULL);
    }
    for (uint32_t i = 0; i < p->pinned_count; i++)
        pinned[i] = fx_load_target(&p->pinned[i]);
    fx_status status = check_places(p, nodes, pinned, fx_ranges_join(pinned, p->pinned_count), error);
    if (status == FX_OK)
        status = fx_groups_check(p, nodes, FX_GROUP_PAIRS, error);
    if (status == FX_OK)
        status = fx_times_check(p, nodes, FX_PAIRS_EACH * ((int64_t)p->load_count + p->step_count), poll, error);
    free(nodes);
    free(pinned);
    return status;
}
