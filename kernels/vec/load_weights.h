/* Stored weights (fx_wtype) as vectors of floats. */
#ifndef FLEXNN_VEC_LOAD_WEIGHTS_H
#define FLEXNN_VEC_LOAD_WEIGHTS_H

#include "simd.h"

#define VECTORS (FX_NR / FX_WIDTH) /* of a panel */

/* The FX_NR weights from `from` on. */
FX_INLINE void load_weights(fx_v *to, const unsigned char *from, const int wtype) {
    if (wtype == FX_WTYPE_F32) {
        FX_UNROLL for (int j = 0; j < VECTORS; j++) to[j] = fx_load((const float *)from + j * FX_WIDTH);
        return;
    }
    if (wtype == FX_WTYPE_F16)
        fx_load_f16(to, from);
    else
        fx_load_s8(to, from);
}

#endif
