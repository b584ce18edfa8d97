/* Stored weights (fx_wtype) as vectors of floats. packed.h has those of 5 and 6 bits, and what double blocks share. */
#ifndef FLEXNN_VEC_LOAD_WEIGHTS_H
#define FLEXNN_VEC_LOAD_WEIGHTS_H

#include "packed.h"

/* The FX_NR weights from `from` on, without scale and minimum; of 4 bits the row-th weights of the group there. */
FX_INLINE void load_weights(fx_v *to, const unsigned char *from, const int row, const int wtype) {
    if (wtype == FX_WTYPE_F32) {
        FX_UNROLL for (int j = 0; j < VECTORS; j++) to[j] = fx_load((const float *)from + j * FX_WIDTH);
        return;
    }
    if (wtype == FX_WTYPE_F16)
        fx_load_f16(to, from);
    else if (fx_weight_forms[wtype].bits == 8)
        fx_load_s8(to, from);
    else
        FX_UNROLL for (int j = 0; j < VECTORS; j++) to[j] =
            fx_nibble(fx_bits(fx_load((const float *)from + j * FX_WIDTH)), row, !fx_weight_forms[wtype].minimum);
}

/* FX_NR scales or minima, `bytes` each, of a block. */
FX_INLINE void load_scales(fx_v *to, const unsigned char *from, const int bytes) {
    if (bytes == (int)sizeof(float))
        FX_UNROLL for (int j = 0; j < VECTORS; j++) to[j] = fx_load((const float *)from + j * FX_WIDTH);
    else
        fx_load_f16(to, from);
}

/* Where in a form with blocks the next weights lie, and the scale and the minimum of their block. */
typedef struct blocks {
    const unsigned char *from, *scale, *minimum;
    fx_v scales[VECTORS], minima[VECTORS];
    int of_shared; /* blocks before the next one that share a factor with it */
    int group;     /* groups before the next one that share upper bits with it */
    fx_vw upper[VECTORS];
} blocks;

FX_INLINE void next_of_shared(blocks *b, const int wtype) {
    load_shared(b->scales, b->minima, b->scale, b->of_shared, wtype);
    if (++b->of_shared == fx_weight_forms[wtype].shared / fx_weight_forms[wtype].block)
        b->of_shared = 0, b->scale += fx_shared_bytes(wtype);
}

FX_INLINE void next_block(blocks *b, const int wtype) {
    const fx_weight_form form = fx_weight_forms[wtype];
    if (form.shared) {
        next_of_shared(b, wtype);
        return;
    }
    load_scales(b->scales, b->scale, form.scales);
    b->scale += FX_NR * form.scales;
    if (form.minimum)
        load_scales(b->minima, b->minimum, form.minimum);
    b->minimum += FX_NR * form.minimum;
}

/* Weight i of FX_GROUP in each channel, as it is stored, of 4 or 8 bits. */
FX_INLINE void load_of_group(fx_v *to, const unsigned char *from, const int i, const int wtype) {
    load_weights(to, fx_weight_forms[wtype].bits == 8 ? from + i * FX_NR : from, i, wtype);
}

#define HAS_UPPER(WTYPE) (fx_weight_forms[WTYPE].bits > 4 && fx_weight_forms[WTYPE].bits < 8)

/* The next FX_GROUP weights are at b->from: they are ready to be loaded. */
FX_INLINE void begin_group(blocks *b, const int wtype) {
    const int bits = fx_weight_forms[wtype].bits;
    if (HAS_UPPER(wtype))
        load_upper(b->upper, b->from + (fx_groups_of(bits) - b->group) * GROUP_BYTES, (bits - 4) * b->group);
}

FX_INLINE void end_group(blocks *b, const int wtype) {
    if (!HAS_UPPER(wtype)) {
        b->from += fx_weights_bytes(wtype, FX_GROUP * FX_NR);
        return;
    }
    b->from += GROUP_BYTES;
    if (++b->group == fx_groups_of(fx_weight_forms[wtype].bits))
        b->group = 0, b->from += GROUP_BYTES;
}

/* Weight i of the group that was begun, as a float. */
FX_INLINE void load_scaled(fx_v *to, const blocks *b, const int i, const int wtype) {
    if (HAS_UPPER(wtype))
        load_packed(to, b->from, b->upper, i, 0, wtype);
    else
        load_of_group(to, b->from, i, wtype);
    FX_UNROLL for (int j = 0; j < VECTORS; j++) to[j] =
        fx_weight_forms[wtype].minimum ? to[j] * b->scales[j] + b->minima[j] : to[j] * b->scales[j];
}

/* FX_X(form) of each form with blocks. */
#define FX_BLOCK_FORMS(FX_X)                                                                                           \
    FX_X(S8B)                                                                                                          \
    FX_X(S8BF)                                                                                                         \
    FX_X(Q4) FX_X(Q4F) FX_X(Q4M) FX_X(Q4MF) FX_X(S8B16F) FX_X(S8MF) FX_X(Q5) FX_X(Q5M) FX_X(Q4K) FX_X(Q5K) FX_X(Q6K)

#endif
