/* Finishing of bytes, as params_bytes.h defines it. */
#ifndef FLEXNN_SCALAR_BYTE_FINISH_H
#define FLEXNN_SCALAR_BYTE_FINISH_H

#include "flexnn/kernels.h"

#include <math.h>

/* v in [lo, hi]; a NaN becomes lo. */
static inline float fx_clamped(float v, float lo, float hi) {
    v = v > lo ? v : lo;
    return v < hi ? v : hi;
}

/* Stores element i of y, of a sum whose factor is `scale`; r: its residual, or NULL. */
static inline void fx_store_scalar(const fx_byte_finish *f, int32_t sum, float scale, float offset, const uint8_t *r,
                                   void *y, int64_t i) {
    if (f->to == FX_DTYPE_F32) {
        ((float *)y)[i] = fx_clamped((float)sum * scale + offset, f->lo, f->hi);
        return;
    }
    const float v = rintf(fx_clamped((float)sum * scale, f->lo, f->hi));
    if (!r) {
        ((uint8_t *)y)[i] = (uint8_t)(f->zero + (int32_t)v);
        return;
    }
    const float u = fmaf(v, f->v_scale, (float)(*r - f->r_zero) * f->r_scale);
    ((uint8_t *)y)[i] = (uint8_t)(f->sum_zero + (int32_t)rintf(fx_clamped(u, f->sum_lo, f->sum_hi)));
}

#endif
