/* Checks whether a program may be run; nothing in it is trusted. */
#include "flexnn/engine.h"
#include "flexnn/kernels.h"
#include "overlaps.h"
#include "spill.h"
#include "state.h"
#include "table_rows.h"
#include "touches.h"

#include <stddef.h>

#define COUNT_MAX (1 << 24)
#define BYTES_MAX ((int64_t)1 << 48) /* of arena, buffers and files: no sum of a few overflows */

static fx_status fail(fx_error *error, fx_status status, int64_t index, int is_pinned) {
    *error = (fx_error){.status = status, .index = index, .is_pinned = is_pinned};
    return status;
}

static int inside(int64_t offset, int64_t bytes, int64_t size) {
    return offset >= 0 && bytes >= 0 && offset <= size && bytes <= size - offset;
}

static int operand_inside(const fx_program *p, const fx_node *node, int number, const fx_place *o) {
    int64_t lo, hi, size;
    fx_op_extent(node->op, &node->params, number, &lo, &hi);
    if (o->base == -1)
        return lo == hi;
    if (o->base == FX_BASE_FILE)
        return number == 0 && fx_table_check(p, node, o) == FX_OK;
    if (o->base == FX_BASE_SPILL)
        return number == FX_OUTPUT && fx_spill_check_node(p, node) == FX_OK;
    if (o->base == FX_BASE_ARENA)
        size = p->arena_bytes;
    else if (o->base > 0 && (uint32_t)o->base - 1 < p->input_count + p->output_count)
        size = p->io_bytes[o->base - 1];
    else
        return 0;
    if (number == FX_OUTPUT && o->base > 0 && (uint32_t)o->base - 1 < p->input_count)
        return 0; /* inputs are the caller's and are not written */
    return lo <= 0 && hi >= 0 && o->offset >= 0 && o->offset <= size && o->offset + lo >= 0 && hi <= size - o->offset;
}

static fx_status check_node(const fx_program *p, const fx_node *node, int threads, const fx_kernels *k) {
    if (node->op >= FX_OP_COUNT || fx_op_check(node->op, node->kernel, &node->params) != FX_OK)
        return FX_ERR_PARAMS;
    if (node->out.base == -1)
        return FX_ERR_BOUNDS;
    for (int i = 0; i <= FX_MAX_INPUTS; i++) {
        const fx_place *o = i == FX_OUTPUT ? &node->out : &node->in[i];
        if (!operand_inside(p, node, i, o) ||
            (o->base >= 0 && o->offset % fx_op_element_bytes(node->op, &node->params, i)))
            return FX_ERR_BOUNDS;
    }
    int64_t workspace = fx_op_workspace(k, node->op, node->kernel, &node->params);
    if (node->workspace_bytes < workspace || node->workspace_bytes > BYTES_MAX / FX_MAX_THREADS)
        return FX_ERR_BOUNDS;
    if (node->workspace_bytes && (node->workspace_offset % 64 || node->workspace_bytes % 64 ||
                                  !inside(node->workspace_offset, threads * node->workspace_bytes, p->arena_bytes)))
        return FX_ERR_BOUNDS;
    if (fx_op_zeros(node->op, &node->params) > p->zeros_count)
        return FX_ERR_BOUNDS;
    return FX_OK;
}

