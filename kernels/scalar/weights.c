/* The definition of weights_f32 (panel.h). */
#include "weights.h"

void FX_SYMBOL(weights_f32)(const fx_weights *w) {
    for (int64_t i = 0; i < w->n; i++)
        w->to[i] =
            fx_weight_scalar(w->from, i, w->wtype) * (fx_weight_forms[w->wtype].scales ? w->scale[i % FX_NR] : 1);
}
