/* The definition of fx_finish (panel.h). */
#ifndef FLEXNN_SCALAR_FINISH_H
#define FLEXNN_SCALAR_FINISH_H

#include "flexnn/kernels.h"

/* slope: the channel's, of PRELU and LEAKY_RELU. */
static inline float fx_finish_scalar(const fx_finish *f, float v, const float *residual, float slope) {
    if (residual)
        v += *residual;
    switch (f->act) {
    case FX_ACT_NONE:
    case FX_ACT_RELU:
    case FX_ACT_CLIP:
        v = v < f->lo ? f->lo : v;
        return v > f->hi ? f->hi : v;
    case FX_ACT_LEAKY_RELU:
    case FX_ACT_PRELU:
        return v < 0 ? slope * v : v;
    default:
        return v;
    }
}

#endif
