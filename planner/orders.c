/* Orders in which blocks are placed, and what lives when: see flexnn/place.h. */
#include "flexnn/place.h"

#include <stdlib.h>

/* A block, or a moment, and what it is ordered by: the least first. */
typedef struct ranked {
    int64_t by, then;
    int32_t number;
} ranked;

static int compare(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (x->by != y->by)
        return x->by < y->by ? -1 : 1;
    if (x->then != y->then)
        return x->then < y->then ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

static int32_t moments_of(const fx_blocks *b) {
    int32_t most = -1;
    for (int32_t i = 0; i < b->count; i++)
        most = b->last[i] > most ? b->last[i] : most;
    return most + 1;
}

int64_t fx_blocks_top(const fx_blocks *b, const int64_t *address) {
    int64_t top = 0;
    for (int32_t i = 0; i < b->count; i++)
        top = address[i] + b->bytes[i] > top ? address[i] + b->bytes[i] : top;
    return top;
}

static void sum_up(int64_t *values, int32_t count) {
    for (int32_t i = 1; i < count; i++)
        values[i] += values[i - 1];
}

fx_status fx_blocks_live(const fx_blocks *b, int32_t moments, int64_t *live) {
    if (!fx_blocks_sane(b) || moments_of(b) > moments)
        return FX_ERR_PARAMS;
    for (int32_t i = 0; i < moments; i++)
        live[i] = 0;
    for (int32_t i = 0; i < b->count; i++) {
        live[b->first[i]] += b->bytes[i];
        if (b->last[i] + 1 < moments)
            live[b->last[i] + 1] -= b->bytes[i];
    }
    sum_up(live, moments);
    return FX_OK;
}

fx_status fx_blocks_pairs(const fx_blocks *b, int64_t *pairs) {
    if (!fx_blocks_sane(b))
        return FX_ERR_PARAMS;
    const int32_t moments = moments_of(b);
    int64_t *begun = calloc((size_t)moments + 1, sizeof(int64_t)); /* up to each moment */
    int64_t *ended = calloc((size_t)moments + 1, sizeof(int64_t)); /* before it */
    *pairs = 0;
    for (int32_t i = 0; begun && ended && i < b->count; i++)
        begun[b->first[i]]++, ended[b->last[i] + 1]++;
    if (begun && ended)
        sum_up(begun, moments), sum_up(ended, moments + 1);
    for (int32_t i = 0; begun && ended && i < b->count; i++)
        *pairs += begun[b->last[i]] - ended[b->first[i]];
    *pairs = (*pairs - b->count) / 2;
    const fx_status status = begun && ended ? FX_OK : FX_ERR_MEMORY;
    free(begun), free(ended);
    return status;
}

static void rank_blocks(const fx_blocks *b, fx_order order, ranked *all) {
    for (int32_t i = 0; i < b->count; i++) {
        const int64_t life = (int64_t)b->last[i] - b->first[i] + 1;
        const ranked by[] = {
            [FX_ORDER_LARGE] = {-b->bytes[i], b->first[i], i},
            [FX_ORDER_AREA] = {-b->bytes[i] * life, b->first[i], i},
            [FX_ORDER_TIME] = {b->first[i], -(int64_t)b->last[i], i},
            [FX_ORDER_SHORT] = {life, -b->bytes[i], i},
            [FX_ORDER_LONG] = {-life, -b->bytes[i], i},
        };
        all[i] = by[order];
    }
}

/* Ranks blocks by the moment of their life at which the most bytes live. `rank`: room for a number of each moment. */
static void rank_by_breadth(const fx_blocks *b, int32_t moments, int64_t *rank, ranked *all, ranked *of_moments) {
    for (int32_t m = 0; m < moments; m++)
        of_moments[m] = (ranked){-rank[m], 0, m};
    qsort(of_moments, (size_t)moments, sizeof(ranked), compare);
    for (int32_t m = 0; m < moments; m++)
        rank[of_moments[m].number] = m;
    for (int32_t i = 0; i < b->count; i++) {
        int64_t least = rank[b->first[i]];
        for (int32_t m = b->first[i]; m <= b->last[i]; m++)
            least = rank[m] < least ? rank[m] : least;
        all[i] = (ranked){least, -b->bytes[i], i};
    }
}

fx_status fx_place_order(const fx_blocks *b, fx_order order, int32_t *numbers) {
    if (!fx_blocks_sane(b) || order < 0 || order >= FX_ORDER_COUNT)
        return FX_ERR_PARAMS;
    const int32_t moments = order == FX_ORDER_BREADTH ? moments_of(b) : 0;
    ranked *all = calloc((size_t)b->count + (size_t)moments + 1, sizeof(ranked));
    int64_t *rank = calloc((size_t)moments + 1, sizeof(int64_t));
    const fx_status status = all && rank ? FX_OK : FX_ERR_MEMORY;
    if (status == FX_OK && order == FX_ORDER_BREADTH) {
        fx_blocks_live(b, moments, rank);
        rank_by_breadth(b, moments, rank, all, all + b->count);
    } else if (status == FX_OK)
        rank_blocks(b, order, all);
    if (status == FX_OK)
        qsort(all, (size_t)b->count, sizeof(ranked), compare);
    for (int32_t i = 0; status == FX_OK && i < b->count; i++)
        numbers[i] = all[i].number;
    free(all), free(rank);
    return status;
}
