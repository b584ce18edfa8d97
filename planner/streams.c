/* FlexNN Algorithm 1, "plan weights with preloading", on the circle of runs. The circle is cut at the step where the
 * fixed blocks leave the least memory: slices used before the cut come last, one run later, so that they may be loaded
 * while the tail of the run before computes. The first slices after the cut are then placed again, to look back across
 * it. The start of loading never falls from slice to slice: loads have one order.
 *
 * What is known of memory is a skyline over addresses: the last step in which each is in use. */
#include "flexnn/streams.h"
#include "skyline.h"

#include <stdlib.h>
#include <string.h>

#define COUNT_MAX ((int64_t)1 << 24)
#define BYTES_MAX ((int64_t)1 << 48)
#define LOOKED_AT ((int64_t)1 << 19)       /* spans and slices, while slices are placed again */
#define LOOKED_AT_LARGE ((int64_t)1 << 16) /* in a tree, where each takes longer */

#define ASK_EVERY ((int64_t)1 << 11) /* spans and slices between two questions whether the caller cancels */

/* What was done since the caller was asked. */
typedef struct asking {
    const fx_streams *p;
    int64_t done;
} asking;

/* Counts one more; FX_ERR_CANCELLED if the caller, who is asked now and then, cancels. */
static fx_status ask(asking *a) {
    const fx_interrupt *interrupt = a->p->interrupt;
    if (!interrupt || ++a->done < ASK_EVERY)
        return FX_OK;
    a->done = 0;
    return interrupt->is_wanted(interrupt->arg) ? FX_ERR_CANCELLED : FX_OK;
}

typedef struct place {
    int64_t start, end, first, last;
    int64_t slice;
} place;

/* The step at which the fixed blocks take the most. */
static int64_t fullest_step(const fx_streams *p, int64_t *change) {
    for (int64_t i = 0; i < p->fixed_count; i++) {
        change[p->fixed_first[i]] += p->fixed_end[i] - p->fixed_start[i];
        change[p->fixed_last[i] + 1] -= p->fixed_end[i] - p->fixed_start[i];
    }
    int64_t most = -1, total = 0, step = 0;
    for (int64_t i = 0; i < p->steps; i++) {
        total += change[i];
        if (total > most) {
            most = total;
            step = i;
        }
    }
    return step;
}

/* First step of a block, counted from the cut; 0 if it began before the cut, negative if it does not reach into [cut,
 * cut + steps). */
static int64_t from_cut(const fx_streams *p, int64_t cut, int64_t i, int64_t turn) {
    int64_t first = p->fixed_first[i] + turn - cut;
    return p->fixed_last[i] + turn < cut || first >= p->steps ? -1 : first < 0 ? 0 : first;
}

/* Fixed blocks of two runs that reach into [cut, cut + steps), in the order of their first step; at[steps + 1]. */
static int64_t around(const fx_streams *p, int64_t cut, int64_t *at, place *out) {
    memset(at, 0, ((size_t)p->steps + 1) * sizeof *at);
    for (int turn = 0; turn < 2; turn++)
        for (int64_t i = 0; i < p->fixed_count; i++)
            at[from_cut(p, cut, i, turn * p->steps) + 1]++; /* of the step before each; at[0]: not wanted */
    at[0] = 0;
    for (int64_t step = 1; step <= p->steps; step++)
        at[step] += at[step - 1];
    const int64_t count = at[p->steps];
    for (int turn = 0; turn < 2; turn++)
        for (int64_t i = 0; i < p->fixed_count; i++) {
            int64_t step = from_cut(p, cut, i, turn * p->steps), shift = turn * p->steps;
            if (step >= 0)
                out[at[step]++] = (place){p->fixed_start[i], p->fixed_end[i], p->fixed_first[i] + shift,
                                          p->fixed_last[i] + shift, -1};
        }
    return count;
}

