#include "groups.h"
#include "flexnn/kernels.h"
#include "last_touch.h"
#include "times.h"

#include <stdlib.h>

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

/* The first step of a group that may not run beside one before it; -1: none. */
static int64_t compare_pairs(const fx_program *p, const fx_node_ranges *nodes, uint32_t first, uint32_t end) {
    for (uint32_t i = first; i < end; i++)
        for (uint32_t j = first; j < i; j++)
            if (!steps_apart(p, &p->steps[j], &p->steps[i], nodes))
                return i;
    return -1;
}

typedef enum kind { OUT, READ, WORK, KINDS } kind;

/* What a step touches: from lo to hi of a buffer. Or a rectangle, which only meets others of its space: from lo to hi,
 * and across. */
typedef struct entry {
    int64_t space, lo, hi;
    fx_range across;
    uint32_t node;
    kind kind;
} entry;

static int by_place(const void *a, const void *b) {
    const entry *x = a, *y = b;
    if (x->space != y->space)
        return x->space < y->space ? -1 : 1;
    if (x->lo != y->lo)
        return x->lo < y->lo ? -1 : 1;
    return (x->node > y->node) - (x->node < y->node);
}

static int by_number(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The greatest end of a kind's ranges so far, and the greatest of those of other nodes than that one's. */
typedef struct ends {
    int64_t hi, other_hi;
    uint32_t node;
} ends;

static void ends_take(ends *e, const entry *taken) {
    if (e->hi > INT64_MIN && e->node == taken->node) {
        e->hi = taken->hi > e->hi ? taken->hi : e->hi;
    } else if (taken->hi > e->hi) {
        e->other_hi = e->hi;
        e->hi = taken->hi;
        e->node = taken->node;
    } else if (taken->hi > e->other_hi) {
        e->other_hi = taken->hi;
    }
}

static void entries_add(entry *entries, int64_t *count, entry added) {
    if (added.lo < added.hi)
        entries[(*count)++] = added;
}

/* Whether no output or workspace meets what another node touches; outputs among each other are not looked at. Ranges in
 * order of where they begin: one meets some range before it where it begins below the greatest end so far. */
static int64_t sweep_touches(const fx_program *p, const fx_node_ranges *nodes, uint32_t first, uint32_t end,
                             entry *entries) {
    int64_t count = 0;
    for (uint32_t i = first; i < end; i++) {
        const uint32_t node = p->steps[i].node;
        const fx_node *n = &p->nodes[node];
        for (int j = 0; j <= FX_OUTPUT; j++) {
            const fx_range range = extent(n, j);
            const fx_place *o = j == FX_OUTPUT ? &n->out : &n->in[j];
            entries_add(entries, &count,
                        (entry){.space = o->base,
                                .lo = range.lo,
                                .hi = range.hi,
                                .node = node,
                                .kind = j == FX_OUTPUT ? OUT : READ});
        }
        const fx_range weights = fx_step_weights(p, &p->steps[i]), own = nodes[node].ranges[FX_WORKSPACE];
        entries_add(entries, &count,
                    (entry){.space = FX_BASE_ARENA, .lo = weights.lo, .hi = weights.hi, .node = node, .kind = READ});
        entries_add(entries, &count,
                    (entry){.space = FX_BASE_ARENA, .lo = own.lo, .hi = own.hi, .node = node, .kind = WORK});
    }
    qsort(entries, (size_t)count, sizeof *entries, by_place);
    ends so_far[KINDS];
    entry work = {0}; /* the last workspace: each may be shared as a whole */
    for (int64_t i = 0; i < count; i++) {
        const entry *e = &entries[i];
        if (!i || e->space != entries[i - 1].space) {
            for (int k = 0; k < KINDS; k++)
                so_far[k] = (ends){INT64_MIN, INT64_MIN, 0};
            work.hi = INT64_MIN;
        }
        for (int k = 0; k < KINDS; k++)
            if (k != (int)e->kind && (so_far[k].node == e->node ? so_far[k].other_hi : so_far[k].hi) > e->lo)
                return e->node;
        if (e->kind == WORK) {
            if (e->lo < work.hi && (e->lo != work.lo || e->hi != work.hi))
                return e->node;
            work = *e;
        }
        ends_take(&so_far[e->kind], e);
    }
    return -1;
}

/* Number of places that are not above one. */
static uint32_t rank_of(const int64_t *places, int64_t count, int64_t place) {
    int64_t low = 0, high = count;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (places[middle] <= place)
            low = middle + 1;
        else
            high = middle;
    }
    return (uint32_t)low;
}

/* Whether rectangles of one space, in order of lo, are apart: where one begins, those before it have ended across it.
 */
static fx_status sweep_space(const entry *rectangles, int64_t count, int64_t *bad) {
    fx_last_touch last;
    fx_range *across = calloc((size_t)count, sizeof *across);
    int64_t *lasts = calloc((size_t)count, sizeof *lasts);
    fx_status status = across && lasts ? FX_OK : FX_ERR_MEMORY;
    for (int64_t i = 0; i < count && status == FX_OK; i++) {
        across[i] = rectangles[i].across;
        lasts[i] = rectangles[i].hi;
    }
    if (status == FX_OK)
        status = fx_last_touch_make(&last, across, count);
    if (status == FX_OK) {
        qsort(lasts, (size_t)count, sizeof *lasts, by_number);
        for (int64_t i = 0; i < count && *bad < 0; i++) {
            const entry *r = &rectangles[i];
            if (fx_last_touch_of(&last, r->across) > rank_of(lasts, count, r->lo))
                *bad = r->node;
            fx_last_touch_note(&last, r->across, rank_of(lasts, count, r->hi));
        }
        fx_last_touch_free(&last);
    }
    free(across);
    free(lasts);
    return status;
}

