/* Windows that are clipped to a map. */
#ifndef FLEXNN_OPS_CLIP_H
#define FLEXNN_OPS_CLIP_H

#include "conv_common.h"

/* Taps [first, last) of a window at `start` (may be negative) that meet [0, size), in steps of `dilation`. */
static inline void fx_clip(int64_t start, int32_t taps, int32_t dilation, int32_t size, int64_t *first, int64_t *last) {
    *first = start < 0 ? fx_div_up(-start, dilation) : 0;
    *last = start < size ? fx_min64(taps, fx_div_up(size - start, dilation)) : 0;
    *last = fx_max64(*first, *last);
}

#endif
