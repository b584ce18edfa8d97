/* FlexNN Algorithm 1, "plan weights with preloading", on the circle of runs. The circle is cut at the step where the
 * fixed blocks leave the least memory: slices used before the cut come last, one run later, so that they may be loaded
 * while the tail of the run before computes. The first slices after the cut are then placed again, to look back across
 * it. The start of loading never falls from slice to slice: loads have one order.
 *
 * What is known of memory is a skyline over addresses: the last step in which each is in use. */
#include "flexnn/streams.h"

#include <stdlib.h>
#include <string.h>

#define COUNT_MAX ((int64_t)1 << 24)
#define BYTES_MAX ((int64_t)1 << 48)

typedef struct span { /* of addresses, from start to the next span's */
    int64_t start, until;
} span;

typedef struct skyline {
    span *spans; /* neighbours differ; the last one, at the arena's end, has no memory */
    span *made;  /* of the same length: what spans become */
    int64_t count, floor;
} skyline;

typedef struct place {
    int64_t start, end, first, last;
    int64_t slice;
} place;

static void clear(skyline *s, int64_t arena, int64_t floor) {
    s->spans[0] = (span){0, floor - 1};
    s->spans[1] = (span){arena, INT64_MAX};
    s->count = 2;
    s->floor = floor;
}

/* The span that holds an address below the arena's end. */
static int64_t span_at(const skyline *s, int64_t at) {
    int64_t found = 0;
    for (int64_t left = s->count - 1; left > 1;) { /* it is one of the `left` from `found` on */
        const int64_t half = left / 2;
        found += s->spans[found + half].start <= at ? half : 0;
        left -= half;
    }
    return found;
}

/* Marks bytes [start, end) as in use up to a step. */
static void add(skyline *s, int64_t start, int64_t end, int64_t until) {
    const int64_t arena = s->spans[s->count - 1].start;
    end = end < arena ? end : arena;
    if (until < s->floor || start >= end)
        return;
    const int64_t first = span_at(s, start);
    int64_t count = 0, last = first, now = first ? s->spans[first - 1].until : INT64_MIN;
    if (s->spans[first].start < start) {
        now = s->spans[first].until;
        s->made[count++] = s->spans[first];
    }
    for (int64_t at = start;; at = s->spans[++last].start) {
        const int64_t used = s->spans[last].until > until ? s->spans[last].until : until;
        if (used != now)
            s->made[count++] = (span){at, used};
        now = used;
        if (s->spans[last + 1].start >= end)
            break;
    }
    if (end < s->spans[last + 1].start && s->spans[last].until != now) {
        now = s->spans[last].until;
        s->made[count++] = (span){end, now};
    }
    const int64_t rest = s->spans[last + 1].until == now ? last + 2 : last + 1, to = first + count;
    if (to != rest) {
        memmove(s->spans + to, s->spans + rest, (size_t)(s->count - rest) * sizeof *s->spans);
        s->count += to - rest;
    }
    for (int64_t i = 0; i < count; i++)
        s->spans[first + i] = s->made[i];
}

/* Raises the floor: uses that end before it no longer matter. */
static void raise(skyline *s, int64_t floor) {
    int64_t count = 0;
    s->floor = floor;
    for (int64_t i = 0; i < s->count; i++) {
        const int64_t until = s->spans[i].until < floor - 1 ? floor - 1 : s->spans[i].until;
        if (!count || until != s->spans[count - 1].until)
            s->spans[count++] = (span){s->spans[i].start, until};
    }
    s->count = count;
}

/* The last step in which any byte of [start, end) is in use, at least `until`; stops early once it is after `enough`.
 * No span from `beyond` on reaches into the range. */
static int64_t used_below(const span *spans, int64_t start, int64_t end, int64_t beyond, int64_t until,
                          int64_t enough) {
    for (int64_t i = beyond - 1; i >= 0 && spans[i + 1].start > start && until <= enough; i--)
        if (spans[i].start < end && spans[i].until > until)
            until = spans[i].until;
    return until;
}

/* The same; no span before `first` reaches into the range. */
static int64_t used_above(const span *spans, int64_t start, int64_t end, int64_t first, int64_t until, int64_t enough) {
    for (int64_t i = first; spans[i].start < end && until <= enough; i++)
        if (spans[i + 1].start > start && spans[i].until > until)
            until = spans[i].until;
    return until;
}

/* The best address for a slice; *until: last step in which it is in use (INT64_MAX: there is no room). Spans are
 * visited from the preferred end, so the first place that nothing uses is the best. */
static int64_t find(const skyline *s, const fx_streams *p, int64_t slice, int64_t *until) {
    const int64_t bytes = p->bytes[slice], forced = p->forced[slice], align = p->align, none = s->floor - 1;
    const int64_t count = s->count, arena = s->spans[count - 1].start, from_top = p->from_top;
    const span *spans = s->spans;
    int64_t best = -1, least = INT64_MAX;
    if (forced >= 0) {
        *until =
            forced + bytes <= arena ? used_below(spans, forced, forced + bytes, count - 1, none, INT64_MAX) : least;
        return forced;
    }
    for (int64_t n = 0; n < count && least > none; n++) {
        const int64_t i = from_top ? count - 1 - n : n, edge = spans[i].start;
        const int64_t above = (edge + align - 1) & -align, below = (edge - bytes) & -align;
        if (above + bytes <= arena) {
            const int64_t now = used_above(spans, above, above + bytes, i, none, least);
            if (now < least || (now == least && (from_top ? above > best : above < best))) {
                least = now;
                best = above;
            }
        }
        if (below >= 0) {
            const int64_t now = used_below(spans, below, below + bytes, i, none, least);
            if (now < least || (now == least && (from_top ? below > best : below < best))) {
                least = now;
                best = below;
            }
        }
    }
    *until = least;
    return best;
}

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

