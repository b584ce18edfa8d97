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

/* Weights that are stored with a scale for each block. */
static inline int check_has_blocks(int32_t wtype) {
    return fx_weight_forms[wtype].block > 0;
}

/* Where bit `bit` of integer `at` of less than 8 bits lies, from a panel's integers on: 4 bits are in a 32-bit number
 * for each lane, bits above them behind 2 (of 6 bits) or 4 (of 5 bits) of these. */
static inline int64_t check_bit_at(int64_t at, int bits, int bit) {
    const int64_t lane = at % FX_NR, row = at / FX_NR, groups = bits == 6 ? 2 : bits == 5 ? 4 : 1;
    const int64_t run = row / (8 * groups), group = row / 8 % groups, of = run * (bits == 4 ? 1 : groups + 1);
    return bit < 4 ? ((of + group) * FX_NR + lane) * 32 + 4 * (row % 8) + bit
                   : ((of + groups) * FX_NR + lane) * 32 + 4 * (row % 8) + group * (bits - 4) + bit - 4;
}

static inline int check_packed(const void *from, int64_t at, int bits) {
    int value = 0;
    for (int bit = 0; bit < bits; bit++) {
        const int64_t place = check_bit_at(at, bits, bit);
        value |= (((const uint8_t *)from)[place / 8] >> place % 8 & 1) << bit;
    }
    return value;
}

static inline void check_set_packed(void *to, int64_t at, int bits, int value) {
    for (int bit = 0; bit < bits; bit++) {
        const int64_t place = check_bit_at(at, bits, bit);
        uint8_t *byte = (uint8_t *)to + place / 8;
        *byte = (uint8_t)((*byte & ~(1 << place % 8)) | (value >> bit & 1) << place % 8);
    }
}

/* The integer of a weight, before its scale. */
static inline int check_integer(const void *from, int64_t at, int32_t wtype) {
    if (fx_weight_forms[wtype].bits == 8)
        return ((const int8_t *)from)[at];
    const int bits = fx_weight_forms[wtype].bits, value = check_packed(from, at, bits);
    return fx_weight_forms[wtype].minimum || value < 1 << (bits - 1) ? value : value - (1 << bits);
}

static inline void check_set_integer(void *to, int64_t at, int32_t wtype, int value) {
    if (fx_weight_forms[wtype].bits == 8) {
        ((int8_t *)to)[at] = (int8_t)value;
        return;
    }
    check_set_packed(to, at, fx_weight_forms[wtype].bits, value);
}

/* Number i of scales or minima of `bytes` bytes. */
static inline double check_scale(const void *from, int64_t i, int32_t bytes) {
    return bytes == 2 ? fx_half_to(((const uint16_t *)from)[i]) : ((const float *)from)[i];
}

/* The scale of a block of those that share factors, or its minimum. */
static inline double check_shared(const void *shared, int64_t block, int64_t lane, int is_minimum, int has_minima) {
    if (!has_minima)
        return fx_half_to(((const uint16_t *)shared)[lane]) * ((const int8_t *)shared)[32 + block * FX_NR + lane];
    const double factor = fx_half_to(((const uint16_t *)shared)[is_minimum * FX_NR + lane]);
    const int whole = check_packed((const char *)shared + 64, (block + 8 * is_minimum) * FX_NR + lane, 6);
    return is_minimum ? -factor * whole : factor * whole;
}

/* A weight of double blocks: 8 blocks of 32, or 16 of 16. */
static inline double check_double_block(const check_case *c, check_panels p, int o, int64_t at, double value) {
    const int has_minima = fx_weight_forms[p.wtype].minimum > 0;
    const int64_t row = at / FX_NR, block = row % 256 / (has_minima ? 32 : 16), lane = at % FX_NR;
    const void *shared = check_panel_at(c, p, o, p.layout.scales + row / 256 * (has_minima ? 256 : 288));
    value *= check_shared(shared, block, lane, 0, has_minima);
    return has_minima ? value + check_shared(shared, block, lane, 1, 1) : value;
}

/* Weight `at` of output channel o's panel; lanes are in `at`. */
static inline double check_weight(const check_case *c, check_panels p, int o, int64_t at) {
    const fx_weight_form form = fx_weight_forms[p.wtype];
    const void *from = check_panel_at(c, p, o, p.layout.weights);
    if (p.wtype == FX_WTYPE_F16)
        return fx_half_to(((const uint16_t *)from)[at]);
    if (!form.scales)
        return ((const float *)from)[at];
    if (form.shared)
        return check_double_block(c, p, o, at, check_integer(from, at, p.wtype));
    const int64_t of = (form.block ? at / FX_NR / form.block * FX_NR : 0) + at % FX_NR;
    const double value =
        check_integer(from, at, p.wtype) * check_scale(check_panel_at(c, p, o, p.layout.scales), of, form.scales);
    return form.minimum ? value + check_scale(check_panel_at(c, p, o, p.layout.minimum), of, form.minimum) : value;
}

