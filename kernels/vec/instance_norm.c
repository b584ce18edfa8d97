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

/* Means over the rows of x less `offset`, squared or not, where a vector holds several whole rows: lane l is of column
 * l modulo columns. */
FX_INLINE void means_of_rows(const fx_instance_norm *t, fx_v offset, const int squared, float *lanes) {
    const int64_t count = (int64_t)t->n * t->columns, whole = count - count % FX_WIDTH;
    float offsets[FX_WIDTH];
    fx_v sum = fx_splat(0);
    for (int64_t k0 = 0; k0 < whole; k0 += RUN * FX_WIDTH) {
        fx_v run = fx_splat(0);
        for (int64_t k = k0; k < whole && k < k0 + RUN * FX_WIDTH; k += FX_WIDTH) {
            const fx_v d = fx_load(t->x + k) - offset;
            run += squared ? d * d : d;
        }
        sum += run;
    }
    fx_store(lanes, sum);
    fx_store(offsets, offset);
    for (int64_t k = whole; k < count; k++) {
        const float d = t->x[k] - offsets[k - whole];
        lanes[k - whole] += squared ? d * d : d;
    }
    for (int j = 0; j < t->columns; j++) {
        float total = 0;
        for (int l = j; l < FX_WIDTH; l += t->columns)
            total += lanes[l];
        for (int l = j; l < FX_WIDTH; l += t->columns)
            lanes[l] = total / (float)t->n;
    }
}

/* Columns of which several rows fill a vector: the one group of a GroupNorm is a single column of a whole picture. */
FX_INLINE void normalize_rows(const fx_instance_norm *t) {
    const int64_t count = (int64_t)t->n * t->columns, whole = count - count % FX_WIDTH;
    float means[FX_WIDTH], factors[FX_WIDTH], biases[FX_WIDTH];
    means_of_rows(t, fx_splat(0), 0, means);
    const fx_v mean = fx_load(means);
    means_of_rows(t, mean, 1, factors);
    const fx_v deviation = fx_sqrt(fx_load(factors) + t->epsilon);
    for (int l = 0; l < FX_WIDTH; l++)
        factors[l] = t->scale[l % t->columns], biases[l] = t->bias[l % t->columns];
    const fx_v factor = fx_load(factors) / deviation, bias = fx_load(biases);
    fx_store(factors, factor);
    for (int64_t k = 0; k < whole; k += FX_WIDTH)
        fx_store(t->y + k, (fx_load(t->x + k) - mean) * factor + bias);
    for (int64_t k = whole; k < count; k++)
        t->y[k] = (t->x[k] - means[k - whole]) * factors[k - whole] + biases[k - whole];
}

void FX_SYMBOL(instance_norm_f32)(const fx_instance_norm *t) {
    if (t->step == t->columns && t->columns < FX_WIDTH && FX_WIDTH % t->columns == 0) {
        normalize_rows(t);
        return;
    }
    int j = 0;
    for (; j + 4 * FX_WIDTH <= t->columns; j += 4 * FX_WIDTH)
        normalize(t, j, 4, 1);
    for (; j < t->columns; j += FX_WIDTH)
        normalize(t, j, 1, j + FX_WIDTH <= t->columns);
}
