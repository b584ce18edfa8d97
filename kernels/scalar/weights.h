/* One stored weight as a float. */
#ifndef FLEXNN_SCALAR_WEIGHTS_H
#define FLEXNN_SCALAR_WEIGHTS_H

#include "flexnn/half.h"
#include "flexnn/kernels.h"

static inline float fx_weight_scalar(const void *from, int64_t i, int32_t wtype) {
    if (wtype == FX_WTYPE_F16)
        return (float)fx_half_to(((const uint16_t *)from)[i]);
    return wtype == FX_WTYPE_S8 ? (float)((const int8_t *)from)[i] : ((const float *)from)[i];
}

#endif
