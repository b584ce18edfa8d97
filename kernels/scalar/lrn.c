/* The definition of lrn_f32 (kernels.h). */
#include "flexnn/kernels.h"

#include <math.h>

void FX_SYMBOL(lrn_f32)(const fx_lrn *l) {
    for (int32_t j = 0; j < l->channels; j++) {
        float sum = 0;
        for (int32_t i = j; i < j + l->taps; i++)
            sum += l->padded[i] * l->padded[i];
        l->y[j] = l->padded[j + l->before] * powf(l->bias + l->scale * sum, -l->beta);
    }
}