/* First step from which on a slice may be read, as its place is free after step `until` and its bytes are stored. */
static int64_t first_of(const fx_streams *p, const place *own, int64_t until) {
    const int64_t stored = p->stored ? p->stored[own->slice] + own->last - p->use[own->slice] : until + 1;
    return stored > until + 1 ? stored : until + 1;
}

static int64_t find(const fx_skyline *s, const fx_streams *p, int64_t slice, int64_t before, int64_t *until) {
    const fx_wish wish = {p->bytes[slice], p->forced[slice], before, p->from_top};
    return fx_skyline_find(s, &wish, until);
}

static fx_status add(asking *asked, fx_skyline *s, const place *added, int64_t shift) {
    const fx_status status = ask(asked);
    return status == FX_OK ? fx_skyline_add(s, added->start, added->end, added->last - shift) : status;
}

/* Adds the fixed blocks up to a step, from number *entered on. */
static fx_status enter(asking *asked, fx_skyline *s, const place *fixed, int64_t count, int64_t step,
                       int64_t *entered) {
    fx_status status = FX_OK;
    for (; *entered < count && fixed[*entered].first <= step && status == FX_OK; ++*entered)
        status = add(asked, s, &fixed[*entered], 0);
    return status;
}

static fx_status place_from_cut(asking *asked, int64_t cut, const place *fixed, int64_t fixed_count, fx_skyline *sky,
                                place *placed) {
    const fx_streams *p = asked->p;
    int64_t entered = 0;
    fx_status status = fx_skyline_clear(sky, p->arena, p->align, cut);
    for (int64_t i = 0; i < p->count && status == FX_OK; i++) {
        place *own = &placed[i];
        status = enter(asked, sky, fixed, fixed_count, own->last, &entered);
        if (status != FX_OK)
            break;
        int64_t until, bytes = p->bytes[own->slice];
        own->start = find(sky, p, own->slice, own->last, &until);
        if (until >= own->last)
            return FX_ERR_BOUNDS;
        own->end = own->start + bytes;
        own->first = first_of(p, own, until);
        if (own->first > fx_skyline_floor(sky))
            fx_skyline_raise(sky, own->first);
        status = add(asked, sky, own, 0);
    }
    return status;
}

/* The skyline from which slices are placed again: fixed blocks, and what the run before left. */
static fx_status begin_again(asking *asked, const place *fixed, int64_t fixed_count, int64_t floor, fx_skyline *base,
                             const place *placed) {
    const fx_streams *p = asked->p;
    fx_status status = fx_skyline_clear(base, p->arena, p->align, floor);
    for (int64_t j = 0; j < fixed_count && status == FX_OK; j++)
        status = add(asked, base, &fixed[j], p->steps);
    for (int64_t j = p->count; j-- > 0 && placed[j].last - p->steps >= floor && status == FX_OK;)
        status = add(asked, base, &placed[j], p->steps);
    return status;
}

/* Places again the slices that could start before the cut, now that the others are known. Both the floor and the step
 * that matters only rise from slice to slice, so `base` grows: the skyline of fixed blocks, of what the run before
 * left, and of the slices placed again. Those that come after the slice in hand are added to a copy. */
