/* layer_norm_f32 for all instruction sets. */
#include "simd.h"

#include <math.h>

#define CHAINS 4
#define RUN (64 * CHAINS * FX_WIDTH) /* terms summed before they are added to the total: errors stay small */

/* The sum of x[q] - mean, or of its squares; mean is that of a row without missing lanes. */
FX_INLINE float sum_of(const float *x, int32_t n, fx_v mean, const int squares) {
    float total = 0;
    for (int32_t q0 = 0; q0 < n; q0 += RUN) {
        const int32_t q1 = n - q0 < RUN ? n : q0 + RUN;
        fx_v sum[CHAINS];
        FX_UNROLL for (int l = 0; l < CHAINS; l++) sum[l] = fx_splat(0);
        int32_t q = q0;
        for (; q + CHAINS * FX_WIDTH <= q1; q += CHAINS * FX_WIDTH)
            FX_UNROLL for (int l = 0; l < CHAINS; l++) {
                const fx_v v = fx_load(x + q + l * FX_WIDTH) - mean;
                sum[l] += squares ? v * v : v;
            }
        for (; q + FX_WIDTH <= q1; q += FX_WIDTH) {
            const fx_v v = fx_load(x + q) - mean;
            sum[0] += squares ? v * v : v;
        }
        if (q < q1) {
            const fx_v v = fx_first(fx_load_part(x + q, q1 - q) - mean, q1 - q, fx_splat(0));
            sum[1] += squares ? v * v : v;
        }
        total += fx_lanes_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
    }
    return total;
}

void FX_SYMBOL(layer_norm_f32)(const fx_layer_norm *l) {
    const int32_t n = l->n;
    const fx_v mean = fx_splat(l->is_rms ? 0 : sum_of(l->x, n, fx_splat(0), 0) / (float)n);
    const fx_v factor = fx_splat(1 / sqrtf(sum_of(l->x, n, mean, 1) / (float)n + l->epsilon));
    int32_t q = 0;
    if (l->bias)
        for (; q + FX_WIDTH <= n; q += FX_WIDTH)
            fx_store(l->y + q, (fx_load(l->x + q) - mean) * factor * fx_load(l->scale + q) + fx_load(l->bias + q));
    else
        for (; q + FX_WIDTH <= n; q += FX_WIDTH)
            fx_store(l->y + q, (fx_load(l->x + q) - mean) * factor * fx_load(l->scale + q));
    if (q == n)
        return;
    const fx_v v = (fx_load_part(l->x + q, n - q) - mean) * factor * fx_load_part(l->scale + q, n - q);
    fx_store_part(l->y + q, l->bias ? v + fx_load_part(l->bias + q, n - q) : v, n - q);
}
