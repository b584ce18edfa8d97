/* Changes kernels and slices node by node; a change stays if it makes the whole run shorter. */
#include "flexnn/draft.h"
#include "sizes.h"

#include <stdlib.h>

#define WORTH 1e-5 /* the part of the run that a change must save */

typedef struct trial {
    fx_draft *d;
    const fx_problem *p;
    fx_choice *choices;
    int64_t working_bytes, bytes_max;
    double best;
    int left;
} trial;

/* Whether the node's choice fits: its workspace, constants and a slice, each in contiguous memory. */
static int fits(const trial *t, uint32_t i) {
    const fx_draft_node *node = &t->p->nodes[i];
    const fx_choice *choice = &t->choices[i];
    int64_t address[1 + FX_CONSTANTS_MAX];
    int64_t room = fx_node_room(t->p, node, t->working_bytes, choice, address);
    if (room < 0)
        return 0;
    if (choice->pinned_panels == node->panel_count)
        return 1;
    int64_t bytes = choice->slice_panels * node->panel_bytes;
    return room >= (t->p->io_align > FX_LINE ? fx_room_bytes(t->p, bytes) : bytes);
}

static int try(trial *t, uint32_t i, fx_choice changed) {
    fx_choice before = t->choices[i];
    if (t->left <= 0)
        return 0;
    t->choices[i] = changed;
    if (fits(t, i)) {
        t->left--;
        fx_draft_build(t->d, t->p, t->choices, t->working_bytes);
        if (fx_draft_bytes(t->d, t->p, t->working_bytes) <= t->bytes_max) {
            fx_draft_time(t->d, t->p);
            if (t->d->seconds < t->best * (1 - WORTH)) {
                t->best = t->d->seconds;
                return 1;
            }
        }
    }
    t->choices[i] = before;
    return 0;
}

static int try_variants(trial *t, uint32_t i) {
    const fx_draft_node *node = &t->p->nodes[i];
    int better = 0;
    for (int32_t v = 0; v < node->variant_count; v++) {
        fx_choice changed = t->choices[i];
        if (v == changed.variant)
            continue;
        changed.variant = v;
        better |= try(t, i, changed);
        int64_t streamed = node->panel_count - changed.pinned_panels;
        if (v < t->choices[i].variant && streamed > 1) { /* a faster kernel may need smaller slices */
            changed.slice_panels = (changed.slice_panels + 1) / 2;
            better |= try(t, i, changed);
        }
    }
    return better;
}

static int try_slices(trial *t, uint32_t i) {
    const fx_draft_node *node = &t->p->nodes[i];
    int64_t streamed = node->panel_count - t->choices[i].pinned_panels;
    int better = 0;
    if (streamed < 2)
        return 0;
    for (int turn = 0; turn < 2; turn++) {
        fx_choice changed = t->choices[i];
        int64_t count = (streamed + changed.slice_panels - 1) / changed.slice_panels;
        count = turn ? (count + 1) / 2 : 2 * count;
        if (count > streamed)
            count = streamed;
        changed.slice_panels = (int32_t)((streamed + count - 1) / count);
        if (changed.slice_panels != t->choices[i].slice_panels && try(t, i, changed)) {
            better = 1;
            break;
        }
    }
    return better;
}

/* Seconds that changing a node may save: what its kernel takes above the fastest, and what its slices cost. */
static double promise(const trial *t, uint32_t i) {
    const fx_draft_node *node = &t->p->nodes[i];
    const fx_choice *c = &t->choices[i];
    const fx_variant *fastest = &t->p->variants[node->variant_first], *variant = fastest + c->variant;
    int64_t streamed = node->panel_count - c->pinned_panels;
    double slices = streamed ? (double)((streamed + c->slice_panels - 1) / c->slice_panels) : 0.0;
    return variant->channels_s - fastest->channels_s + slices * (variant->fixed_s + t->p->request_s);
}

static int by_promise(const void *a, const void *b) {
    const fx_rank *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return (x->node > y->node) - (x->node < y->node);
}

void fx_improve(fx_draft *d, const fx_problem *p, fx_choice *choices, int64_t working_bytes, int64_t bytes_max,
                int tries) {
    trial t = {
        .d = d, .p = p, .choices = choices, .working_bytes = working_bytes, .bytes_max = bytes_max, .left = tries};
    fx_draft_build(d, p, choices, working_bytes);
    fx_draft_time(d, p);
    t.best = d->seconds;
    for (uint32_t i = 0; i < p->node_count; i++)
        d->ranks[i] = (fx_rank){promise(&t, i), i};
    qsort(d->ranks, p->node_count, sizeof *d->ranks, by_promise);
    for (int better = 1; better && t.left > 0;) {
        better = 0;
        for (uint32_t i = 0; i < p->node_count && t.left > 0; i++) {
            better |= try_variants(&t, d->ranks[i].node);
            better |= try_slices(&t, d->ranks[i].node);
        }
    }
    fx_draft_build(d, p, choices, working_bytes);
    fx_draft_time(d, p);
}
