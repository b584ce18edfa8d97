/* Pins slices of a draft that has its addresses; nothing else moves. */
#include "flexnn/draft.h"

#include <stdlib.h>

#define ROUNDING 1e-12               /* of sums of times */
#define STEPS ((int64_t)1 << 24)     /* simulated while slices are pinned one by one */
#define LOOKS_MIN 8                  /* at least so many slices are tried before one is pinned */
#define ASK_STEPS ((int64_t)1 << 19) /* simulated between two questions whether the caller cancels: some ms */

typedef struct candidate {
    int64_t bytes, slice;
} candidate;

typedef struct fill {
    fx_draft *d;
    const fx_problem *p;
    candidate *candidates; /* smallest first, as these save the most time per byte */
    int64_t count;
    int looks;   /* left */
    double most; /* slices of the same bytes */
    const fx_interrupt *interrupt;
    int64_t steps; /* simulated since it was asked */
    int is_cancelled;
} fill;

static void mark_one(fx_draft *d, int64_t i, int pinned) {
    d->slices[i].is_pinned = pinned;
    d->stream_bytes -= pinned ? d->slices[i].arena_bytes : -d->slices[i].arena_bytes;
}

/* Pins or unpins a slice and its twins. */
static void mark(fx_draft *d, int64_t i, int pinned) {
    d->pinned_bytes += pinned ? d->slices[i].arena_bytes : -d->slices[i].arena_bytes;
    mark_one(d, i, pinned);
    for (int64_t t = d->twins[i]; t != i; t = d->twins[t])
        mark_one(d, t, pinned);
}

static void count_one(fx_draft *d, int64_t i, int pinned) {
    for (uint32_t j = (uint32_t)d->slices[i].step; j < d->step_count; j++)
        d->steps[j].wait_loads += pinned ? -1 : 1;
}

/* Pins or unpins a slice and its twins to look at the run without them. */
static void pin(fx_draft *d, int64_t i, int pinned) {
    mark(d, i, pinned);
    count_one(d, i, pinned);
    for (int64_t t = d->twins[i]; t != i; t = d->twins[t])
        count_one(d, t, pinned);
}

static int by_file(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return (x->slice > y->slice) - (x->slice < y->slice);
}

/* Finds the twins of all slices, and pins those of pinned ones, which takes no memory. Pinned slices with the same
 * bytes count once from now on. */
static void find_twins(fill *f) {
    fx_draft *d = f->d;
    int64_t again = 0;
    candidate *all = (candidate *)d->work;
    for (uint32_t i = 0; i < d->slice_count; i++) {
        all[i] = (candidate){d->slices[i].file_offset, i};
        d->twins[i] = (int32_t)i;
    }
    f->most = 1.0;
    if (!f->p->has_twins)
        return;
    qsort(all, d->slice_count, sizeof *all, by_file);
    for (uint32_t first = 0, end; first < d->slice_count; first = end) {
        int64_t pinned = 0;
        const fx_draft_slice *slice = &d->slices[all[first].slice];
        for (end = first; end < d->slice_count && all[end].bytes == slice->file_offset &&
                          d->slices[all[end].slice].bytes == slice->bytes;
             end++)
            pinned += d->slices[all[end].slice].is_pinned != 0;
        for (uint32_t i = first; i < end; i++) {
            d->twins[all[i].slice] = (int32_t)all[i + 1 < end ? i + 1 : first].slice;
            if (pinned && !d->slices[all[i].slice].is_pinned)
                mark_one(d, all[i].slice, 1);
        }
        again += pinned > 1 ? (pinned - 1) * slice->arena_bytes : 0;
        f->most = end - first > f->most ? end - first : f->most;
    }
    d->pinned_bytes -= again;
}

/* Simulates the run with the waits as they are. */
static void look(fill *f) {
    fx_draft_simulate(f->d, f->p);
    f->steps += f->d->step_count;
    if (f->steps >= ASK_STEPS && f->interrupt && !f->is_cancelled) {
        f->steps = 0;
        f->is_cancelled = f->interrupt->is_wanted(f->interrupt->arg) != 0;
    }
}

