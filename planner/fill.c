/* Pins slices of a draft that has its addresses; nothing else moves. */
#include "flexnn/draft.h"

#include <stdlib.h>

#define ROUNDING 1e-12 /* of sums of times */
#define LOOKS_MIN 8    /* at least so many slices are tried before one is pinned */

typedef struct candidate {
    int64_t bytes, slice;
} candidate;

typedef struct fill {
    fx_draft *d;
    const fx_problem *p;
    candidate *candidates; /* smallest first, as these save the most time per byte */
    int64_t count;
    int looks; /* left */
} fill;

static void pin(fx_draft *d, int64_t i, int pinned) {
    fx_draft_slice *slice = &d->slices[i];
    slice->is_pinned = pinned;
    for (uint32_t j = (uint32_t)slice->step; j < d->step_count; j++)
        d->steps[j].wait_loads += pinned ? -1 : 1;
    d->pinned_bytes += pinned ? slice->arena_bytes : -slice->arena_bytes;
    d->stream_bytes -= pinned ? slice->arena_bytes : -slice->arena_bytes;
}

static int by_bytes(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return (x->slice > y->slice) - (x->slice < y->slice);
}

/* The slice of at most `most` bytes that saves the most time per byte; -1 if none saves any. Looks at as many slices as
 * it may, spread over all. */
static int64_t best_slice(fill *f, int64_t most, int turn) {
    const double before = f->d->seconds;
    double best = 0.0;
    int64_t found = -1, fitting = 0;
    while (fitting < f->count && f->candidates[fitting].bytes <= most)
        fitting++;
    int64_t looks = f->looks / 4 > LOOKS_MIN ? f->looks / 4 : LOOKS_MIN;
    int64_t stride = (fitting + looks - 1) / looks;
    for (int64_t i = stride ? turn % stride : 0; i < fitting && f->looks > 0; i += stride) {
        const candidate c = f->candidates[i];
        const double bytes = (double)c.bytes;
        if (f->d->slices[c.slice].is_pinned)
            continue;
        if (best * bytes >= bytes / f->p->storage_bytes_per_second + f->p->request_s)
            break; /* neither this nor a larger slice can save more */
        pin(f->d, c.slice, 1);
        fx_draft_simulate(f->d, f->p);
        f->looks--;
        double gain = (before - f->d->seconds) / bytes;
        if (gain * bytes > before * ROUNDING && gain > best) {
            best = gain;
            found = c.slice;
        }
        pin(f->d, c.slice, 0);
    }
    return found;
}

void fx_fill(fx_draft *d, const fx_problem *p, int32_t *order, uint32_t count, int64_t spare_bytes,
             int64_t spare_bytes_max, int looks) {
    fill f = {.d = d, .p = p, .candidates = (candidate *)d->work, .count = count, .looks = looks};
    for (uint32_t i = 0; i < count; i++)
        f.candidates[i] = (candidate){d->slices[order[i]].arena_bytes, order[i]};
    qsort(f.candidates, count, sizeof *f.candidates, by_bytes);
    uint32_t reached = 0, best = 0;
    fx_draft_simulate(d, p);
    double seconds = d->seconds;
    while (reached < count) {
        int64_t slice = best_slice(&f, spare_bytes_max, (int)reached);
        uint32_t at = reached;
        while (at < count &&
               (slice < 0 ? d->slices[order[at]].is_pinned || d->slices[order[at]].arena_bytes > spare_bytes_max
                          : order[at] != slice))
            at++;
        if (at == count || d->slices[order[at]].arena_bytes > spare_bytes)
            break;
        slice = order[at];
        for (; at > reached; at--)
            order[at] = order[at - 1];
        order[reached++] = (int32_t)slice;
        spare_bytes -= d->slices[slice].arena_bytes;
        spare_bytes_max -= d->slices[slice].arena_bytes;
        pin(d, slice, 1);
        fx_draft_simulate(d, p);
        if (d->seconds <= seconds * (1 + ROUNDING)) {
            seconds = d->seconds < seconds ? d->seconds : seconds;
            best = reached;
        }
    }
    while (reached > best)
        pin(d, order[--reached], 0);
    fx_draft_simulate(d, p);
}