static fx_status look_back(asking *asked, int64_t cut, const place *fixed, int64_t fixed_count, fx_skyline *base,
                           fx_skyline *sky, place *placed) {
    const fx_streams *p = asked->p;
    const int64_t most = p->is_large ? LOOKED_AT_LARGE : LOOKED_AT;
    int64_t entered = 0, looked = 0;
    fx_status status = FX_OK;
    for (int64_t i = 0; i < p->count && placed[i].first <= cut && looked < most && status == FX_OK; i++) {
        place *own = &placed[i];
        const int64_t step = own->last;
        int64_t floor = i ? placed[i - 1].first : placed[p->count - 1].first - p->steps;
        floor = floor > step + 1 - p->steps ? floor : step + 1 - p->steps;
        if (i)
            fx_skyline_raise(base, floor);
        else
            status = begin_again(asked, fixed, fixed_count, floor, base, placed);
        if (status == FX_OK)
            status = enter(asked, base, fixed, fixed_count, step, &entered);
        if (status == FX_OK)
            status = fx_skyline_copy(sky, base);
        looked += fx_skyline_spans(base);
        for (int64_t j = i + 1; j < p->count && placed[j].first <= step && status == FX_OK; j++, looked++)
            status = add(asked, sky, &placed[j], 0);
        int64_t until, bytes = p->bytes[own->slice];
        if (status != FX_OK)
            break;
        int64_t at = find(sky, p, own->slice, own->first - 1, &until);
        if (until >= own->first - 1)
            break;
        *own = (place){at, at + bytes, first_of(p, own, until), step, own->slice};
        status = add(asked, base, own, 0);
    }
    return status;
}

static int sane(const fx_streams *p) {
    if (p->steps < 0 || p->steps > COUNT_MAX || p->arena < 0 || p->arena > BYTES_MAX || p->fixed_count < 0 ||
        p->fixed_count > COUNT_MAX || p->count < 0 || p->count > COUNT_MAX || p->align < 1 || p->align > BYTES_MAX ||
        (p->align & (p->align - 1)))
        return 0;
    for (int64_t i = 0; i < p->fixed_count; i++)
        if (p->fixed_start[i] < 0 || p->fixed_end[i] < p->fixed_start[i] || p->fixed_end[i] > p->arena ||
            p->fixed_first[i] < 0 || p->fixed_last[i] < p->fixed_first[i] || p->fixed_last[i] >= p->steps)
            return 0;
    for (int64_t i = 0; i < p->count; i++)
        if (p->bytes[i] <= 0 || p->bytes[i] > BYTES_MAX || p->use[i] < (i ? p->use[i - 1] : 0) ||
            p->use[i] >= p->steps || p->forced[i] < -1 || p->forced[i] > BYTES_MAX ||
            (p->stored && (p->stored[i] < -p->steps || p->stored[i] > p->use[i])))
            return 0;
    return 1;
}

fx_status fx_place_streams(const fx_streams *p, int64_t *address, int64_t *wait_steps) {
    if (!sane(p))
        return FX_ERR_PARAMS;
    const size_t fixed_max = 2 * (size_t)p->fixed_count, count = (size_t)p->count;
    place *fixed = malloc((fixed_max + count + 1) * sizeof *fixed);
    int64_t *change = calloc((size_t)p->steps + 1, sizeof *change);
    fx_skyline sky = {.is_tree = p->is_large}, base = {.is_tree = p->is_large};
    asking asked = {p, 0};
    fx_status status = FX_ERR_MEMORY;
    if (fixed && change) {
        place *placed = fixed + fixed_max;
        int64_t cut = fullest_step(p, change), head = 0;
        while (head < p->count && p->use[head] < cut)
            head++;
        for (int64_t i = 0; i < p->count; i++) { /* in the order of the circle, from the cut */
            int64_t slice = (i + head) % p->count;
            placed[i] = (place){0, 0, 0, p->use[slice] + (slice < head ? p->steps : 0), slice};
        }
        const int64_t fixed_count = around(p, cut, change, fixed);
        status = place_from_cut(&asked, cut, fixed, fixed_count, &sky, placed);
        if (status == FX_OK)
            status = look_back(&asked, cut, fixed, fixed_count, &base, &sky, placed);
        for (int64_t i = 0; i < p->count && status == FX_OK; i++) {
            int64_t slice = placed[i].slice;
            address[slice] = placed[i].start;
            wait_steps[slice] = placed[i].first + p->use[slice] - placed[i].last;
        }
    }
    fx_skyline_free(&sky);
    fx_skyline_free(&base);
    free(change);
    free(fixed);
    return status;
}
