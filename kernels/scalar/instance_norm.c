/* The definition of instance_norm_f32 (kernels.h): the mean first, then squares of the differences. */
#include "flexnn/kernels.h"

#include <math.h>

#define RUN 256 /* terms summed before they are added to the total: errors stay small */

void FX_SYMBOL(instance_norm_f32)(const fx_instance_norm *t) {
    for (int32_t j = 0; j < t->columns; j++) {
        const float *x = t->x + j;
        float mean = 0, variance = 0;
        for (int32_t q0 = 0; q0 < t->n; q0 += RUN) {
            float run = 0;
            for (int32_t q = q0; q < t->n && q < q0 + RUN; q++)
                run += x[q * t->step];
            mean += run;
        }
        mean /= (float)t->n;
        for (int32_t q0 = 0; q0 < t->n; q0 += RUN) {
            float run = 0;
            for (int32_t q = q0; q < t->n && q < q0 + RUN; q++)
                run += (x[q * t->step] - mean) * (x[q * t->step] - mean);
            variance += run;
        }
        const float factor = t->scale[j] / sqrtf(variance / (float)t->n + t->epsilon);
        for (int32_t q = 0; q < t->n; q++)
            t->y[q * t->step + j] = (x[q * t->step] - mean) * factor + t->bias[j];
    }
}
