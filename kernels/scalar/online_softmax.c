/* The definition of online_softmax_f32 (rows.h). */
#include "flexnn/kernels.h"

#include <math.h>

void FX_SYMBOL(online_softmax_f32)(const fx_online_softmax *s) {
    float max = *s->max, sum = 0;
    for (int32_t j = 0; j < s->n; j++) {
        s->x[j] = s->x[j] * s->scale + (s->mask ? s->mask[(int64_t)j * s->mask_step] : 0);
        max = s->x[j] > max || s->x[j] != s->x[j] ? s->x[j] : max;
    }
    const float shift = max == -INFINITY ? 0 : max;
    for (int32_t j = 0; j < s->n; j++) {
        s->x[j] = expf(s->x[j] - shift);
        sum += s->x[j];
    }
    *s->factor = max == -INFINITY ? 1 : expf(*s->max - max);
    *s->sum = *s->sum * *s->factor + sum;
    *s->max = max;
}
