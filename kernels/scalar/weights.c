/* The definition of weights_f32 (panel.h). */
#include "weights.h"

void FX_SYMBOL(weights_f32)(const fx_weights *w) {
    const fx_weight_form form = fx_weight_forms[w->wtype];
    for (int64_t i = 0; i < w->n; i++) {
        const int64_t at = fx_scale_at(i, w->wtype);
        w->to[i] = fx_weight_scalar(w->from, i, w->wtype);
        if (form.scales)
            w->to[i] *= fx_scale_scalar(w->scale, at, form.scales);
        if (form.minimum)
            w->to[i] += fx_scale_scalar(w->minimum, at, form.minimum);
    }
}
