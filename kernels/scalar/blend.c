/* The definition of blend_f32 (kernels.h). */
#include "flexnn/kernels.h"

void FX_SYMBOL(blend_f32)(const fx_blend *b) {
    for (int32_t i = 0; i < b->pixels; i++)
        for (int32_t j = 0; j < b->channels; j++) {
            float sum = 0;
            for (int32_t t = 0; t < b->taps; t++)
                sum += b->share[i * (int64_t)b->taps + t] * b->x[b->at[i * (int64_t)b->taps + t] + j];
            b->y[i * b->y_pixel + j] = sum;
        }
}
