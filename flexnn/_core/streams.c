/* FlexNN Algorithm 1, "plan weights with preloading", on the circle of runs. The circle is cut at the step where the
 * fixed blocks leave the least memory: pieces used before the cut come last, one run later, so that they may be loaded
 * while the tail of the run before computes. The first pieces after the cut are then placed again, to look back across
 * it. The start of loading never falls from piece to piece: loads have one order.
 *
 * What is known of memory is a skyline over addresses: the last step in which each is in use. */
#include "streams.h"

#include <stdlib.h>

#define COUNT_MAX ((int64_t)1 << 24)
#define BYTES_MAX ((int64_t)1 << 48)

typedef struct span { /* of addresses, from start to the next span's */
    int64_t start, until;
} span;

typedef struct skyline {
    span *spans; /* the last one, at the arena's end, stands for no memory */
    int64_t count, floor;
} skyline;

typedef struct place {
    int64_t start, end, first, last;
    int64_t piece;
} place;

static void clear(skyline *s, int64_t arena, int64_t floor) {
    s->spans[0] = (span){0, floor - 1};
    s->spans[1] = (span){arena, INT64_MAX};
    s->count = 2;
    s->floor = floor;
}

/* Makes a span begin at an address below the arena's end; returns its index. */
static int64_t split(skyline *s, int64_t at) {
    int64_t low = 0, high = s->count - 1; /* spans[low].start <= at < spans[high].start */
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (s->spans[middle].start <= at)
            low = middle;
        else
            high = middle;
    }
    if (s->spans[low].start == at)
        return low;
    for (int64_t i = s->count++; i > low + 1; i--)
        s->spans[i] = s->spans[i - 1];
    s->spans[low + 1] = (span){at, s->spans[low].until};
    return low + 1;
}

static void join(skyline *s) {
    int64_t count = 1;
    for (int64_t i = 1; i < s->count; i++)
        if (s->spans[i].until != s->spans[count - 1].until)
            s->spans[count++] = s->spans[i];
    s->count = count;
}

/* Bytes [start, end) are in use up to a step. */
static void add(skyline *s, int64_t start, int64_t end, int64_t until) {
    if (until < s->floor || start >= end)
        return;
    int64_t from = split(s, start);
    int64_t to = end < s->spans[s->count - 1].start ? split(s, end) : s->count - 1;
    for (int64_t i = from; i < to; i++)
        if (s->spans[i].until < until)
            s->spans[i].until = until;
    join(s);
}

/* What ended before `floor` no longer matters. */
static void raise(skyline *s, int64_t floor) {
    s->floor = floor;
    for (int64_t i = 0; i < s->count; i++)
        if (s->spans[i].until < floor - 1)
            s->spans[i].until = floor - 1;
    join(s);
}

/* Last step in which any of [start, end) is in use; INT64_MAX where it leaves the arena. */
static int64_t in_use(const skyline *s, int64_t start, int64_t end, int64_t first_span) {
    if (start < 0 || end > s->spans[s->count - 1].start)
        return INT64_MAX;
    int64_t until = s->floor - 1;
    while (first_span > 0 && s->spans[first_span].start > start)
        first_span--;
    for (int64_t i = first_span; s->spans[i].start < end; i++)
        if (s->spans[i + 1].start > start && s->spans[i].until > until)
            until = s->spans[i].until;
    return until;
}