/* Simulates the run after slices were marked. */
static void simulate(fill *f) {
    fx_draft *d = f->d;
    int32_t loads = 0;
    for (uint32_t j = 0, i = 0; j < d->step_count; j++) {
        for (; i < d->slice_count && d->slices[i].step <= (int32_t)j; i++)
            loads += !d->slices[i].is_pinned;
        d->steps[j].wait_loads = loads;
    }
    look(f);
}

static int by_bytes(const void *a, const void *b) {
    const candidate *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return (x->slice > y->slice) - (x->slice < y->slice);
}

/* How many candidates have at most `most` bytes. */
static int64_t count_fitting(const fill *f, int64_t most) {
    int64_t low = 0, high = f->count;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (f->candidates[middle].bytes <= most)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The slice of at most `most` bytes that saves the most time per byte; -1 if none saves any. Looks at as many slices as
 * it may, spread over all. */
static int64_t best_slice(fill *f, int64_t most, int turn) {
    if (f->looks <= 0)
        return -1;
    const double before = f->d->seconds;
    double best = 0.0;
    int64_t found = -1, fitting = count_fitting(f, most);
    int64_t looks = f->looks / 4 > LOOKS_MIN ? f->looks / 4 : LOOKS_MIN;
    int64_t stride = (fitting + looks - 1) / looks;
    for (int64_t i = stride ? turn % stride : 0; i < fitting && f->looks > 0 && !f->is_cancelled; i += stride) {
        const candidate c = f->candidates[i];
        const double bytes = (double)c.bytes;
        if (f->d->slices[c.slice].is_pinned)
            continue;
        if (best * bytes >= f->most * (bytes / f->p->storage_bytes_per_second + f->p->request_s))
            break; /* neither this nor a larger slice can save more */
        pin(f->d, c.slice, 1);
        look(f);
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

/* Slices that are pinned between two simulated runs: one, or so many that all runs together simulate STEPS steps. */
static int64_t pins_of_a_run(const fx_draft *d, uint32_t count) {
    return 1 + (int64_t)count * d->step_count / STEPS;
}

fx_status fx_fill(fx_draft *d, const fx_problem *p, const int32_t *order, uint32_t count, const fx_limits *limits,
                  int looks, const fx_interrupt *interrupt) {
    fill f = {
        .d = d, .p = p, .candidates = (candidate *)d->work, .count = count, .looks = looks, .interrupt = interrupt};
    int64_t *pinned = d->work + 2 * (int64_t)d->slice_max; /* in their order; the candidates take the other half */
    find_twins(&f);
    const int64_t taken = fx_draft_bytes(d, p, limits->working_bytes);
    int64_t spare_bytes = limits->bytes_max - taken, spare_bytes_max = limits->next_bytes_max - taken;
    for (uint32_t i = 0; i < count; i++)
        f.candidates[i] = (candidate){d->slices[order[i]].arena_bytes, order[i]};
    qsort(f.candidates, count, sizeof *f.candidates, by_bytes);
    const int64_t every = pins_of_a_run(d, count);
    int64_t reached = 0, best = 0;
    simulate(&f);
    double seconds = d->seconds;
    for (uint32_t at = 0; reached < count && !f.is_cancelled; reached++) {
        int64_t slice = best_slice(&f, spare_bytes_max, (int)reached);
        if (slice < 0) { /* what was too large before is too large now */
            while (at < count && (d->slices[order[at]].is_pinned || d->slices[order[at]].arena_bytes > spare_bytes_max))
                at++;
            slice = at < count ? order[at] : -1;
        }
        if (slice < 0 || d->slices[slice].arena_bytes > spare_bytes)
            break;
        pinned[reached] = slice;
        spare_bytes -= d->slices[slice].arena_bytes;
        spare_bytes_max -= d->slices[slice].arena_bytes;
        mark(d, slice, 1);
        if ((reached + 1) % every)
            continue;
        simulate(&f);
        if (d->seconds <= seconds * (1 + ROUNDING)) {
            seconds = d->seconds < seconds ? d->seconds : seconds;
            best = reached + 1;
        }
    }
    while (reached > best)
        mark(d, pinned[--reached], 0);
    simulate(&f);
    return f.is_cancelled ? FX_ERR_CANCELLED : FX_OK;
}
