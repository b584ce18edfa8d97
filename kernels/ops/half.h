/* What the drivers of maps of 16 bits share (params_f16.h). */
#ifndef FLEXNN_OPS_HALF_H
#define FLEXNN_OPS_HALF_H

#include "conv_common.h"

static inline int fx_is_half(int32_t f16, int operand) {
    return f16 >> (operand == FX_OUTPUT ? FX_F16_OUTPUT : operand) & 1;
}

/* 1 if the bits are of operands that the operator has, and not none. */
static inline int fx_f16_fits(int32_t f16, int inputs) {
    return f16 > 0 && !(f16 & ~(1 << FX_F16_OUTPUT | ((1 << inputs) - 1)));
}

static inline int64_t fx_half_bytes(int32_t f16, int operand) {
    return fx_is_half(f16, operand) ? (int64_t)sizeof(uint16_t) : (int64_t)sizeof(float);
}

/* The extent that the operator has without halves, of the operand as it is. */
static inline void fx_half_extent(int32_t f16, int operand, int64_t *lo, int64_t *hi) {
    if (fx_is_half(f16, operand))
        *lo /= 2, *hi /= 2;
}

/* Functions of a driver that are those of the operator `plain` but for the size of elements. */
#define FX_HALF_DRIVER(name, plain, inputs)                                                                            \
    static fx_window name##_full_window(const fx_params *u) {                                                          \
        return fx_##plain##_impl.full_window(u);                                                                       \
    }                                                                                                                  \
    static fx_status name##_check(uint32_t kernel, const fx_params *u) {                                               \
        return fx_f16_fits(u->name.f16, inputs) ? fx_##plain##_impl.check(kernel, u) : FX_ERR_PARAMS;                  \
    }                                                                                                                  \
    static void name##_extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {                             \
        fx_##plain##_impl.extent(u, operand, lo, hi);                                                                  \
        fx_half_extent(u->name.f16, operand, lo, hi);                                                                  \
    }                                                                                                                  \
    static int64_t name##_output_bytes(const fx_params *u) {                                                           \
        return fx_##plain##_impl.output_bytes(u) / 4 * fx_half_bytes(u->name.f16, FX_OUTPUT);                          \
    }                                                                                                                  \
    static int64_t name##_element_bytes(const fx_params *u, int operand) {                                             \
        return fx_half_bytes(u->name.f16, operand);                                                                    \
    }

#define FX_HALF_MEMBERS(name)                                                                                          \
    .full_window = name##_full_window, .extent = name##_extent, .output_bytes = name##_output_bytes,                   \
    .element_bytes = name##_element_bytes

#endif
