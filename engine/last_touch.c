#include "last_touch.h"

#include <stdlib.h>

static int by_place(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Number of edges that are not above a place. */
static int64_t edges_up_to(const fx_last_touch *t, int64_t place) {
    int64_t low = 0, high = t->edge_count;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (t->edges[middle] <= place)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

fx_status fx_last_touch_make(fx_last_touch *t, const fx_range *targets, int64_t count) {
    const size_t most = 2 * (size_t)count;
    size_t leaves = 1;
    while (leaves < most)
        leaves *= 2;
    *t = (fx_last_touch){.edges = calloc(most, sizeof *t->edges),
                         .whole = calloc(2 * leaves, sizeof *t->whole),
                         .any = calloc(2 * leaves, sizeof *t->any),
                         .first_leaf = (int64_t)leaves};
    if (!t->edges || !t->whole || !t->any) {
        fx_last_touch_free(t);
        return FX_ERR_MEMORY;
    }
    for (int64_t i = 0; i < count; i++) {
        t->edges[2 * i] = targets[i].lo;
        t->edges[2 * i + 1] = targets[i].hi;
    }
    qsort(t->edges, most, sizeof *t->edges, by_place);
    for (size_t i = 0; i < most; i++)
        if (!t->edge_count || t->edges[t->edge_count - 1] != t->edges[i])
            t->edges[t->edge_count++] = t->edges[i];
    return FX_OK;
}

void fx_last_touch_free(fx_last_touch *t) {
    free(t->edges);
    free(t->whole);
    free(t->any);
}

/* The leaves that have a byte of a range that is not empty: from *low on, below *high. A target begins and ends at
 * edges, so whatever touches a part of a leaf touches each target that the leaf belongs to. */
static void leaves_of(const fx_last_touch *t, fx_range range, int64_t *low, int64_t *high) {
    const int64_t first = edges_up_to(t, range.lo) - 1, end = edges_up_to(t, range.hi - 1);
    *low = t->first_leaf + (first > 0 ? first : 0);
    *high = t->first_leaf + (end < t->edge_count - 1 ? end : t->edge_count - 1);
}

static uint32_t later(uint32_t a, uint32_t b) {
    return a > b ? a : b;
}

/* Notes that all of a node is touched. */
static void touch(fx_last_touch *t, int64_t node, uint32_t time) {
    t->whole[node] = later(t->whole[node], time);
    t->any[node] = later(t->any[node], time);
}

void fx_last_touch_note(fx_last_touch *t, fx_range range, uint32_t time) {
    int64_t low, high;
    if (range.lo >= range.hi)
        return;
    leaves_of(t, range, &low, &high);
    if (low >= high)
        return;
    for (int64_t i = low, j = high - 1; i; i /= 2, j /= 2)
        t->any[i] = later(t->any[i], time), t->any[j] = later(t->any[j], time);
    for (; low < high; low /= 2, high /= 2) {
        if (low & 1)
            touch(t, low++, time);
        if (high & 1)
            touch(t, --high, time);
    }
}

uint32_t fx_last_touch_of(const fx_last_touch *t, fx_range target) {
    uint32_t time = 0;
    int64_t low, high;
    if (target.lo >= target.hi)
        return 0;
    leaves_of(t, target, &low, &high);
    for (int64_t i = low, j = high - 1; i; i /= 2, j /= 2)
        time = later(time, later(t->whole[i], t->whole[j]));
    for (; low < high; low /= 2, high /= 2) {
        if (low & 1)
            time = later(time, t->any[low++]);
        if (high & 1)
            time = later(time, t->any[--high]);
    }
    return time;
}
