/* weights_f32 for all instruction sets. */
#include "load_weights.h"

FX_INLINE void expand(const fx_weights *w, const int wtype) {
    const unsigned char *from = w->from;
    const int is_scaled = fx_weight_forms[wtype].scales > 0;
    fx_v scale[VECTORS], v[VECTORS];
    if (is_scaled)
        load_scales(scale, w->scale, fx_weight_forms[wtype].scales);
    for (int64_t i = 0; i < w->n; i += FX_NR, from += fx_weights_bytes(wtype, FX_NR)) {
        load_weights(v, from, 0, wtype);
        FX_UNROLL for (int j = 0; j < VECTORS; j++)
            fx_store(w->to + i + j * FX_WIDTH, is_scaled ? v[j] * scale[j] : v[j]);
    }
}

/* The first `rows` weights of a group in each channel. */
FX_INLINE float *expand_group(float *to, blocks *b, const int rows, const int wtype) {
    fx_v v[VECTORS];
    begin_group(b, wtype);
    FX_UNROLL for (int i = 0; i < FX_GROUP; i++) {
        if (i == rows)
            break;
        load_scaled(v, b, i, wtype);
        FX_UNROLL for (int j = 0; j < VECTORS; j++) fx_store(to + i * FX_NR + j * FX_WIDTH, v[j]);
    }
    end_group(b, wtype);
    return to + rows * FX_NR;
}

FX_INLINE void expand_blocks(const fx_weights *w, const int wtype) {
    const int64_t rows = w->n / FX_NR, block = fx_weight_forms[wtype].block;
    blocks b = {.from = w->from, .scale = w->scale, .minimum = w->minimum};
    float *to = w->to;
    for (int64_t row = 0; row < rows; row += block) {
        const int64_t end = rows - row < block ? rows - row : block;
        next_block(&b, wtype);
        int64_t i = 0;
        for (; i + FX_GROUP <= end; i += FX_GROUP)
            to = expand_group(to, &b, FX_GROUP, wtype);
        if (i < end)
            to = expand_group(to, &b, (int)(end - i), wtype);
    }
}

#define EXPAND(FORM)                                                                                                   \
    case FX_WTYPE_##FORM:                                                                                              \
        expand_blocks(w, FX_WTYPE_##FORM);                                                                             \
        return;

void FX_SYMBOL(weights_f32)(const fx_weights *w) {
    switch (w->wtype) {
    case FX_WTYPE_F32:
        expand(w, FX_WTYPE_F32);
        return;
    case FX_WTYPE_F16:
        expand(w, FX_WTYPE_F16);
        return;
    case FX_WTYPE_S8:
        expand(w, FX_WTYPE_S8);
        return;
        FX_BLOCK_FORMS(EXPAND)
    }
}
