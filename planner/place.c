#include "flexnn/place.h"

#include <stdlib.h>

#define BYTES_SUM_MAX ((int64_t)1 << 60)

int fx_blocks_sane(const fx_blocks *b) {
    if (b->count < 0 || b->count > FX_PLACE_BLOCKS_MAX)
        return 0;
    int64_t sum = 0;
    for (int32_t i = 0; i < b->count; i++) {
        if (b->bytes[i] <= 0 || b->bytes[i] > BYTES_SUM_MAX - sum || b->first[i] < 0 || b->last[i] < b->first[i])
            return 0;
        sum += b->bytes[i];
    }
    return 1;
}

#define BUCKET 32 /* moments */
#define FEW 24    /* blocks */

/* Blocks that have their address, by buckets of time in which they live. */
typedef struct placed {
    const fx_blocks *b;
    const int64_t *address;
    int32_t *at;      /* [buckets + 1] first place of each bucket */
    int32_t *count;   /* [buckets] blocks in it */
    int32_t *members; /* in the order of their addresses */
    int32_t *found;   /* [blocks] */
} placed;

typedef struct hole_search {
    int64_t bytes, ceiling;
    fx_fit fit;
    int hangs;
    int64_t top, best, slack, highest;
} hole_search;

static void pass(hole_search *s, int64_t start, int64_t end) {
    const int64_t left = start - s->top - s->bytes;
    if (left >= 0) {
        s->highest = start - s->bytes;
        if (s->fit == FX_FIT_BEST ? left < s->slack : s->best < 0) {
            s->best = s->top;
            s->slack = left;
        }
    }
    if (end > s->top)
        s->top = end;
}

static int64_t chosen(hole_search *s) {
    if (s->ceiling - s->top >= s->bytes)
        s->highest = s->ceiling - s->bytes;
    if (s->hangs && s->highest >= 0)
        return s->highest;
    return s->best >= 0 ? s->best : s->top;
}

/* Sorts blocks by their addresses: few one by one, else with a heap, as qsort knows nothing of them. */
static void sort_found(const placed *p, int32_t count) {
    int32_t *list = p->found;
    for (int32_t i = 1; count <= FEW && i < count; i++) {
        const int32_t value = list[i];
        int32_t at = i;
        for (; at > 0 && p->address[list[at - 1]] > p->address[value]; at--)
            list[at] = list[at - 1];
        list[at] = value;
    }
    if (count <= FEW)
        return;
    for (int32_t size = count, root = count / 2; size > 1;) {
        int32_t value;
        if (root > 0)
            value = list[--root];
        else {
            value = list[--size];
            list[size] = list[0];
        }
        int32_t at = root;
        for (int32_t child = 2 * at + 1; child < size; child = 2 * at + 1) {
            if (child + 1 < size && p->address[list[child + 1]] > p->address[list[child]])
                child++;
            if (p->address[list[child]] <= p->address[value])
                break;
            list[at] = list[child];
            at = child;
        }
        list[at] = value;
    }
}

/* Address of block i, among those that are placed. */
static int64_t find_hole(const placed *p, int32_t i, hole_search *s) {
    const fx_blocks *b = p->b;
    const int32_t first = b->first[i], last = b->last[i], from = first / BUCKET, to = last / BUCKET;
    int32_t found = 0;
    for (int32_t bucket = from; bucket <= to; bucket++)
        for (int32_t n = p->at[bucket]; n < p->at[bucket] + p->count[bucket]; n++) {
            const int32_t other = p->members[n], begin = b->first[other];
            if (begin > last || b->last[other] < first || (bucket > from && begin / BUCKET < bucket))
                continue; /* apart, or seen in the bucket before */
            if (from == to)
                pass(s, p->address[other], p->address[other] + b->bytes[other]);
            else
                p->found[found++] = other;
        }
    sort_found(p, found);
    for (int32_t n = 0; n < found; n++)
        pass(s, p->address[p->found[n]], p->address[p->found[n]] + b->bytes[p->found[n]]);
    return chosen(s);
}

static void add(placed *p, int32_t i) {
    for (int32_t bucket = p->b->first[i] / BUCKET; bucket <= p->b->last[i] / BUCKET; bucket++) {
        int32_t *list = p->members + p->at[bucket], n = p->count[bucket]++;
        for (; n > 0 && p->address[list[n - 1]] > p->address[i]; n--)
            list[n] = list[n - 1];
        list[n] = i;
    }
}

/* Lays out the buckets. */
static fx_status make(placed *p, const fx_blocks *b, const int64_t *address) {
    int32_t buckets = 1;
    for (int32_t i = 0; i < b->count; i++)
        buckets = b->last[i] / BUCKET + 1 > buckets ? b->last[i] / BUCKET + 1 : buckets;
    *p = (placed){.b = b, .address = address, .at = calloc(2 * (size_t)buckets + 2, sizeof *p->at)};
    if (!p->at)
        return FX_ERR_MEMORY;
    p->count = p->at + buckets + 1;
    int64_t members = 0;
    for (int32_t i = 0; i < b->count; i++) { /* how many begin and end in each */
        p->at[b->first[i] / BUCKET]++;
        p->count[b->last[i] / BUCKET]++;
    }
    for (int32_t bucket = 0, alive = 0; bucket <= buckets; bucket++) {
        const int32_t began = bucket < buckets ? p->at[bucket] : 0, gone = bucket < buckets ? p->count[bucket] : 0;
        if (members > INT32_MAX)
            return FX_ERR_MEMORY;
        p->at[bucket] = (int32_t)members;
        members += alive + began;
        alive += began - gone;
    }
    for (int32_t bucket = 0; bucket < buckets; bucket++)
        p->count[bucket] = 0;
    p->members = malloc(((size_t)members + (size_t)b->count + 1) * sizeof *p->members);
    p->found = p->members + members;
    return p->members ? FX_OK : FX_ERR_MEMORY;
}

fx_status fx_place_in_order(const fx_blocks *b, const int32_t *order, const uint8_t *hangs, int64_t ceiling, fx_fit fit,
                            int64_t *address) {
    if (!fx_blocks_sane(b) || ceiling < 0 || ceiling > BYTES_SUM_MAX)
        return FX_ERR_PARAMS;
    for (int32_t i = 0; i < b->count; i++)
        address[i] = -1;
    placed p;
    fx_status status = make(&p, b, address);
    for (int32_t n = 0; n < b->count && status == FX_OK; n++) {
        const int32_t i = order[n];
        if (i < 0 || i >= b->count || address[i] >= 0) {
            status = FX_ERR_PARAMS;
            break;
        }
        hole_search s = {b->bytes[i], ceiling, fit, hangs && hangs[i], 0, -1, INT64_MAX, -1};
        address[i] = find_hole(&p, i, &s);
        add(&p, i);
    }
    free(p.at);
    free(p.members);
    return status;
}
