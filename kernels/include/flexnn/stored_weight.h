/* One stored weight as a float. */
#ifndef FLEXNN_STORED_WEIGHT_H
#define FLEXNN_STORED_WEIGHT_H

#include "flexnn/half.h"
#include "flexnn/weight_form.h"

/* Weight i of a panel as it is stored: without scale and minimum. */
static inline float fx_weight_scalar(const void *from, int64_t i, int32_t wtype) {
    if (wtype == FX_WTYPE_F32)
        return ((const float *)from)[i];
    if (wtype == FX_WTYPE_F16)
        return (float)fx_half_to(((const uint16_t *)from)[i]);
    if (fx_weight_forms[wtype].bits == 8)
        return (float)((const int8_t *)from)[i];
    const int64_t row = i / FX_NR, group = row / FX_GROUP;
    const uint32_t lane = ((const uint32_t *)from)[group * FX_NR + i % FX_NR];
    const int32_t nibble = (int32_t)(lane >> 4 * (row % FX_GROUP) & 15);
    return (float)(fx_weight_forms[wtype].minimum || nibble < 8 ? nibble : nibble - 16);
}

/* Number i of scales or minima of `bytes` bytes each. */
static inline float fx_scale_scalar(const void *from, int64_t i, int32_t bytes) {
    return bytes == 2 ? (float)fx_half_to(((const uint16_t *)from)[i]) : ((const float *)from)[i];
}

/* Where the scale of weight i is among the scales. */
static inline int64_t fx_scale_at(int64_t i, int32_t wtype) {
    const int32_t block = fx_weight_forms[wtype].block;
    return (block ? i / FX_NR / block * FX_NR : 0) + i % FX_NR;
}

/* Weight i of a panel as a float; `scale` and `minimum` where its form has some. */
static inline float fx_widened_scalar(const void *from, const void *scale, const void *minimum, int64_t i,
                                      int32_t wtype) {
    const fx_weight_form form = fx_weight_forms[wtype];
    const int64_t at = fx_scale_at(i, wtype);
    float value = fx_weight_scalar(from, i, wtype);
    if (form.scales)
        value *= fx_scale_scalar(scale, at, form.scales);
    return form.minimum ? value + fx_scale_scalar(minimum, at, form.minimum) : value;
}

#endif
