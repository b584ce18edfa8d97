/* To and from quantised integers: y = saturate(round half to even(x / scale) + zero point), y = (x - zero point) scale.
 * One scale and zero point for each of the n slices in the middle of a contiguous [outer, n, inner].
 * https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html. */
#include "units.h"

static int is_quantising(const fx_quantize_params *p) {
    return p->from == FX_DTYPE_F32;
}

static int is_quantised(int32_t dtype) {
    return dtype == FX_DTYPE_U8 || dtype == FX_DTYPE_I8;
}

static int64_t bytes_of(int32_t dtype) {
    return is_quantised(dtype) ? 1 : 4;
}

static fx_window full_window(const fx_params *u) {
    return (fx_window){0, u->quantize.outer, 0, u->quantize.inner};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_quantize_params *p = &u->quantize;
    const int quantises = is_quantising(p) && is_quantised(p->to);
    const int restores = (is_quantised(p->from) || p->from == FX_DTYPE_I32) && p->to == FX_DTYPE_F32;
    if (kernel != 0 || (!quantises && !restores) || p->outer < 1 || p->n < 1 || p->inner < 1 || p->has_zero < 0 ||
        p->has_zero > 1)
        return FX_ERR_PARAMS;
    return (int64_t)p->outer * p->n <= FX_ELEMENTS_MAX / p->inner ? FX_OK : FX_ERR_PARAMS;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_quantize_params *p = &u->quantize;
    const int64_t elements = (int64_t)p->outer * p->n * p->inner;
    *lo = 0;
    *hi = operand == 0           ? elements * bytes_of(p->from)
          : operand == 1         ? p->n * (int64_t)sizeof(float)
          : operand == FX_OUTPUT ? elements * bytes_of(p->to)
          : p->has_zero          ? p->n * bytes_of(is_quantising(p) ? p->to : p->from)
                                 : 0;
}

static int64_t output_bytes(const fx_params *u) {
    return fx_contiguous_bytes(extent, u);
}

static int64_t element_bytes(const fx_params *u, int operand) {
    const fx_quantize_params *p = &u->quantize;
    return operand == 0           ? bytes_of(p->from)
           : operand == 1         ? (int64_t)sizeof(float)
           : operand == FX_OUTPUT ? bytes_of(p->to)
                                  : bytes_of(is_quantising(p) ? p->to : p->from);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    const fx_quantize_params *p = &u->quantize;
    if (w.y0 >= w.y1 || w.c0 >= w.c1)
        return 0;
    return fx_box_units((int64_t)p->outer * p->n * p->inner * (bytes_of(p->from) + bytes_of(p->to)), threads);
}

static int32_t integer_at(const void *x, int32_t dtype, int64_t at) {
    return dtype == FX_DTYPE_U8   ? ((const uint8_t *)x)[at]
           : dtype == FX_DTYPE_I8 ? ((const int8_t *)x)[at]
                                  : ((const int32_t *)x)[at];
}

/* Adding it rounds to whole numbers, half to even, what is below 2^22 in size. */
#define WHOLE 0x1.8p23f

/* Loops without calls and branches: compilers make vectors of them. A bound stands for NaN, as any integer would. */
static void quantise(const float *restrict x, uint8_t *restrict y, int64_t n, float scale, float lo, float hi,
                     int32_t zero) {
    for (int64_t i = 0; i < n; i++) {
        const float v = x[i] / scale, above = v > lo ? v : lo, inside = above < hi ? above : hi;
        y[i] = (uint8_t)((int32_t)(inside + WHOLE - WHOLE) + zero);
    }
}

#define RESTORE(NAME, stored, wide)                                                                                    \
    static void restore_##NAME(const stored *restrict x, float *restrict y, int64_t n, float scale, int32_t zero) {    \
        for (int64_t i = 0; i < n; i++)                                                                                \
            y[i] = (float)((wide)x[i] - zero) * scale;                                                                 \
    }
RESTORE(u8, uint8_t, int32_t)
RESTORE(i8, int8_t, int32_t)
RESTORE(i32, int32_t, int64_t)

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_quantize_params *p = &call->params->quantize;
    const uint32_t count = units(call->kernels, 0, call->params, call->window, threads);
    const int64_t total = (int64_t)p->outer * p->n * p->inner, end = fx_box_cut(total, count, u1);
    const int32_t type = is_quantising(p) ? p->to : p->from;
    for (int64_t e = fx_box_cut(total, count, u0), n = 0; e < end; e += n) {
        const int64_t slice = e / p->inner % p->n;
        n = fx_min64(end - e, p->inner - e % p->inner);
        const float scale = ((const float *)call->in[1])[slice];
        const int32_t zero = p->has_zero ? integer_at(call->in[2], type, slice) : 0;
        const void *x = (const char *)call->in[0] + e * bytes_of(p->from);
        if (is_quantising(p)) {
            const float lo = (float)((type == FX_DTYPE_U8 ? 0 : INT8_MIN) - zero);
            const float hi = (float)((type == FX_DTYPE_U8 ? UINT8_MAX : INT8_MAX) - zero);
            quantise(x, (uint8_t *)call->out + e, n, scale, lo, hi, zero);
        } else if (type == FX_DTYPE_U8) {
            restore_u8(x, (float *)call->out + e, n, scale, zero);
        } else if (type == FX_DTYPE_I8) {
            restore_i8(x, (float *)call->out + e, n, scale, zero);
        } else {
            restore_i32(x, (float *)call->out + e, n, scale, zero);
        }
    }
    return FX_OK;
}

FX_DRIVER(quantize, .traits = 0, .element_bytes = element_bytes);
