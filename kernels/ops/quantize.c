/* To and from quantised integers, and from sums of their products to such: params.h has the formulas; numbers are
 * rounded half to even. One scale, zero point and bias for each of the n slices in the middle of [outer, n, inner].
 * https://onnx.ai/onnx/operators/onnx__QuantizeLinear.html. */
#include "bytes.h"
#include "units.h"

#include <string.h>

static int is_quantising(const fx_quantize_params *p) {
    return p->from == FX_DTYPE_F32;
}

static int is_quantised(int32_t dtype) {
    return dtype == FX_DTYPE_U8 || dtype == FX_DTYPE_I8;
}

/* From sums of products. */
static int is_requantising(const fx_quantize_params *p) {
    return p->from == FX_DTYPE_I32 && is_quantised(p->to);
}

static int32_t type_of_zero(const fx_quantize_params *p) {
    return is_quantised(p->to) ? p->to : p->from;
}

static int64_t elements_of(const fx_quantize_params *p) {
    return (int64_t)p->outer * p->n * p->inner;
}

/* Where element e of the output lies, in elements. */
static int64_t place_of(const fx_quantize_params *p, int64_t e) {
    return p->row ? e / p->row * p->y_s + e % p->row : e;
}

/* Elements from e on that lie one behind the other, at most n. */
static int64_t run_at(const fx_quantize_params *p, int64_t e, int64_t n) {
    return p->row ? fx_min64(n, p->row - e % p->row) : n;
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
    const int known = quantises || restores || is_requantising(p);
    if (kernel != 0 || !known || p->outer < 1 || p->n < 1 || p->inner < 1 || p->has_zero < 0 || p->has_zero > 1 ||
        p->has_bias < 0 || p->has_bias > is_requantising(p))
        return FX_ERR_PARAMS;
    if (p->is_measured < 0 || p->is_measured > 1 ||
        (p->is_measured && (!is_quantising(p) || p->to != FX_DTYPE_U8 || p->n != 1 || p->has_zero)))
        return FX_ERR_PARAMS;
    if ((int64_t)p->outer * p->n > FX_ELEMENTS_MAX / p->inner)
        return FX_ERR_PARAMS;
    if (!p->row)
        return p->y_s ? FX_ERR_PARAMS : FX_OK;
    return p->row > 0 && p->y_s >= p->row && elements_of(p) % p->row == 0 &&
                   elements_of(p) / p->row <= FX_ELEMENTS_MAX / p->y_s
               ? FX_OK
               : FX_ERR_PARAMS;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_quantize_params *p = &u->quantize;
    const int64_t elements = elements_of(p);
    *lo = 0;
    *hi = operand == 0           ? elements * bytes_of(p->from)
          : operand == 1         ? (p->n + p->is_measured) * (int64_t)sizeof(float)
          : operand == FX_OUTPUT ? (place_of(p, elements - 1) + 1) * bytes_of(p->to)
          : operand == 3         ? p->has_bias * p->n * (int64_t)sizeof(int32_t)
                                 : p->has_zero * p->n * bytes_of(type_of_zero(p));
}

static int64_t output_bytes(const fx_params *u) {
    return elements_of(&u->quantize) * bytes_of(u->quantize.to);
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
    return fx_box_units(elements_of(p) * (bytes_of(p->from) + bytes_of(p->to)), threads);
}

static int32_t integer_at(const void *x, int32_t dtype, int64_t at) {
    return dtype == FX_DTYPE_U8   ? ((const uint8_t *)x)[at]
           : dtype == FX_DTYPE_I8 ? ((const int8_t *)x)[at]
                                  : ((const int32_t *)x)[at];
}

/* Adding it rounds to whole numbers, half to even, what is below 2^22 in size. */
#define WHOLE 0x1.8p23f

/* Loops without calls and branches: compilers make vectors of them. */
static void restore_sums(const int32_t *restrict x, float *restrict y, int64_t n, float scale, int32_t zero) {
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)((int64_t)x[i] - zero) * scale;
}

/* From sums: y[i] of x[i] with the parameters of slice i, or all of slice 0 where `step` is 0. Clamped to `far` before
 * it is rounded, farther than any zero point moves it: the bounds are whole, too. `far` is no constant: of one the
 * compiler makes branches, and no vectors. */
static const volatile float far_bound = 1024;
#define REQUANTISE(NAME, stored, least, most)                                                                          \
    static inline __attribute__((always_inline)) void requantise_##NAME(                                               \
        const int32_t *restrict x, stored *restrict y, int64_t n, const float *restrict scale,                         \
        const stored *restrict zero, const int32_t *restrict bias, const int step) {                                   \
        const float far = far_bound, near = -far;                                                                      \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const int32_t sum = bias ? (int32_t)((uint32_t)x[i] + (uint32_t)bias[i * step]) : x[i];                    \
            const float v = (float)sum * scale[i * step], above = v > near ? v : near;                                 \
            const float inside = above < far ? above : far;                                                            \
            const int32_t moved = (int32_t)(inside + WHOLE - WHOLE) + (zero ? zero[i * step] : 0);                     \
            const int32_t low = moved > (least) ? moved : (least);                                                     \
            y[i] = (stored)(low < (most) ? low : (most));                                                              \
        }                                                                                                              \
    }
REQUANTISE(u8, uint8_t, 0, UINT8_MAX)
REQUANTISE(i8, int8_t, INT8_MIN, INT8_MAX)

