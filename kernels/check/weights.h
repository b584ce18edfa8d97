/* Panels whose weights are stored in any form (fx_wtype): how the checks fill and read them. */
#ifndef FLEXNN_CHECK_WEIGHTS_H
#define FLEXNN_CHECK_WEIGHTS_H

#include "check.h"
#include "flexnn/half.h"

/* A panel: `head` floats (bias, slopes, scales of S8), then weights. */
typedef struct check_panels {
    int64_t head, bytes; /* of a panel */
    int32_t wtype;
} check_panels;

static inline check_panels check_panels_of(int32_t act, int32_t wtype, int64_t weights) {
    const int64_t head = ((act == FX_ACT_PRELU) + (wtype == FX_WTYPE_S8) + 1) * FX_NR;
    const int64_t size = wtype == FX_WTYPE_F32 ? 4 : wtype == FX_WTYPE_F16 ? 2 : 1;
    return (check_panels){head, head * (int64_t)sizeof(float) + weights * size, wtype};
}

/* The head of output channel o's panel, at its lane. */
static inline float *check_panel(const check_case *c, check_panels p, int o) {
    return (float *)((char *)c->weight + o / FX_NR * p.bytes) + o % FX_NR;
}

/* Weight `at` of output channel o's panel; lanes are in `at`. */
static inline double check_weight(const check_case *c, check_panels p, int o, int64_t at) {
    const float *head = (float *)((char *)c->weight + o / FX_NR * p.bytes);
    const void *from = head + p.head;
    if (p.wtype == FX_WTYPE_F16)
        return fx_half_to(((const uint16_t *)from)[at]);
    if (p.wtype == FX_WTYPE_S8)
        return (double)((const int8_t *)from)[at] * head[p.head - FX_NR + at % FX_NR];
    return ((const float *)from)[at];
}

static inline void check_set_weight(check_case *c, check_panels p, int o, int64_t at, float value) {
    float *head = (float *)((char *)c->weight + o / FX_NR * p.bytes);
    void *to = head + p.head;
    if (p.wtype == FX_WTYPE_F16)
        ((uint16_t *)to)[at] = fx_half_from(value);
    else if (p.wtype == FX_WTYPE_S8)
        ((int8_t *)to)[at] = (int8_t)(value * 127);
    else
        ((float *)to)[at] = value;
}

/* Every lane of every panel: heads from [-1, 1), scales so that S8 fills the same range, weights as `fills` says. */
static inline void check_fill_panels(check_case *c, check_panels p, int32_t panels, int fills) {
    for (int32_t i = 0; i < panels; i++) {
        float *head = check_panel(c, p, i * FX_NR);
        for (int64_t j = 0; j < p.head; j++)
            head[j] = check_real(c);
        if (p.wtype == FX_WTYPE_S8)
            for (int64_t j = p.head - FX_NR; j < p.head; j++)
                head[j] = (1 + head[j]) / 254;
        const int64_t size = p.wtype == FX_WTYPE_F32 ? 4 : p.wtype == FX_WTYPE_F16 ? 2 : 1;
        for (int64_t at = 0; at < (p.bytes - p.head * 4) / size; at++)
            check_set_weight(c, p, i * FX_NR, at, fills ? check_real(c) : 0);
    }
}

#endif
