#include "flexnn/refit.h"

#include <string.h>

#define LINE ((int64_t)64)
#define SUM_MAX ((int64_t)1 << 60)
#define WORDS ((int64_t)(sizeof(fx_node) / sizeof(int64_t)))

static int is_index(int32_t index, uint32_t count) {
    return index >= 0 && (uint32_t)index < count;
}

fx_status fx_refit_check(const fx_refit *r) {
    int good = r->threads > 0 && r->base >= 0;
    for (uint32_t i = 0; i < r->step_count; i++)
        good = good && r->steps[i].node < r->node_count;
    for (uint32_t i = 0; i < r->root_count; i++)
        good = good && is_index(r->roots[i], r->tensor_count);
    for (uint32_t i = 0; i < r->working_count; i++)
        good = good && is_index(r->working[i], r->node_count) && (!i || r->working[i - 1] < r->working[i]);
    for (uint32_t i = 0; i < r->moved_count; i++)
        good = good && is_index(r->moved[i].tensor, r->tensor_count) && is_index(r->moved[i].root, r->root_count + 1) &&
               r->moved[i].word >= 0 && r->moved[i].word < WORDS * (int64_t)r->node_count;
    return good ? FX_OK : FX_ERR_PARAMS;
}

static int is_tensor(int64_t index, uint32_t count) {
    return index >= 0 && index < (int64_t)count;
}

fx_status fx_refit_order(const fx_refit *r, const fx_likeness *l, const int64_t *nbytes, const int64_t *offsets,
                         int64_t *own_nbytes, int64_t *own_offsets, int *fits) {
    int good = 1, same = 1;
    for (uint32_t i = 0; i < r->tensor_count; i++) {
        good = good && is_tensor(l->order[i], l->count);
        own_nbytes[i] = good ? nbytes[l->order[i]] : 0;
        own_offsets[i] = good ? offsets[l->order[i]] : 0;
    }
    for (uint32_t i = 0; i < l->pair_count; i++) {
        const int64_t one = l->also[i], other = l->also[l->pair_count + i];
        good = good && is_tensor(one, l->count) && is_tensor(other, l->count);
        same = same && good && nbytes[one] == nbytes[other] && offsets[one] == offsets[other];
    }
    *fits = same;
    return good ? FX_OK : FX_ERR_PARAMS;
}

/* Whether the node at other sizes has the panels that it had, the window of channels that its steps share, and no more
 * zeros than the program. */
static int is_alike(const fx_refit *r, uint32_t i, const fx_node *node) {
    const fx_node *own = &r->nodes[i];
    const int64_t panel = fx_op_panel_bytes(node->op, &node->params);
    if (panel != fx_op_panel_bytes(own->op, &own->params) ||
        (panel && fx_op_panels(node->op, &node->params) != fx_op_panels(own->op, &own->params)) ||
        fx_op_zeros(node->op, &node->params) > r->zeros_count)
        return 0;
    if (r->step_counts[i] <= 1)
        return 1;
    const fx_window now = fx_op_full_window(node->op, &node->params), then = fx_op_full_window(own->op, &own->params);
    return now.c0 == then.c0 && now.c1 == then.c1;
}

/* Bytes of a block in whole lines; -1: more than an arena has. */
static int64_t rounded(int64_t bytes, int64_t times) {
    if (bytes < 0 || bytes > SUM_MAX / times)
        return -1;
    return (bytes + LINE - 1) / LINE * LINE * times;
}

/* Fills the bytes of all roots; returns whether they may have places. */
static int fill_roots(const fx_refit *r, const fx_sizes *s, int64_t *blocks) {
    for (uint32_t i = 0; i < r->root_count; i++) {
        const int64_t bytes = s->nbytes[r->roots[i]];
        blocks[i] = rounded(bytes ? bytes : 1, 1);
        if (blocks[i] < 0 || (!r->is_pinned && bytes > r->room[i]))
            return 0;
    }
    return 1;
}