/* A loop for each combination of what there is, so that none decides anything inside. */
#define REQUANTISE_RUN(NAME, stored)                                                                                   \
    static void requantise_run_##NAME(const int32_t *x, stored *y, int64_t n, const float *scale, const stored *zero,  \
                                      const int32_t *bias, int step) {                                                 \
        const stored none = 0, *centre = zero ? zero : &none;                                                          \
        if (!step)                                                                                                     \
            bias ? requantise_##NAME(x, y, n, scale, centre, bias, 0)                                                  \
                 : requantise_##NAME(x, y, n, scale, centre, NULL, 0);                                                 \
        else if (zero)                                                                                                 \
            bias ? requantise_##NAME(x, y, n, scale, zero, bias, 1)                                                    \
                 : requantise_##NAME(x, y, n, scale, zero, NULL, 1);                                                   \
        else                                                                                                           \
            bias ? requantise_##NAME(x, y, n, scale, NULL, bias, 1)                                                    \
                 : requantise_##NAME(x, y, n, scale, NULL, NULL, 1);                                                   \
    }
REQUANTISE_RUN(u8, uint8_t)
REQUANTISE_RUN(i8, int8_t)

/* Elements [e, end) from sums: runs of one slice, or of neighbouring slices where each is one element. */
static void run_from_sums(const fx_call *call, int64_t e, int64_t end) {
    const fx_quantize_params *p = &call->params->quantize;
    const int is_across = p->inner == 1 && p->n > 1;
    for (int64_t n; e < end; e += n) {
        const int64_t slice = e / p->inner % p->n;
        n = run_at(p, e, fx_min64(end - e, is_across ? p->n - slice : p->inner - e % p->inner));
        const int64_t at = place_of(p, e);
        const int32_t *x = (const int32_t *)call->in[0] + e;
        const float *scale = (const float *)call->in[1] + slice;
        const void *zero = p->has_zero ? (const char *)call->in[2] + slice : NULL;
        const int32_t *bias = p->has_bias ? (const int32_t *)call->in[3] + slice : NULL;
        if (p->to == FX_DTYPE_U8)
            requantise_run_u8(x, (uint8_t *)call->out + at, n, scale, zero, bias, is_across);
        else
            requantise_run_i8(x, (int8_t *)call->out + at, n, scale, zero, bias, is_across);
    }
}

#define AT_ONCE 2048 /* bytes that stay in the first cache */

/* Floats as bytes, in rows: rounded together, as rows are short. */
static void round_rows(const fx_call *call, const fx_to_bytes *all, int64_t e) {
    const fx_quantize_params *p = &call->params->quantize;
    uint8_t bytes[AT_ONCE];
    fx_to_bytes part = *all;
    uint8_t *to = (uint8_t *)call->out + e / p->row * p->y_s;
    int64_t column = e % p->row;
    part.y = bytes;
    for (int64_t i = 0; i < all->n; i += part.n) {
        part.x = all->x + i;
        part.n = fx_min64(all->n - i, AT_ONCE);
        call->kernels->to_bytes_f32(&part);
        for (int64_t j = 0, n; j < part.n; j += n) {
            n = fx_min64(part.n - j, p->row - column);
            memcpy(to + column, bytes + j, (size_t)n);
            column += n;
            if (column == p->row)
                to += p->y_s, column = 0;
        }
    }
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_quantize_params *p = &call->params->quantize;
    const uint32_t count = units(call->kernels, 0, call->params, call->window, threads);
    const int64_t total = elements_of(p), end = fx_box_cut(total, count, u1);
    const int32_t type = type_of_zero(p);
    if (is_requantising(p)) {
        run_from_sums(call, fx_box_cut(total, count, u0), end);
        return FX_OK;
    }
    for (int64_t e = fx_box_cut(total, count, u0), n = 0; e < end; e += n) {
        const int64_t slice = e / p->inner % p->n;
        n = fx_min64(end - e, p->inner - e % p->inner);
        n = is_quantising(p) ? n : run_at(p, e, n);
        const int64_t at = place_of(p, e);
        const float scale = ((const float *)call->in[1])[slice];
        const int32_t zero = p->is_measured ? fx_measured(call->in[1]).zero
                             : p->has_zero  ? integer_at(call->in[2], type, slice)
                                            : 0;
        const void *x = (const char *)call->in[0] + e * bytes_of(p->from);
        float *y = (float *)call->out + at; /* or bytes */
        if (is_quantising(p)) {
            fx_to_bytes q = {.x = x, .y = (uint8_t *)call->out + at, .n = n, .scale = scale, .zero = zero};
            q.lo = (float)((type == FX_DTYPE_U8 ? 0 : INT8_MIN) - zero);
            q.hi = (float)((type == FX_DTYPE_U8 ? UINT8_MAX : INT8_MAX) - zero);
            if (p->row)
                round_rows(call, &q, e);
            else
                call->kernels->to_bytes_f32(&q);
        } else if (is_quantised(type)) {
            const fx_of_bytes q = {
                .x = x, .y = y, .n = n, .scale = scale, .zero = zero, .is_signed = type != FX_DTYPE_U8};
            call->kernels->of_bytes_f32(&q);
        } else {
            restore_sums(x, y, n, scale, zero);
        }
    }
    return FX_OK;
}

FX_DRIVER(quantize, .traits = 0, .element_bytes = element_bytes);