static fx_status check_step(const fx_program *p, const fx_step *step) {
    if (step->node >= p->node_count || step->wait_loads > p->load_count)
        return FX_ERR_PARAMS;
    const fx_node *node = &p->nodes[step->node];
    fx_window w = step->window, full = fx_op_full_window(node->op, &node->params);
    uint32_t traits = fx_op_traits(node->op);
    if (w.y0 < 0 || w.y0 > w.y1 || w.y1 > full.y1 || w.c0 < 0 || w.c0 > w.c1 || w.c1 > full.c1 || w.c0 % FX_NR ||
        (w.c1 % FX_NR && w.c1 != full.c1))
        return FX_ERR_PARAMS;
    if (!(traits & FX_TRAIT_ROWS) && (w.y0 != full.y0 || w.y1 != full.y1))
        return FX_ERR_PARAMS;
    if (!(traits & FX_TRAIT_CHANNELS) && (w.c0 != full.c0 || w.c1 != full.c1))
        return FX_ERR_PARAMS;
    if (!(traits & FX_TRAIT_PANELS))
        return FX_OK;
    int64_t panels = (w.c1 + FX_NR - 1) / FX_NR - w.c0 / FX_NR, panel = fx_op_panel_bytes(node->op, &node->params);
    if (w.c0 / FX_NR + panels > fx_op_panels(node->op, &node->params))
        return FX_ERR_PARAMS;
    if (step->panel_offset % 4 || panel > BYTES_MAX / (panels + 1) ||
        !inside(step->panel_offset, panels * panel, p->arena_bytes))
        return FX_ERR_BOUNDS;
    return FX_OK;
}

static fx_status check_file(const fx_program *p, const fx_load *load) {
    if (load->bytes <= 0 || load->file_offset < 0 || load->file_offset > BYTES_MAX || load->bytes > BYTES_MAX)
        return FX_ERR_PARAMS;
    if (!inside(load->check_lead, load->check_bytes, load->bytes) || load->chunk_bytes <= 0)
        return FX_ERR_PARAMS;
    int64_t chunks = load->check_bytes / load->chunk_bytes + (load->check_bytes % load->chunk_bytes != 0);
    return inside(load->crc_first, chunks, fx_load_is_spilled(load) ? p->spill_crc_count : p->crc_count)
               ? FX_OK
               : FX_ERR_BOUNDS;
}

static fx_status check_load(const fx_program *p, const fx_load *load) {
    const fx_status status = check_file(p, load);
    return status == FX_OK && !inside(load->address, load->bytes, p->arena_bytes) ? FX_ERR_BOUNDS : status;
}

/* Loads that must be done before a group starts. */
static uint32_t group_waits(const fx_program *p, int64_t first, int64_t count) {
    uint32_t loads = 0;
    for (int64_t i = first; i < first + count; i++)
        loads = p->steps[i].wait_loads > loads ? p->steps[i].wait_loads : loads;
    return loads;
}

/* Whether the groups hold every step exactly once. */
static int groups_cover(const fx_program *p) {
    uint64_t steps = 0;
    for (uint32_t i = 0; i < p->group_count; i++) {
        if (!p->groups[i])
            return 0;
        steps += p->groups[i];
    }
    return !p->group_count || steps == p->step_count;
}

/* Plays two runs with instant loads and steps. As all conditions are thresholds of counters that only grow, one order
 * that gets to the end shows that every order does; and every later run begins as the second does. */
static fx_status check_progress(const fx_program *p, fx_error *error) {
    const int64_t steps = p->step_count, loads = p->load_count;
    int64_t steps_done = 0, loads_done = 0, before;
    uint32_t group = 0; /* the next one */
    do {
        before = steps_done + loads_done;
        while (loads_done < 2 * loads &&
               steps_done >= loads_done / loads * steps + p->loads[loads_done % loads].wait_steps)
            loads_done++;
        while (steps_done < 2 * steps) {
            int64_t count = p->group_count ? p->groups[group] : 1;
            if (loads_done < steps_done / steps * loads + group_waits(p, steps_done % steps, count))
                break;
            steps_done += count;
            group = p->group_count ? (group + 1) % p->group_count : 0;
        }
    } while (steps_done + loads_done != before);
    if (steps_done == 2 * steps && loads_done == 2 * loads)
        return FX_OK;
    return fail(error, FX_ERR_PARAMS, steps_done < 2 * steps ? (int64_t)p->steps[steps_done % steps].node : -1, 0);
}