/* Integers stand for [-1, 1) where their scales do, and from the minimum on where there is one. */
static inline void check_set_weight(check_case *c, check_panels p, int o, int64_t at, float value) {
    const fx_weight_form form = fx_weight_forms[p.wtype];
    void *to = check_panel_at(c, p, o, p.layout.weights);
    if (p.sums == FX_DTYPE_I32)
        value = p.wtype == FX_WTYPE_S8 ? check_whole(value, 127) / 127 : check_whole(value, 255);
    if (p.wtype == FX_WTYPE_F16)
        ((uint16_t *)to)[at] = fx_half_from(value);
    else if (form.minimum)
        check_set_integer(to, at, p.wtype,
                          (int)nearbyintf((value + 1) * (form.bits < 8 ? ((1 << form.bits) - 1) / 2.0f : 7.5f)));
    else if (form.scales)
        check_set_integer(to, at, p.wtype, (int)nearbyintf(value * (float)((1 << (form.bits - 1)) - 1)));
    else
        ((float *)to)[at] = value;
}

/* The same of double blocks: integers of any value, and factors to match. */
static inline void check_fill_shared(check_case *c, check_panels p, int o) {
    const fx_weight_form form = fx_weight_forms[p.wtype];
    const int each = form.minimum ? 256 : 288, most = (1 << form.bits) - 1;
    char *shared = check_panel_at(c, p, o, p.layout.scales);
    for (int64_t i = 0; i < p.weights / FX_NR / 256; i++, shared += each) {
        for (int at = 0; at < 16 * FX_NR; at++)
            if (form.minimum)
                check_set_packed(shared + 64, at, 6, check_int(c, 0, 63));
            else
                ((int8_t *)shared)[32 + at] = (int8_t)check_int(c, -128, 127);
        for (int lane = 0; lane < (form.minimum ? 2 : 1) * FX_NR; lane++) {
            const float range = lane < FX_NR ? (form.minimum ? 63.0f * (float)most : 128 * 32) : 63;
            ((uint16_t *)(void *)shared)[lane] = fx_half_from((1 + check_real(c)) / range);
        }
    }
}

/* Scales and minima of all blocks, so that a weight is in [-1, 1). */
static inline void check_fill_blocks(check_case *c, check_panels p, int o) {
    const fx_weight_form form = fx_weight_forms[p.wtype];
    const float steps = form.bits == 8 ? 254 : form.minimum ? 15 : 14;
    char *scales = check_panel_at(c, p, o, p.layout.scales), *minima = check_panel_at(c, p, o, p.layout.minimum);
    for (int64_t i = 0; i < (p.weights / FX_NR + form.block - 1) / form.block * FX_NR; i++) {
        const float scale = (1 + check_real(c)) / steps, minimum = -scale * 7.5f;
        if (form.scales == 2) {
            ((uint16_t *)(void *)scales)[i] = fx_half_from(scale);
            if (form.minimum)
                ((uint16_t *)(void *)minima)[i] = fx_half_from(minimum);
        } else {
            ((float *)(void *)scales)[i] = scale;
            if (form.minimum)
                ((float *)(void *)minima)[i] = minimum;
        }
    }
}

/* Every lane of every panel: heads from [-1, 1), scales so that S8 fills the same range, weights as `fills` says. */
static inline void check_fill_panels(check_case *c, check_panels p, int32_t panels, int fills) {
    const int is_extreme = p.sums == FX_DTYPE_I32 && check_one_in(c, 2);
    for (int32_t i = 0; i < panels; i++) {
        float *head = check_panel(c, p, i * FX_NR), *scales = check_panel_at(c, p, i * FX_NR, p.layout.scales);
        const int has_blocks = check_has_blocks(p.wtype);
        for (int64_t j = 0; j < (has_blocks ? p.layout.scales : p.layout.weights) / (int64_t)sizeof(float); j++)
            head[j] = p.sums == FX_DTYPE_I32 ? 0 : check_real(c);
        if (fx_weight_forms[p.wtype].shared)
            check_fill_shared(c, p, i * FX_NR);
        else if (has_blocks)
            check_fill_blocks(c, p, i * FX_NR);
        for (int64_t j = 0; !has_blocks && j < (p.layout.minimum - p.layout.scales) / (int64_t)sizeof(float); j++)
            scales[j] = p.sums == FX_DTYPE_I32 ? 1 : (1 + scales[j]) / 254;
        for (int64_t at = 0; at < p.weights; at++)
            check_set_weight(c, p, i * FX_NR, at,
                             !fills       ? 0
                             : is_extreme ? -1 + 0.02f * fabsf(check_real(c))
                                          : check_real(c));
    }
}

#endif
