/* weights_f32 for all instruction sets. */
#include "load_weights.h"

FX_INLINE void expand(const fx_weights *w, const int wtype) {
    const unsigned char *from = w->from;
    const int is_scaled = fx_weight_forms[wtype].scales > 0;
    fx_v scale[VECTORS], v[VECTORS];
    FX_UNROLL for (int j = 0; j < VECTORS; j++) scale[j] = is_scaled ? fx_load(w->scale + j * FX_WIDTH) : fx_splat(1);
    for (int64_t i = 0; i < w->n; i += FX_NR, from += fx_weights_bytes(wtype, FX_NR)) {
        load_weights(v, from, wtype);
        FX_UNROLL for (int j = 0; j < VECTORS; j++)
            fx_store(w->to + i + j * FX_WIDTH, is_scaled ? v[j] * scale[j] : v[j]);
    }
}

void FX_SYMBOL(weights_f32)(const fx_weights *w) {
    if (w->wtype == FX_WTYPE_F16)
        expand(w, FX_WTYPE_F16);
    else if (w->wtype == FX_WTYPE_S8)
        expand(w, FX_WTYPE_S8);
    else
        expand(w, FX_WTYPE_F32);
}
