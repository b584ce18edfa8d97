/* The definition of softmax_f32 (kernels.h). */
#include "flexnn/kernels.h"

#include <math.h>

void FX_SYMBOL(softmax_f32)(const fx_softmax *s) {
    for (int64_t i = 0; i < (int64_t)s->columns * s->rows; i++) {
        const int64_t at = s->step == 1 ? i * s->n : i;
        const float *x = s->x + at;
        float *y = s->y + at, max = -INFINITY, sum = 0;
        for (int32_t q = 0; q < s->n; q++) {
            const float v = x[q * s->step];
            max = v > max || v != v ? v : max;
        }
        for (int32_t q = 0; q < s->n; q++) {
            const float v = x[q * s->step] - max, e = expf(v);
            y[q * s->step] = s->log ? v : e;
            sum += e;
        }
        const float logarithm = logf(sum), scale = 1 / sum;
        for (int32_t q = 0; q < s->n; q++)
            y[q * s->step] = s->log ? y[q * s->step] - logarithm : y[q * s->step] * scale;
    }
}
