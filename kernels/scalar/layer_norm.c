/* The definition of layer_norm_f32 (rows.h): the mean first, then squares of the differences. */
#include "flexnn/kernels.h"

#include <math.h>

#define RUN 256 /* terms summed before they are added to the total: errors stay small */

void FX_SYMBOL(layer_norm_f32)(const fx_layer_norm *l) {
    float mean = 0, variance = 0;
    for (int32_t q0 = 0; !l->is_rms && q0 < l->n; q0 += RUN) {
        float run = 0;
        for (int32_t q = q0; q < l->n && q < q0 + RUN; q++)
            run += l->x[q];
        mean += run;
    }
    mean /= (float)l->n;
    for (int32_t q0 = 0; q0 < l->n; q0 += RUN) {
        float run = 0;
        for (int32_t q = q0; q < l->n && q < q0 + RUN; q++)
            run += (l->x[q] - mean) * (l->x[q] - mean);
        variance += run;
    }
    const float factor = 1 / sqrtf(variance / (float)l->n + l->epsilon);
    for (int32_t q = 0; q < l->n; q++)
        l->y[q] = (l->x[q] - mean) * factor * l->scale[q] + (l->bias ? l->bias[q] : 0);
}
