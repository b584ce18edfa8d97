/* instance_norm_f32 for all instruction sets. */
#include "simd.h"

#define RUN 256 /* terms summed before they are added to the total: errors stay small */

/* N vectors of columns from j on; without FULL the last lanes may be missing. */
FX_INLINE void normalize(const fx_instance_norm *t, int j, const int n, const int full) {
    fx_v mean[4], variance[4], run[4], factor[4], bias[4];
    FX_UNROLL for (int l = 0; l < n; l++) mean[l] = variance[l] = fx_splat(0);
    const float *x = t->x;
    for (int32_t q0 = 0; q0 < t->n; q0 += RUN) {
        FX_UNROLL for (int l = 0; l < n; l++) run[l] = fx_splat(0);
        for (int32_t q = q0; q < t->n && q < q0 + RUN; q++, x += t->step)
            FX_UNROLL for (int l = 0; l < n; l++) {
                const int at = j + l * FX_WIDTH;
                run[l] += full ? fx_load(x + at) : fx_load_below(x, at, t->columns);
            }
        FX_UNROLL for (int l = 0; l < n; l++) mean[l] += run[l];
    }
    FX_UNROLL for (int l = 0; l < n; l++) mean[l] /= (float)t->n;
    x = t->x;
    for (int32_t q0 = 0; q0 < t->n; q0 += RUN) {
        FX_UNROLL for (int l = 0; l < n; l++) run[l] = fx_splat(0);
        for (int32_t q = q0; q < t->n && q < q0 + RUN; q++, x += t->step)
            FX_UNROLL for (int l = 0; l < n; l++) {
                const int at = j + l * FX_WIDTH;
                const fx_v d = (full ? fx_load(x + at) : fx_load_below(x, at, t->columns)) - mean[l];
                run[l] += d * d;
            }
        FX_UNROLL for (int l = 0; l < n; l++) variance[l] += run[l];
    }
    FX_UNROLL for (int l = 0; l < n; l++) {
        const int at = j + l * FX_WIDTH;
        factor[l] = fx_load_below(t->scale, at, t->columns) / fx_sqrt(variance[l] / (float)t->n + t->epsilon);
        bias[l] = fx_load_below(t->bias, at, t->columns);
    }
    float *y = t->y;
    x = t->x;
    for (int32_t q = 0; q < t->n; q++, x += t->step, y += t->step)
        FX_UNROLL for (int l = 0; l < n; l++) {
            const int at = j + l * FX_WIDTH;
            const fx_v v = full ? fx_load(x + at) : fx_load_below(x, at, t->columns);
            fx_store_below(y, at, t->columns, (v - mean[l]) * factor[l] + bias[l]);
        }
}

void FX_SYMBOL(instance_norm_f32)(const fx_instance_norm *t) {
    int j = 0;
    for (; j + 4 * FX_WIDTH <= t->columns; j += 4 * FX_WIDTH)
        normalize(t, j, 4, 1);
    for (; j < t->columns; j += FX_WIDTH)
        normalize(t, j, 1, j + FX_WIDTH <= t->columns);
}