static fx_status sweep_rectangles(entry *rectangles, int64_t count, int64_t *bad) {
    fx_status status = FX_OK;
    if (count > 1)
        qsort(rectangles, (size_t)count, sizeof *rectangles, by_place);
    for (int64_t first = 0, end; first < count && status == FX_OK && *bad < 0; first = end) {
        for (end = first + 1; end < count && rectangles[end].space == rectangles[first].space;)
            end++;
        if (end - first > 1)
            status = sweep_space(rectangles + first, end - first, bad);
    }
    return status;
}

static fx_status sweep_windows(const fx_program *p, uint32_t first, uint32_t end, entry *windows, int64_t *bad) {
    for (uint32_t i = first; i < end; i++) {
        const fx_window w = p->steps[i].window;
        const uint32_t node = p->steps[i].node;
        windows[i - first] = (entry){.space = node, .lo = w.y0, .hi = w.y1, .across = {w.c0, w.c1}, .node = node};
    }
    return sweep_rectangles(windows, end - first, bad);
}

/* Adds an output of a bunch, in which each meets some other: from its first byte to its last, and across what it has of
 * each pitch, which may go round the end. */
static void add_teeth(entry *teeth, int64_t *count, const entry *output, int64_t run, int64_t pitch, int64_t bunch) {
    const int64_t place = (output->lo % pitch + pitch) % pitch, beyond = place + run - pitch;
    entry tooth = *output;
    tooth.space = bunch;
    tooth.across = (fx_range){place, beyond > 0 ? pitch : place + run};
    teeth[(*count)++] = tooth;
    tooth.across = (fx_range){0, beyond};
    if (beyond > 0)
        teeth[(*count)++] = tooth;
}

/* Whether outputs of unlike nodes are apart. `teeth` has room for two of each step. */
static fx_status sweep_outputs(const fx_program *p, uint32_t first, uint32_t end, entry *outputs, entry *teeth,
                               int64_t *bad) {
    int64_t count = 0, teeth_count = 0;
    for (uint32_t i = first; i < end; i++) {
        const fx_node *n = &p->nodes[p->steps[i].node];
        const fx_range range = extent(n, FX_OUTPUT);
        entries_add(outputs, &count,
                    (entry){.space = n->out.base, .lo = range.lo, .hi = range.hi, .node = p->steps[i].node});
    }
    if (count > 1)
        qsort(outputs, (size_t)count, sizeof *outputs, by_place);
    int64_t bunch = 0, bunch_hi = 0, bunch_pitch = 0;
    for (int64_t i = 0; i < count; i++) {
        const entry *o = &outputs[i];
        int64_t run, pitch;
        if (i && o->space == outputs[i - 1].space && o->lo == outputs[i - 1].lo && o->node == outputs[i - 1].node)
            continue; /* another step of the same node */
        comb(&p->nodes[o->node], &run, &pitch);
        const int begins = !i || o->space != outputs[i - 1].space || o->lo >= bunch_hi;
        if (begins) {
            bunch = i;
            bunch_pitch = pitch;
        } else if (!pitch || pitch != bunch_pitch) {
            *bad = o->node;
            return FX_OK;
        }
        bunch_hi = begins || o->hi > bunch_hi ? o->hi : bunch_hi;
        if (pitch)
            add_teeth(teeth, &teeth_count, o, run, pitch, bunch);
    }
    return sweep_rectangles(teeth, teeth_count, bad);
}

/* The same as compare_pairs, in n log n time: *bad becomes a node that may not run beside another one of the group. */
static fx_status sweep(const fx_program *p, const fx_node_ranges *nodes, uint32_t first, uint32_t end, int64_t *bad) {
    const size_t steps = end - first;
    entry *entries = calloc(steps * (FX_RANGES + 1), sizeof *entries), *teeth = calloc(2 * steps, sizeof *teeth);
    fx_status status = entries && teeth ? FX_OK : FX_ERR_MEMORY;
    if (status == FX_OK)
        *bad = sweep_touches(p, nodes, first, end, entries);
    if (status == FX_OK && *bad < 0)
        status = sweep_outputs(p, first, end, entries, teeth, bad);
    if (status == FX_OK && *bad < 0)
        status = sweep_windows(p, first, end, entries, bad);
    free(entries);
    free(teeth);
    return status;
}

fx_status fx_groups_check(const fx_program *p, const fx_node_ranges *nodes, uint32_t most, fx_error *error) {
    for (uint32_t group = 0, first = 0; group < p->group_count; first += p->groups[group++]) {
        const uint32_t end = first + p->groups[group];
        fx_status status = FX_OK;
        int64_t bad = -1;
        if (p->groups[group] > most)
            status = sweep(p, nodes, first, end, &bad);
        else if ((bad = compare_pairs(p, nodes, first, end)) >= 0)
            bad = p->steps[bad].node;
        if (status != FX_OK || bad >= 0)
            return fx_overlap_error(error, bad < 0 ? status : FX_ERR_OVERLAP, bad, NULL);
    }
    return FX_OK;
}
