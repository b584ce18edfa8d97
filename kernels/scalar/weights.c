/* The definition of weights_f32 (panel.h). */
#include "flexnn/kernels.h"
#include "flexnn/stored_weight.h"

void FX_SYMBOL(weights_f32)(const fx_weights *w) {
    for (int64_t i = 0; i < w->n; i++)
        w->to[i] = fx_widened_scalar(w->from, w->scale, w->minimum, i, w->wtype);
}