static fx_status place_from_cut(const fx_streams *p, int64_t cut, const place *fixed, int64_t fixed_count, skyline *sky,
                                place *placed) {
    int64_t entered = 0;
    clear(sky, p->arena, cut);
    for (int64_t i = 0; i < p->count; i++) {
        place *own = &placed[i];
        for (; entered < fixed_count && fixed[entered].first <= own->last; entered++)
            add(sky, fixed[entered].start, fixed[entered].end, fixed[entered].last);
        int64_t until, bytes = p->bytes[own->slice];
        own->start = find(sky, p, own->slice, &until);
        if (until >= own->last)
            return FX_ERR_BOUNDS;
        own->end = own->start + bytes;
        own->first = until + 1;
        if (own->first > sky->floor)
            raise(sky, own->first);
        add(sky, own->start, own->end, own->last);
    }
    return FX_OK;
}

static void copy(skyline *to, const skyline *from) {
    memcpy(to->spans, from->spans, (size_t)from->count * sizeof *to->spans);
    to->count = from->count;
    to->floor = from->floor;
}

/* Places again the slices that could start before the cut, now that the others are known. Both the floor and the step
 * that matters only rise from slice to slice, so `base` grows: the skyline of fixed blocks, of what the run before
 * left, and of the slices placed again. Those that come after the slice in hand are added to a copy. */
static void look_back(const fx_streams *p, int64_t cut, const place *fixed, int64_t fixed_count, skyline *base,
                      skyline *sky, place *placed) {
    int64_t entered = 0;
    for (int64_t i = 0; i < p->count && placed[i].first <= cut; i++) {
        place *own = &placed[i];
        const int64_t step = own->last;
        int64_t floor = i ? placed[i - 1].first : placed[p->count - 1].first - p->steps;
        floor = floor > step + 1 - p->steps ? floor : step + 1 - p->steps;
        if (i) {
            raise(base, floor);
        } else {
            clear(base, p->arena, floor);
            for (int64_t j = 0; j < fixed_count; j++)
                add(base, fixed[j].start, fixed[j].end, fixed[j].last - p->steps);
            for (int64_t j = p->count; j-- > 0 && placed[j].last - p->steps >= floor;)
                add(base, placed[j].start, placed[j].end, placed[j].last - p->steps);
        }
        for (; entered < fixed_count && fixed[entered].first <= step; entered++)
            add(base, fixed[entered].start, fixed[entered].end, fixed[entered].last);
        copy(sky, base);
        for (int64_t j = i + 1; j < p->count && placed[j].first <= step; j++)
            add(sky, placed[j].start, placed[j].end, placed[j].last);
        int64_t until, bytes = p->bytes[own->slice];
        int64_t at = find(sky, p, own->slice, &until);
        if (until >= own->first - 1)
            return;
        *own = (place){at, at + bytes, until + 1, step, own->slice};
        add(base, own->start, own->end, own->last);
    }
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
            p->use[i] >= p->steps || p->forced[i] < -1 || p->forced[i] > BYTES_MAX)
            return 0;
    return 1;
}

fx_status fx_place_streams(const fx_streams *p, int64_t *address, int64_t *wait_steps) {
    if (!sane(p))
        return FX_ERR_PARAMS;
    const size_t fixed_max = 2 * (size_t)p->fixed_count, count = (size_t)p->count;
    place *fixed = malloc((fixed_max + count + 1) * sizeof *fixed);
    int64_t *change = calloc((size_t)p->steps + 1, sizeof *change);
    const size_t spans = 2 * (fixed_max * 2 + 2 * count) + 4;
    span *memory = malloc(3 * spans * sizeof *memory);
    fx_status status = FX_ERR_MEMORY;
    if (fixed && change && memory) {
        place *placed = fixed + fixed_max;
        skyline sky = {.spans = memory, .made = memory + 2 * spans};
        skyline base = {.spans = memory + spans, .made = memory + 2 * spans};
        int64_t cut = fullest_step(p, change), head = 0;
        while (head < p->count && p->use[head] < cut)
            head++;
        for (int64_t i = 0; i < p->count; i++) { /* in the order of the circle, from the cut */
            int64_t slice = (i + head) % p->count;
            placed[i] = (place){0, 0, 0, p->use[slice] + (slice < head ? p->steps : 0), slice};
        }
        const int64_t fixed_count = around(p, cut, change, fixed);
        status = place_from_cut(p, cut, fixed, fixed_count, &sky, placed);
        if (status == FX_OK)
            look_back(p, cut, fixed, fixed_count, &base, &sky, placed);
        for (int64_t i = 0; i < p->count && status == FX_OK; i++) {
            int64_t slice = placed[i].slice;
            address[slice] = placed[i].start;
            wait_steps[slice] = placed[i].first + p->use[slice] - placed[i].last;
        }
    }
    free(memory);
    free(change);
    free(fixed);
    return status;
}