fx_status fx_program_check_asking(const fx_program *p, int threads, const fx_kernels *k, fx_poll *poll,
                                  fx_error *error) {
    *error = (fx_error){.index = -1};
    if (threads < 1 || threads > FX_MAX_THREADS || p->node_count > COUNT_MAX || p->step_count > COUNT_MAX ||
        p->load_count > COUNT_MAX || p->pinned_count > COUNT_MAX || p->table_count > COUNT_MAX ||
        p->spill_count > COUNT_MAX || p->spill_crc_count > 8 * COUNT_MAX || p->crc_count > 8 * COUNT_MAX ||
        p->input_count > COUNT_MAX || p->output_count > COUNT_MAX || p->group_count > p->step_count)
        return fail(error, FX_ERR_PARAMS, -1, 0);
    if ((p->node_count && !p->nodes) || (p->step_count && !p->steps) || (p->load_count && !p->loads) ||
        (p->pinned_count && !p->pinned) || (p->table_count && !p->tables) || (p->spill_count && !p->spills) ||
        (p->group_count && !p->groups) || (p->crc_count && !p->crcs) ||
        (p->input_count + p->output_count && !p->io_bytes))
        return fail(error, FX_ERR_PARAMS, -1, 0);
    if (!groups_cover(p))
        return fail(error, FX_ERR_PARAMS, -1, 0);
    if (p->arena_bytes < 0 || p->arena_bytes > BYTES_MAX || p->zeros_count < 0 || p->zeros_count > BYTES_MAX / 4 ||
        (p->zeros_count && (p->zeros_offset % 4 || !inside(p->zeros_offset, p->zeros_count * 4, p->arena_bytes))))
        return fail(error, FX_ERR_BOUNDS, -1, 0);
    for (uint32_t i = 0; i < p->input_count + p->output_count; i++)
        if (p->io_bytes[i] < 0 || p->io_bytes[i] > BYTES_MAX)
            return fail(error, FX_ERR_BOUNDS, -1, 0);
    for (uint32_t i = 0; i < p->table_count; i++) {
        const fx_load *table = &p->tables[i];
        fx_status status = check_file(p, table);
        if (status == FX_OK && (table->check_lead || table->check_bytes != table->bytes || fx_load_is_spilled(table)))
            status = FX_ERR_PARAMS;
        if (status != FX_OK)
            return fail(error, status, -1, 0);
    }
    for (uint32_t i = 0; i < p->node_count; i++) {
        fx_status status =
            i % FX_ASK_EVERY || !fx_polled(poll) ? check_node(p, &p->nodes[i], threads, k) : FX_ERR_CANCELLED;
        if (status != FX_OK)
            return fail(error, status, i, 0);
    }
    for (uint32_t i = 0; i < p->step_count; i++) {
        fx_status status = i % FX_ASK_EVERY || !fx_polled(poll) ? check_step(p, &p->steps[i]) : FX_ERR_CANCELLED;
        if (status != FX_OK)
            return fail(error, status, p->steps[i].node, 0);
    }
    for (int pinned = 0; pinned < 2; pinned++)
        for (uint32_t i = 0; i < (pinned ? p->pinned_count : p->load_count); i++) {
            const fx_load *load = pinned ? &p->pinned[i] : &p->loads[i];
            fx_status status = check_load(p, load);
            if (status == FX_OK && pinned && fx_load_is_spilled(load))
                status = FX_ERR_PARAMS;
            if (status == FX_OK && !pinned &&
                (load->wait_steps < -(int64_t)p->step_count ||
                 load->wait_steps >= (int64_t)p->step_count + !p->step_count))
                status = FX_ERR_PARAMS;
            if (status != FX_OK) {
                fail(error, status, i, pinned);
                error->file_offset = load->file_offset;
                error->is_load = 1;
                return status;
            }
        }
    fx_status status = fx_spill_check(p, error);
    if (status == FX_OK)
        status = check_progress(p, error);
    return status == FX_OK ? fx_program_check_overlaps(p, threads, poll, error) : status;
}

fx_status fx_program_check(const fx_program *p, int threads, const fx_kernels *k, fx_error *error) {
    return fx_program_check_asking(p, threads, k, NULL, error);
}
