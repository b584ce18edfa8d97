/* pool_f32 for all instruction sets. Four vectors of channels at a time, so that each tap is read in whole cache lines
 * and four chains hide the latency. */
#include "simd.h"

#include <math.h>

/* N vectors of channels from j on; without FULL the last ones may be missing. */
FX_INLINE void pool_max(const fx_pool *p, int j, const int n, const int full) {
    fx_v max[4];
    FX_UNROLL for (int l = 0; l < n; l++) max[l] = fx_splat(-INFINITY);
    for (int32_t r = 0; r < p->rows; r++) {
        const float *x = p->x + r * p->x_row;
        for (int32_t i = 0; i < p->pixels; i++, x += p->x_pixel)
            FX_UNROLL for (int l = 0; l < n; l++) {
                const int at = j + l * FX_WIDTH;
                max[l] = fx_max_nan(max[l], full ? fx_load(x + at) : fx_load_below(x, at, p->channels));
            }
    }
    FX_UNROLL for (int l = 0; l < n; l++) fx_store_below(p->y, j + l * FX_WIDTH, p->channels, max[l]);
}

FX_INLINE void pool_avg(const fx_pool *p, int j, const int n, const int full) {
    fx_v sum[4];
    FX_UNROLL for (int l = 0; l < n; l++) sum[l] = fx_splat(0);
    for (int32_t r = 0; r < p->rows; r++) {
        const float *x = p->x + r * p->x_row;
        fx_v row[4];
        FX_UNROLL for (int l = 0; l < n; l++) row[l] = fx_splat(0);
        for (int32_t i = 0; i < p->pixels; i++, x += p->x_pixel)
            FX_UNROLL for (int l = 0; l < n; l++) {
                const int at = j + l * FX_WIDTH;
                row[l] += full ? fx_load(x + at) : fx_load_below(x, at, p->channels);
            }
        FX_UNROLL for (int l = 0; l < n; l++) sum[l] += row[l];
    }
    FX_UNROLL for (int l = 0; l < n; l++) fx_store_below(p->y, j + l * FX_WIDTH, p->channels, sum[l] * p->scale);
}

void FX_SYMBOL(pool_f32)(const fx_pool *p) {
    int j = 0;
    if (p->kind == FX_POOL_MAX) {
        for (; j + 4 * FX_WIDTH <= p->channels; j += 4 * FX_WIDTH)
            pool_max(p, j, 4, 1);
        for (; j < p->channels; j += FX_WIDTH)
            pool_max(p, j, 1, j + FX_WIDTH <= p->channels);
    } else {
        for (; j + 4 * FX_WIDTH <= p->channels; j += 4 * FX_WIDTH)
            pool_avg(p, j, 4, 1);
        for (; j < p->channels; j += FX_WIDTH)
            pool_avg(p, j, 1, j + FX_WIDTH <= p->channels);
    }
}
