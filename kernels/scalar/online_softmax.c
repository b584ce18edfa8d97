/* The definition of online_softmax_f32 (rows.h). */
#include "flexnn/kernels.h"

#include <math.h>

static void one_row(const fx_online_softmax *s, int32_t i) {
    float *x = s->x + i * s->x_step, max = s->max[i], sum = 0;
    for (int32_t j = 0; j < s->n; j++) {
        x[j] = x[j] * s->scale + (s->mask ? s->mask[(int64_t)j * s->mask_step] : 0);
        max = x[j] > max || x[j] != x[j] ? x[j] : max;
    }
    const float shift = max == -INFINITY ? 0 : max;
    for (int32_t j = 0; j < s->n; j++) {
        x[j] = expf(x[j] - shift);
        sum += x[j];
    }
    s->factor[i] = max == -INFINITY ? 1 : expf(s->max[i] - max);
    s->sum[i] = s->sum[i] * s->factor[i] + sum;
    s->max[i] = max;
}

void FX_SYMBOL(online_softmax_f32)(const fx_online_softmax *s) {
    for (int32_t i = 0; i < s->rows; i++)
        one_row(s, i);
}
