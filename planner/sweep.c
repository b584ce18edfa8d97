/* Placement and gaps by a sweep over time: what is free now is a list of holes in the order of their addresses, so that
 * time and memory grow with the blocks and not with how many of them live together. */
#include "flexnn/place.h"

#include <stdlib.h>
#include <string.h>

typedef struct holes {
    fx_hole *list; /* neighbours do not touch; the last one has no end */
    int64_t count, max;
} holes;

/* Blocks in the order of their first moment (those that live longer first), and of their last. */
typedef struct sweep {
    int32_t *by_first, *by_last;
    holes free;
} sweep;

typedef struct moment {
    int32_t at, then, block;
} moment;

static int by_moment(const void *a, const void *b) {
    const moment *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    if (x->then != y->then)
        return x->then > y->then ? -1 : 1;
    return (x->block > y->block) - (x->block < y->block);
}

static void sort_blocks(const fx_blocks *b, const int32_t *at, moment *moments, int32_t *order) {
    for (int32_t i = 0; i < b->count; i++)
        moments[i] = (moment){at[i], b->last[i], i};
    if (b->count)
        qsort(moments, (size_t)b->count, sizeof *moments, by_moment);
    for (int32_t i = 0; i < b->count; i++)
        order[i] = moments[i].block;
}

static fx_status begin(sweep *s, const fx_blocks *b) {
    const size_t count = (size_t)b->count + 1;
    moment *moments = malloc(count * sizeof *moments);
    s->by_first = malloc(2 * count * sizeof *s->by_first);
    s->free = (holes){malloc((count + 1) * sizeof *s->free.list), 1, b->count + 2};
    if (moments && s->by_first && s->free.list) {
        s->by_last = s->by_first + count;
        sort_blocks(b, b->first, moments, s->by_first);
        sort_blocks(b, b->last, moments, s->by_last);
        s->free.list[0] = (fx_hole){0, INT64_MAX};
    }
    free(moments);
    return moments && s->by_first && s->free.list ? FX_OK : FX_ERR_MEMORY;
}

static void end(sweep *s) {
    free(s->by_first);
    free(s->free.list);
}

/* The first hole that ends after an address. */
static int64_t hole_at(const holes *h, int64_t address) {
    int64_t low = 0, high = h->count - 1;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (h->list[middle].end > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Puts `to` holes in the place of those from `first` to `last`, `last` not included; the caller writes them. */
static void resize(holes *h, int64_t first, int64_t last, int64_t to) {
    memmove(h->list + first + to, h->list + last, (size_t)(h->count - last) * sizeof *h->list);
    h->count += to - (last - first);
}

/* Takes bytes [start, end); 0 if they are not free. */
static int take(holes *h, int64_t start, int64_t end) {
    const int64_t i = hole_at(h, start);
    const fx_hole hole = h->list[i];
    if (start < hole.start || end > hole.end || h->count >= h->max)
        return 0;
    int64_t left = 0;
    resize(h, i, i + 1, (hole.start < start) + (end < hole.end));
    if (hole.start < start)
        h->list[i + left++] = (fx_hole){hole.start, start};
    if (end < hole.end)
        h->list[i + left] = (fx_hole){end, hole.end};
    return 1;
}

/* Gives bytes [start, end) back, which are not free. */
static void give(holes *h, int64_t start, int64_t end) {
    const int64_t i = hole_at(h, start); /* the next one above */
    const int joins_below = i > 0 && h->list[i - 1].end == start, joins_above = h->list[i].start == end;
    const fx_hole whole = {joins_below ? h->list[i - 1].start : start, joins_above ? h->list[i].end : end};
    const int64_t at = i - joins_below;
    resize(h, at, i + joins_above, 1);
    h->list[at] = whole;
}

/* The start of the smallest hole that holds the bytes, the lowest of equal ones. */
static int64_t best_fit(const holes *h, int64_t bytes) {
    int64_t best = h->list[h->count - 1].start, slack = INT64_MAX;
    for (int64_t i = 0; i + 1 < h->count; i++) {
        const int64_t left = h->list[i].end - h->list[i].start - bytes;
        if (left >= 0 && left < slack) {
            best = h->list[i].start;
            slack = left;
        }
    }
    return best;
}

fx_status fx_place_by_time(const fx_blocks *b, int64_t *address) {
    if (!fx_blocks_sane(b))
        return FX_ERR_PARAMS;
    sweep s = {0};
    fx_status status = begin(&s, b);
    for (int32_t n = 0, gone = 0; n < b->count && status == FX_OK; n++) {
        const int32_t i = s.by_first[n];
        for (; b->last[s.by_last[gone]] < b->first[i]; gone++)
            give(&s.free, address[s.by_last[gone]], address[s.by_last[gone]] + b->bytes[s.by_last[gone]]);
        address[i] = best_fit(&s.free, b->bytes[i]);
        status = take(&s.free, address[i], address[i] + b->bytes[i]) ? FX_OK : FX_ERR_PARAMS;
    }
    end(&s);
    return status;
}

static int by_size(const void *a, const void *b) {
    const fx_hole *x = a, *y = b;
    const int64_t left = x->end - x->start, right = y->end - y->start;
    if (left != right)
        return left > right ? -1 : 1;
    return (x->start > y->start) - (x->start < y->start);
}

static int by_start(const void *a, const void *b) {
    const fx_hole *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

/* Appends the holes between the blocks alive: the `most` largest. */
static fx_status list_gaps(const holes *h, int64_t most, fx_gaps *gaps) {
    const int64_t between = h->count - 1, wanted = gaps->count + between;
    if (wanted > gaps->max) {
        const int64_t max = 2 * wanted + 64;
        fx_hole *larger = realloc(gaps->holes, (size_t)max * sizeof *larger);
        if (!larger)
            return FX_ERR_MEMORY;
        gaps->holes = larger;
        gaps->max = max;
    }
    fx_hole *own = gaps->holes + gaps->count;
    if (between)
        memcpy(own, h->list, (size_t)between * sizeof *own);
    if (between > most) {
        qsort(own, (size_t)between, sizeof *own, by_size);
        qsort(own, (size_t)most, sizeof *own, by_start);
    }
    gaps->count += between < most ? between : most;
    return FX_OK;
}

fx_status fx_place_gaps(const fx_blocks *b, const int64_t *address, int32_t moments, int64_t most, int64_t *first,
                        int64_t *top, fx_gaps *gaps) {
    if (!fx_blocks_sane(b) || moments < 0 || most < 0)
        return FX_ERR_PARAMS;
    for (int32_t i = 0; i < b->count; i++)
        if (b->last[i] >= moments || address[i] < 0 || address[i] > INT64_MAX - 1 - b->bytes[i])
            return FX_ERR_PARAMS;
    sweep s = {0};
    fx_status status = begin(&s, b);
    for (int32_t m = 0, began = 0, gone = 0; m < moments && status == FX_OK; m++) {
        for (; gone < b->count && b->last[s.by_last[gone]] < m; gone++)
            give(&s.free, address[s.by_last[gone]], address[s.by_last[gone]] + b->bytes[s.by_last[gone]]);
        for (; began < b->count && b->first[s.by_first[began]] == m && status == FX_OK; began++) {
            const int32_t i = s.by_first[began];
            status = take(&s.free, address[i], address[i] + b->bytes[i]) ? FX_OK : FX_ERR_PARAMS;
        }
        first[m] = gaps->count;
        top[m] = s.free.list[s.free.count - 1].start;
        if (status == FX_OK)
            status = list_gaps(&s.free, most, gaps);
        first[m + 1] = gaps->count;
    }
    end(&s);
    return status;
}