fx_status fx_refit_nodes(const fx_refit *r, const fx_kernels *k, const fx_sizes *s, fx_node *nodes, int64_t *blocks,
                         int *fits) {
    *fits = 0;
    if (r->node_count)
        memcpy(nodes, r->nodes, r->node_count * sizeof *nodes);
    for (uint32_t i = 0; i < r->node_count; i++) {
        nodes[i].params = s->params[i];
        if (nodes[i].op == FX_OP_CONV)
            nodes[i].params.conv.tile_block = r->nodes[i].params.conv.tile_block;
    }
    for (uint32_t i = 0; i < s->chosen_count; i++) {
        if (!is_index(s->chosen[i], r->node_count) || nodes[s->chosen[i]].op != FX_OP_CONV)
            return FX_ERR_PARAMS;
        nodes[s->chosen[i]].kernel = (uint32_t)s->kernels[i];
        nodes[s->chosen[i]].params.conv.tile_block = s->tile_blocks[i];
    }
    if (!fill_roots(r, s, blocks))
        return FX_OK;
    for (uint32_t i = 0, at = 0; i < r->node_count; i++) {
        fx_node *node = &nodes[i];
        if (node->op >= FX_OP_COUNT || fx_op_check(node->op, node->kernel, &node->params) != FX_OK ||
            !is_alike(r, i, node))
            return FX_OK;
        const int64_t own = fx_op_workspace(k, node->op, node->kernel, &node->params), bytes = rounded(own, 1);
        const int may_work = at < r->working_count && (uint32_t)r->working[at] == i;
        if (bytes < 0 || (r->is_pinned ? bytes && !may_work : own > node->workspace_bytes))
            return FX_OK;
        if (!may_work)
            continue;
        blocks[r->root_count + at] = rounded(r->is_pinned ? bytes : node->workspace_bytes, r->threads);
        if (r->is_pinned)
            node->workspace_bytes = bytes;
        if (blocks[r->root_count + at++] < 0)
            return FX_OK;
    }
    *fits = 1;
    return FX_OK;
}

/* Moves the operands; returns whether 64 bits were enough. */
static int move_operands(const fx_refit *r, const fx_sizes *s, const int64_t *places, fx_node *nodes) {
    int64_t *words = (int64_t *)nodes;
    for (uint32_t i = 0; i < r->moved_count; i++) {
        const fx_moved *m = &r->moved[i];
        int64_t by;
        if (__builtin_sub_overflow(s->offsets[m->tensor], r->offsets[m->tensor], &by))
            return 0;
        if (r->is_pinned && (uint32_t)m->root < r->root_count &&
            __builtin_add_overflow(by, places[m->root] - r->places[m->root], &by))
            return 0;
        if (__builtin_add_overflow(words[m->word], by, &words[m->word]))
            return 0;
    }
    return 1;
}

int64_t fx_refit_places(const fx_refit *r, const fx_sizes *s, const int64_t *blocks, const int64_t *places,
                        fx_node *nodes, fx_step *steps) {
    int64_t end = 0;
    if (!move_operands(r, s, places, nodes))
        return -1;
    for (uint32_t i = 0; i < r->root_count + r->working_count; i++)
        end = places[i] + blocks[i] > end ? places[i] + blocks[i] : end;
    for (uint32_t i = 0; r->is_pinned && i < r->working_count; i++) {
        fx_node *node = &nodes[r->working[i]];
        node->workspace_offset = node->workspace_bytes ? r->base + places[r->root_count + i] : 0;
    }
    if (r->step_count)
        memcpy(steps, r->steps, r->step_count * sizeof *steps);
    for (uint32_t i = 0; i < r->step_count; i++) {
        const fx_node *node = &nodes[steps[i].node];
        const fx_window whole = fx_op_full_window(node->op, &node->params);
        steps[i].window.y1 = whole.y1;
        if (r->step_counts[steps[i].node] == 1)
            steps[i].window.c1 = whole.c1;
    }
    return end;
}

static int64_t words_apart(const void *one, const void *other, size_t bytes) {
    int64_t count = 0;
    for (size_t at = 0; at < bytes; at += sizeof(uint32_t))
        count += memcmp((const char *)one + at, (const char *)other + at, sizeof(uint32_t)) != 0;
    return count;
}

int64_t fx_refit_edits(const fx_refit *r, const fx_node *nodes, const fx_step *steps) {
    return words_apart(r->nodes, nodes, r->node_count * sizeof *nodes) +
           words_apart(r->steps, steps, r->step_count * sizeof *steps);
}

static void move_place(fx_place *place, int64_t split, int64_t front, int64_t rest) {
    if (place->base == FX_BASE_ARENA)
        place->offset += place->offset < split ? front : rest;
}

void fx_relocate(const fx_movable *p, int64_t split, int64_t front, int64_t rest) {
    for (uint32_t i = 0; i < p->node_count; i++) {
        fx_node *node = &p->nodes[i];
        for (int k = 0; k < FX_MAX_INPUTS; k++)
            move_place(&node->in[k], split, front, rest);
        move_place(&node->out, split, front, rest);
        node->workspace_offset += node->workspace_bytes > 0 ? rest : 0;
    }
    for (uint32_t i = 0; i < p->step_count; i++)
        if (p->steps[i].panel_offset >= 0)
            p->steps[i].panel_offset += p->steps[i].panel_offset < split ? front : rest;
    for (uint32_t i = 0; i < p->pinned_count; i++)
        p->pinned[i].address += front;
    for (uint32_t i = 0; i < p->load_count; i++)
        p->loads[i].address += rest;
}
