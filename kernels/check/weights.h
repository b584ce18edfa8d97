/* Panels whose weights are stored in any form (fx_wtype): how the checks fill and read them. */
#ifndef FLEXNN_CHECK_WEIGHTS_H
#define FLEXNN_CHECK_WEIGHTS_H

#include "check.h"
#include "flexnn/half.h"

/* The panels of a case, `weights` weights each. */
typedef struct check_panels {
    fx_panel_layout layout;
    int64_t weights;
    int32_t wtype, sums;
} check_panels;

/* sums: of a convolution's parameters; I32: weights are whole numbers, biases 0 and scales 1. */
static inline check_panels check_panels_of(int32_t act, int32_t wtype, int32_t sums, int64_t weights) {
    return (check_panels){fx_panel_layout_of(act, wtype, weights), weights, wtype, sums};
}

/* Byte `at` of output channel o's panel. */
static inline void *check_panel_at(const check_case *c, check_panels p, int o, int64_t at) {
    return (char *)c->weight + o / FX_NR * p.layout.bytes + at;
}

/* The head of output channel o's panel, at its lane. */
static inline float *check_panel(const check_case *c, check_panels p, int o) {
    return (float *)check_panel_at(c, p, o, 0) + o % FX_NR;
}

/* Weight `at` of output channel o's panel; lanes are in `at`. */
static inline double check_weight(const check_case *c, check_panels p, int o, int64_t at) {
    const void *from = check_panel_at(c, p, o, p.layout.weights);
    const float *scales = check_panel_at(c, p, o, p.layout.scales);
    if (p.wtype == FX_WTYPE_F16)
        return fx_half_to(((const uint16_t *)from)[at]);
    if (p.wtype == FX_WTYPE_S8)
        return (double)((const int8_t *)from)[at] * scales[at % FX_NR];
    return ((const float *)from)[at];
}

static inline void check_set_weight(check_case *c, check_panels p, int o, int64_t at, float value) {
    void *to = check_panel_at(c, p, o, p.layout.weights);
    if (p.sums == FX_DTYPE_I32)
        value = p.wtype == FX_WTYPE_S8 ? check_whole(value, 127) / 127 : check_whole(value, 255);
    if (p.wtype == FX_WTYPE_F16)
        ((uint16_t *)to)[at] = fx_half_from(value);
    else if (p.wtype == FX_WTYPE_S8)
        ((int8_t *)to)[at] = (int8_t)nearbyintf(value * 127);
    else
        ((float *)to)[at] = value;
}

/* Every lane of every panel: heads from [-1, 1), scales so that S8 fills the same range, weights as `fills` says. */
static inline void check_fill_panels(check_case *c, check_panels p, int32_t panels, int fills) {
    const int is_extreme = p.sums == FX_DTYPE_I32 && check_one_in(c, 2);
    for (int32_t i = 0; i < panels; i++) {
        float *head = check_panel(c, p, i * FX_NR), *scales = check_panel_at(c, p, i * FX_NR, p.layout.scales);
        for (int64_t j = 0; j < p.layout.weights / (int64_t)sizeof(float); j++)
            head[j] = p.sums == FX_DTYPE_I32 ? 0 : check_real(c);
        for (int64_t j = 0; j < (p.layout.minimum - p.layout.scales) / (int64_t)sizeof(float); j++)
            scales[j] = p.sums == FX_DTYPE_I32 ? 1 : (1 + scales[j]) / 254;
        for (int64_t at = 0; at < p.weights; at++)
            check_set_weight(c, p, i * FX_NR, at,
                             !fills       ? 0
                             : is_extreme ? -1 + 0.02f * fabsf(check_real(c))
                                          : check_real(c));
    }
}

#endif
