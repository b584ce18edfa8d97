/* One stored weight as a float. */
#ifndef FLEXNN_STORED_WEIGHT_H
#define FLEXNN_STORED_WEIGHT_H

#include "flexnn/half.h"
#include "flexnn/weight_form.h"

/* Integer `row` of channel `lane` of less than 8 bits, without a sign. */
static inline int32_t fx_packed_scalar(const void *from, int64_t row, int64_t lane, int32_t bits) {
    const int32_t upper = bits - 4, groups = fx_groups_of(bits);
    const int64_t group = row / FX_GROUP % groups, i = row % FX_GROUP;
    const uint32_t *at = (const uint32_t *)from + row / FX_GROUP / groups * (groups + (upper > 0)) * FX_NR + lane;
    const uint32_t low = at[group * FX_NR] >> 4 * i & 15;
    const uint32_t high = upper ? at[groups * FX_NR] >> (4 * i + upper * group) & ((1u << upper) - 1) : 0;
    return (int32_t)(low | high << 4);
}

/* Weight i of a panel as it is stored: without scale and minimum. */
static inline float fx_weight_scalar(const void *from, int64_t i, int32_t wtype) {
    if (wtype == FX_WTYPE_F32)
        return ((const float *)from)[i];
    if (wtype == FX_WTYPE_F16)
        return (float)fx_half_to(((const uint16_t *)from)[i]);
    if (fx_weight_forms[wtype].bits == 8)
        return (float)((const int8_t *)from)[i];
    const int32_t bits = fx_weight_forms[wtype].bits, whole = fx_packed_scalar(from, i / FX_NR, i % FX_NR, bits);
    return (float)(fx_weight_forms[wtype].minimum || whole < 1 << (bits - 1) ? whole : whole - (1 << bits));
}

/* Number i of scales or minima of `bytes` bytes each. */
static inline float fx_scale_scalar(const void *from, int64_t i, int32_t bytes) {
    return bytes == 2 ? (float)fx_half_to(((const uint16_t *)from)[i]) : ((const float *)from)[i];
}

/* What a weight's integer is multiplied by, and what is added then. */
typedef struct fx_scaling {
    float scale, minimum;
} fx_scaling;

/* Those of weight `row` of channel `lane` in a form with double blocks, from what a panel's weights share. */
static inline fx_scaling fx_shared_scaling(const void *from, int64_t row, int64_t lane, int32_t wtype) {
    const fx_weight_form form = fx_weight_forms[wtype];
    const char *shared = (const char *)from + row / form.shared * fx_shared_bytes(wtype);
    const int64_t block = row % form.shared / form.block;
    const float factor = fx_scale_scalar(shared, lane, 2);
    if (!form.minimum)
        return (fx_scaling){factor * ((const int8_t *)shared)[(2 + block) * FX_NR + lane], -0.0f};
    const float least = fx_scale_scalar(shared, FX_NR + lane, 2);
    return (fx_scaling){factor * (float)fx_packed_scalar(shared + 4 * FX_NR, block, lane, 6),
                        -least * (float)fx_packed_scalar(shared + 4 * FX_NR, 8 + block, lane, 6)};
}

/* Those of weight i of a panel; `scale` and `minimum` where its form has some. */
static inline fx_scaling fx_scaling_of(const void *scale, const void *minimum, int64_t i, int32_t wtype) {
    const fx_weight_form form = fx_weight_forms[wtype];
    const int64_t row = i / FX_NR, lane = i % FX_NR, at = (form.block ? row / form.block * FX_NR : 0) + lane;
    if (form.shared)
        return fx_shared_scaling(scale, row, lane, wtype);
    return (fx_scaling){form.scales ? fx_scale_scalar(scale, at, form.scales) : 1,
                        form.minimum ? fx_scale_scalar(minimum, at, form.minimum) : -0.0f};
}

/* Weight i of a panel as a float; `scale` and `minimum` where its form has some. */
static inline float fx_widened_scalar(const void *from, const void *scale, const void *minimum, int64_t i,
                                      int32_t wtype) {
    const fx_scaling s = fx_scaling_of(scale, minimum, i, wtype);
    return fx_weight_scalar(from, i, wtype) * s.scale + s.minimum;
}

#endif
