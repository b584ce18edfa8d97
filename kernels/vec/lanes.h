/* Across the lanes of a vector of floats. */
#ifndef FLEXNN_VEC_LANES_H
#define FLEXNN_VEC_LANES_H

#include "exp.h"

/* The first n lanes of v, the others from `rest`; n may be FX_WIDTH or more. */
FX_INLINE fx_v fx_first(fx_v v, int n, fx_v rest) {
    static const int32_t numbers[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    fx_vi lane;
    __builtin_memcpy(&lane, numbers, sizeof lane);
    return fx_select(lane < n, v, rest);
}

FX_INLINE float fx_lanes_sum(fx_v v) {
    float part[FX_WIDTH];
    fx_store(part, v);
    for (int n = FX_WIDTH / 2; n; n /= 2)
        for (int i = 0; i < n; i++)
            part[i] += part[i + n];
    return part[0];
}

/* A NaN if any lane is one. */
FX_INLINE float fx_lanes_max(fx_v v) {
    float part[FX_WIDTH], max = -__builtin_inff();
    fx_store(part, v);
    for (int i = 0; i < FX_WIDTH; i++)
        max = part[i] > max || part[i] != part[i] ? part[i] : max;
    return max;
}

#endif
