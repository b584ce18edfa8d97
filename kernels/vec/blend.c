/* blend_f32 for all instruction sets. */
#include "simd.h"

/* n vectors of one pixel's channels from j on. */
FX_INLINE void blend(const fx_blend *b, const int64_t *at, const float *share, float *y, int32_t j, const int n) {
    fx_v sum[4];
    FX_UNROLL for (int i = 0; i < n; i++) sum[i] = fx_splat(0);
    for (int32_t t = 0; t < b->taps; t++) {
        const float *x = b->x + at[t] + j;
        const fx_v s = fx_splat(share[t]);
        FX_UNROLL for (int i = 0; i < n; i++) sum[i] += fx_load(x + i * FX_WIDTH) * s;
    }
    FX_UNROLL for (int i = 0; i < n; i++) fx_store(y + j + i * FX_WIDTH, sum[i]);
}

void FX_SYMBOL(blend_f32)(const fx_blend *b) {
    const int64_t *at = b->at;
    const float *share = b->share;
    float *y = b->y;
    for (int32_t i = 0; i < b->pixels; i++, at += b->taps, share += b->taps, y += b->y_pixel) {
        int32_t j = 0;
        for (; j + 4 * FX_WIDTH <= b->channels; j += 4 * FX_WIDTH)
            blend(b, at, share, y, j, 4);
        for (; j + FX_WIDTH <= b->channels; j += FX_WIDTH)
            blend(b, at, share, y, j, 1);
        for (; j < b->channels; j++) {
            float sum = 0;
            for (int32_t t = 0; t < b->taps; t++)
                sum += b->x[at[t] + j] * share[t];
            y[j] = sum;
        }
    }
}
