/* When places, as of the arena, were last touched; asked for targets alone that are known before, as those of loads. */
#ifndef FLEXNN_ENGINE_LAST_TOUCH_H
#define FLEXNN_ENGINE_LAST_TOUCH_H

#include "touches.h"

/* A binary tree over the stretches into which the targets cut the places: leaf i lies between
 * edges[i] and edges[i + 1]. The children of node k are 2k and 2k + 1, the root is 1. */
typedef struct fx_last_touch {
    int64_t *edges;
    uint32_t *whole; /* last time at which all of a node was touched at once */
    uint32_t *any;   /* last time at which any leaf of it was, and no node above it at once */
    int64_t edge_count, first_leaf;
} fx_last_touch;

/* FX_OK or FX_ERR_MEMORY. There are targets. */
fx_status fx_last_touch_make(fx_last_touch *t, const fx_range *targets, int64_t count);
void fx_last_touch_free(fx_last_touch *t);
/* Notes that a range is touched. Times are above 0. */
void fx_last_touch_note(fx_last_touch *t, fx_range range, uint32_t time);
/* Last time at which a byte of a target was touched; 0: never. */
uint32_t fx_last_touch_of(const fx_last_touch *t, fx_range target);

#endif