/* The best address for a piece; *until: last step in which it is in use (INT64_MAX: there is no room). */
static int64_t find(const skyline *s, const fx_streams *p, int64_t piece, int64_t *until) {
    const int64_t bytes = p->bytes[piece], forced = p->forced[piece], align = p->align;
    if (forced >= 0) {
        *until = in_use(s, forced, forced + bytes, s->count - 1);
        return forced;
    }
    int64_t best = -1;
    *until = INT64_MAX;
    for (int64_t i = 0; i < s->count; i++) {
        int64_t edge = s->spans[i].start;
        int64_t at[2] = {(edge - bytes) & -align, (edge + align - 1) & -align};
        for (int j = 0; j < 2; j++) {
            int64_t now = in_use(s, at[j], at[j] + bytes, i);
            int beyond = p->from_top ? at[j] > best : at[j] < best;
            if (now < *until || (now == *until && now < INT64_MAX && beyond)) {
                *until = now;
                best = at[j];
            }
        }
    }
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

static int by_first(const void *x, const void *y) {
    const place *a = x, *b = y;
    return (a->first > b->first) - (a->first < b->first);
}

/* Fixed blocks of two runs that reach into [cut, cut + steps), in the order of their first step. */
static int64_t around(const fx_streams *p, int64_t cut, place *out) {
    int64_t count = 0;
    for (int64_t i = 0; i < p->fixed_count; i++)
        for (int64_t turn = 0; turn <= p->steps; turn += p->steps) {
            int64_t first = p->fixed_first[i] + turn, last = p->fixed_last[i] + turn;
            if (last >= cut && first < cut + p->steps)
                out[count++] = (place){p->fixed_start[i], p->fixed_end[i], first, last, -1};
        }
    qsort(out, (size_t)count, sizeof *out, by_first);
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
        int64_t until, bytes = p->bytes[own->piece];
        own->start = find(sky, p, own->piece, &until);
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

static void add_if_near(skyline *sky, int64_t start, int64_t end, int64_t first, int64_t last, int64_t step) {
    if (first <= step)
        add(sky, start, end, last);
}

/* Places again the pieces that could start before the cut, now that the others are known. */
static void look_back(const fx_streams *p, int64_t cut, skyline *sky, place *placed) {
    for (int64_t i = 0; i < p->count && placed[i].first <= cut; i++) {
        place *own = &placed[i];
        const int64_t step = own->last;
        int64_t floor = i ? placed[i - 1].first : placed[p->count - 1].first - p->steps;
        floor = floor > step + 1 - p->steps ? floor : step + 1 - p->steps;
        clear(sky, p->arena, floor);
        for (int64_t j = 0; j < p->fixed_count; j++)
            for (int64_t turn = -p->steps; turn <= p->steps; turn += p->steps)
                add_if_near(sky, p->fixed_start[j], p->fixed_end[j], p->fixed_first[j] + turn, p->fixed_last[j] + turn,
                            step);
        for (int64_t j = 0; j < p->count; j++) {
            const place *other = &placed[j];
            if (j != i)
                add_if_near(sky, other->start, other->end, other->first, other->last, step);
            add_if_near(sky, other->start, other->end, other->first - p->steps, other->last - p->steps, step);
        }
        int64_t until, bytes = p->bytes[own->piece];
        int64_t at = find(sky, p, own->piece, &until);
        if (until >= own->first - 1)
            return;
        *own = (place){at, at + bytes, until + 1, step, own->piece};
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
    place *placed = fixed + fixed_max;
    int64_t *change = calloc((size_t)p->steps + 1, sizeof *change);
    skyline sky = {.spans = malloc((2 * (3 * (size_t)p->fixed_count + 2 * count) + 4) * sizeof *sky.spans)};
    fx_status status = FX_ERR_MEMORY;
    if (fixed && change && sky.spans) {
        int64_t cut = fullest_step(p, change), head = 0;
        while (head < p->count && p->use[head] < cut)
            head++;
        for (int64_t i = 0; i < p->count; i++) { /* in the order of the circle, from the cut */
            int64_t piece = (i + head) % p->count;
            placed[i] = (place){0, 0, 0, p->use[piece] + (piece < head ? p->steps : 0), piece};
        }
        status = place_from_cut(p, cut, fixed, around(p, cut, fixed), &sky, placed);
        if (status == FX_OK)
            look_back(p, cut, &sky, placed);
        for (int64_t i = 0; i < p->count && status == FX_OK; i++) {
            int64_t piece = placed[i].piece;
            address[piece] = placed[i].start;
            wait_steps[piece] = placed[i].first + p->use[piece] - placed[i].last;
        }
    }
    free(sky.spans);
    free(change);
    free(fixed);
    return status;
}
