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

typedef struct placed {
    int64_t start, end;
    int32_t first, last;
} placed;

/* Address of block i, among `count` placed ones in the order of their start. */
static int64_t find_hole(const placed *done, int32_t count, const fx_blocks *b, int32_t i, fx_fit fit, int hangs,
                         int64_t ceiling) {
    const int64_t bytes = b->bytes[i];
    const int32_t first = b->first[i], last = b->last[i];
    int64_t top = 0, best = -1, slack = INT64_MAX, highest = -1;
    for (int32_t n = 0; n < count; n++) {
        const placed *d = &done[n];
        if (d->first > last || d->last < first)
            continue;
        int64_t left = d->start - top - bytes;
        if (left >= 0) {
            highest = d->start - bytes;
            if (fit == FX_FIT_BEST ? left < slack : best < 0) {
                best = top;
                slack = left;
            }
        }
        if (d->end > top)
            top = d->end;
    }
    if (ceiling - top >= bytes)
        highest = ceiling - bytes;
    if (hangs && highest >= 0)
        return highest;
    return best >= 0 ? best : top;
}

fx_status fx_place_in_order(const fx_blocks *b, const int32_t *order, const uint8_t *hangs, int64_t ceiling, fx_fit fit,
                            int64_t *address) {
    if (!fx_blocks_sane(b) || ceiling < 0 || ceiling > BYTES_SUM_MAX)
        return FX_ERR_PARAMS;
    for (int32_t i = 0; i < b->count; i++)
        address[i] = -1;
    placed *done = malloc(((size_t)b->count + 1) * sizeof *done);
    if (!done)
        return FX_ERR_MEMORY;
    fx_status status = FX_OK;
    for (int32_t n = 0; n < b->count; n++) {
        int32_t i = order[n];
        if (i < 0 || i >= b->count || address[i] >= 0) {
            status = FX_ERR_PARAMS;
            break;
        }
        int64_t at = find_hole(done, n, b, i, fit, hangs && hangs[i], ceiling);
        address[i] = at;
        int32_t where = n;
        for (; where > 0 && done[where - 1].start > at; where--)
            done[where] = done[where - 1];
        done[where] = (placed){at, at + b->bytes[i], b->first[i], b->last[i]};
    }
    free(done);
    return status;
}
