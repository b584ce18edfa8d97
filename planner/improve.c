/* Kernels and slices layer by layer: changes that make the whole run shorter stay. */
#include "draft.h"

#include <stdlib.h>

#define WORTH 1e-5 /* a change stays when it saves this share of the run */

typedef struct trial {
    fx_draft *d;
    const fx_problem *p;
    fx_choice *choices;
    int64_t region, memory;
    double best;
    int left;
} trial;

/* Whether the layer's choice fits: workspace, constants and a slice, each where it lies in one piece. */
static int fits(const trial *t, uint32_t i) {
    const fx_layer *l = &t->p->layers[i];
    const fx_choice *choice = &t->choices[i];
    int64_t address[1 + FX_CONSTANTS_MAX];
    int64_t room = fx_layer_room(t->p, l, t->region, choice, address), align = t->p->io_align;
    if (room < 0)
        return 0;
    if (choice->pinned_panels == l->panels)
        return 1;
    int64_t bytes = choice->slice_panels * l->panel_bytes;
    return room >= (align > 64 ? ((bytes + align - 1) & -align) + 2 * align : bytes);
}

static int try(trial *t, uint32_t i, fx_choice changed) {
    fx_choice before = t->choices[i];
    if (t->left <= 0)
        return 0;
    t->choices[i] = changed;
    if (fits(t, i)) {
        t->left--;
        fx_draft_build(t->d, t->p, t->choices, t->region);
        if (fx_draft_bytes(t->d, t->p, t->region) <= t->memory) {
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
    const fx_layer *l = &t->p->layers[i];
    int better = 0;
    for (int32_t v = 0; v < l->variants; v++) {
        fx_choice changed = t->choices[i];
        if (v == changed.variant)
            continue;
        changed.variant = v;
        better |= try(t, i, changed);
        int64_t streamed = l->panels - changed.pinned_panels;
        if (v < t->choices[i].variant && streamed > 1) { /* a faster one may need smaller slices */
            changed.slice_panels = (changed.slice_panels + 1) / 2;
            better |= try(t, i, changed);
        }
    }
    return better;
}

static int try_slices(trial *t, uint32_t i) {
    const fx_layer *l = &t->p->layers[i];
    int64_t streamed = l->panels - t->choices[i].pinned_panels;
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

/* Seconds that a layer may give: what its kernel takes above the fastest, and what slices cost. */
static double promise(const trial *t, uint32_t i) {
    const fx_layer *l = &t->p->layers[i];
    const fx_choice *c = &t->choices[i];
    const fx_variant *fastest = &t->p->variants[l->variant], *way = fastest + c->variant;
    int64_t streamed = l->panels - c->pinned_panels;
    double slices = streamed ? (double)((streamed + c->slice_panels - 1) / c->slice_panels) : 0.0;
    return way->channels_s - fastest->channels_s + slices * (way->fixed_s + t->p->request_s);
}

static int by_promise(const void *a, const void *b) {
    const fx_rank *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return (x->layer > y->layer) - (x->layer < y->layer);
}

void fx_improve(fx_draft *d, const fx_problem *p, fx_choice *choices, int64_t region, int64_t memory, int tries) {
    trial t = {.d = d, .p = p, .choices = choices, .region = region, .memory = memory, .left = tries};
    fx_draft_build(d, p, choices, region);
    fx_draft_time(d, p);
    t.best = d->seconds;
    for (uint32_t i = 0; i < p->layer_count; i++)
        d->ranks[i] = (fx_rank){promise(&t, i), i};
    qsort(d->ranks, p->layer_count, sizeof *d->ranks, by_promise);
    for (int better = 1; better && t.left > 0;) {
        better = 0;
        for (uint32_t i = 0; i < p->layer_count && t.left > 0; i++) {
            better |= try_variants(&t, d->ranks[i].layer);
            better |= try_slices(&t, d->ranks[i].layer);
        }
    }
    fx_draft_build(d, p, choices, region);
    fx_draft_time(d, p);
}
