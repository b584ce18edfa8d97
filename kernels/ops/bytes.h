/* What drivers of 8-bit activations share. */
#ifndef FLEXNN_OPS_BYTES_H
#define FLEXNN_OPS_BYTES_H

#include "conv_common.h"

/* The finishing of p, an fx_conv_u8_params or fx_dwconv_u8_params. */
#define FX_BYTE_FINISH_OF(p)                                                                                           \
    (fx_byte_finish) {                                                                                                 \
        .to = (p)->to, .zero = (p)->zero, .r_zero = (p)->r_zero, .sum_zero = (p)->sum_zero, .lo = (p)->lo,             \
        .hi = (p)->hi, .v_scale = (p)->v_scale, .r_scale = (p)->r_scale, .sum_lo = (p)->sum_lo, .sum_hi = (p)->sum_hi  \
    }

/* 1 if zero + [lo, hi] are bytes. */
int fx_byte_clamp_fits(int32_t zero, float lo, float hi);

/* 1 if every result of this finishing fits its type. */
int fx_byte_finish_fits(const fx_byte_finish *f, int32_t has_residual);

/* fx_op_extent of operand 0, 1 (the residual) or FX_OUTPUT of maps of bytes, whose output has type `to`; and the bytes
 * of an output's elements. */
void fx_byte_maps_extent(const fx_maps *m, int operand, int32_t to, int64_t *lo, int64_t *hi);
int64_t fx_byte_maps_bytes(const fx_maps *m, int32_t to);

/* Step and zero point of a map that only a run knows, from in[1] and in[2] of a call (params_bytes.h). */
typedef struct fx_steps {
    float step;
    uint8_t zero;
} fx_steps;
fx_steps fx_steps_of(const void *const *in, int32_t is_dynamic);

/* The same of {step, zero point as a float}. */
fx_steps fx_measured(const void *measured);

/* Bytes of operand 1 or 2 of a map with such steps. */
static inline int64_t fx_steps_bytes(int operand, int32_t is_dynamic) {
    return operand == 1 ? is_dynamic * (int64_t)sizeof(float) : is_dynamic == 1;
}

/* The first words of a panel with such steps: biases less their share of the zero point, scales times the step. */
void fx_steps_head(const void *panel, fx_steps steps, int32_t *bias, float *scales);

static inline int64_t fx_byte_or_float(int32_t to) {
    return to == FX_DTYPE_F32 ? (int64_t)sizeof(float) : 1;
}

#endif
