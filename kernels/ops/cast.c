/* Conversion of elements. What C leaves undefined saturates: a float outside the range of an integer type becomes the
 * nearest of its values, NaN 0. Narrower integers wrap, as numpy's do; every non-zero (NaN too) is true. */
#include "units.h"

#include <math.h>
#include <string.h>

static fx_window full_window(const fx_params *u) { return (fx_window){0, u->cast.count, 0, 1}; }

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_cast_params *p = &u->cast;
    return !kernel && p->from >= 0 && p->from < FX_DTYPE_COUNT && p->to >= 0 && p->to < FX_DTYPE_COUNT && p->count >= 1
               ? FX_OK
               : FX_ERR_PARAMS;
}

static int64_t element_bytes(int32_t dtype) {
    static const int8_t bytes[FX_DTYPE_COUNT] = {
        [FX_DTYPE_F32] = 4, [FX_DTYPE_I64] = 8, [FX_DTYPE_I32] = 4, [FX_DTYPE_BOOL] = 1,
        [FX_DTYPE_U8] = 1,  [FX_DTYPE_I8] = 1,  [FX_DTYPE_F16] = 2, [FX_DTYPE_F64] = 8};
    return bytes[dtype];
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_cast_params *p = &u->cast;
    *lo = 0;
    *hi = operand == 0 || operand == FX_OUTPUT ? p->count * element_bytes(operand ? p->to : p->from) : 0;
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    return fx_units_of(w.y1 - w.y0, element_bytes(u->cast.from) + element_bytes(u->cast.to), threads);
}

/* ---- half precision ---- */

static float half_to_float(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 1023;
    if (exponent == 0) /* zero or subnormal: fraction * 2^-24 */
        return (sign ? -1.0f : 1.0f) * (float)fraction * 0x1p-24f;
    const uint32_t bits = sign | (exponent == 31 ? 255u : exponent + 112) << 23 | fraction << 13;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* To nearest, ties to even. */
static uint16_t half_from_float(float f) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    bits &= 0x7fffffff;
    if (bits > 0x7f800000)
        return sign | 0x7e00;
    if (bits >= 0x477ff000) /* rounds to 65536 or above */
        return sign | 0x7c00;
    if (bits < 0x38800000) { /* below 2^-14: the sum's last bit is worth 2^-24 */
        float magnitude;
        memcpy(&magnitude, &bits, sizeof magnitude);
        magnitude += 0.5f;
        memcpy(&bits, &magnitude, sizeof bits);
        return sign | (uint16_t)(bits - 0x3f000000);
    }
    return sign | (uint16_t)((bits - (112u << 23) + 0xfff + (bits >> 13 & 1)) >> 13);
}

/* The float that has d's high bits, with the last one set where others were lost (round to odd), so that rounding it
 * again to half gives what rounding d once would (Boldo and Melquiond 2008). */
static float odd_float(double d) {
    float f = (float)d;
    if ((double)f == d || isnan(d) || isinf(f))
        return f;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (fabs((double)f) > fabs(d))
        bits--;
    bits |= 1;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* ---- saturation ---- */

/* lo and hi + 1 are powers of two, so that their comparisons in double are exact. */
#define FX_SATURATE(type, name, lo, hi)                                                                                \
    static type name(double v) { return v >= (lo) ? v < (hi) + 1.0 ? (type)v : (hi) : v < (lo) ? (lo) : 0; }
FX_SATURATE(int64_t, to_i64, INT64_MIN, INT64_MAX)
FX_SATURATE(int32_t, to_i32, INT32_MIN, INT32_MAX)
FX_SATURATE(uint8_t, to_u8, 0, UINT8_MAX)
FX_SATURATE(int8_t, to_i8, INT8_MIN, INT8_MAX)

/* ---- one loop for each pair ---- */

typedef struct span {
    const char *x;
    char *y;
    int64_t n;
} span;

#define FX_LOOP(from, to, expression)                                                                                  \
    {                                                                                                                  \
        const from *x = (const from *)s.x;                                                                             \
        to *y = (to *)s.y;                                                                                             \
        for (int64_t i = 0; i < s.n; i++) {                                                                            \
            const from v = x[i];                                                                                       \
            y[i] = expression;                                                                                         \
        }                                                                                                              \
        break;                                                                                                         \
    }

/* From one type to every other; i64 .. f16 are how its values become those. */
#define FX_FROM(name, from, value, i64, i32, u8, i8, f16)                                                              \
    static void from_##name(int32_t to, span s) {                                                                      \
        switch (to) {                                                                                                  \
        case FX_DTYPE_F32:                                                                                             \
            FX_LOOP(from, float, (float)value)                                                                         \
        case FX_DTYPE_F64:                                                                                             \
            FX_LOOP(from, double, (double)value)                                                                       \
        case FX_DTYPE_F16:                                                                                             \
            FX_LOOP(from, uint16_t, half_from_float(f16(value)))                                                       \
        case FX_DTYPE_BOOL:                                                                                            \
            FX_LOOP(from, uint8_t, value != 0)                                                                         \
        case FX_DTYPE_I64:                                                                                             \
            FX_LOOP(from, int64_t, i64(value))                                                                         \
        case FX_DTYPE_I32:                                                                                             \
            FX_LOOP(from, int32_t, i32(value))                                                                         \
        case FX_DTYPE_U8:                                                                                              \
            FX_LOOP(from, uint8_t, u8(value))                                                                          \
        case FX_DTYPE_I8:                                                                                              \
            FX_LOOP(from, int8_t, i8(value))                                                                           \
        }                                                                                                              \
    }

/* An integer above 2^24 that a float rounds is beyond half's range either way. */
#define FX_FROM_INTEGER(name, from) FX_FROM(name, from, v, (int64_t), (int32_t), (uint8_t), (int8_t), (float))

FX_FROM(f32, float, v, to_i64, to_i32, to_u8, to_i8, )
FX_FROM(f64, double, v, to_i64, to_i32, to_u8, to_i8, odd_float)
FX_FROM(f16, uint16_t, half_to_float(v), to_i64, to_i32, to_u8, to_i8, )
FX_FROM_INTEGER(i64, int64_t)
FX_FROM_INTEGER(i32, int32_t)
FX_FROM_INTEGER(u8, uint8_t)
FX_FROM_INTEGER(i8, int8_t)
FX_FROM(bool, uint8_t, (v != 0), (int64_t), (int32_t), (uint8_t), (int8_t), (float))

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    static void (*const loops[FX_DTYPE_COUNT])(int32_t, span) = {
        [FX_DTYPE_F32] = from_f32,   [FX_DTYPE_I64] = from_i64, [FX_DTYPE_I32] = from_i32, [FX_DTYPE_BOOL] = from_bool,
        [FX_DTYPE_U8] = from_u8,     [FX_DTYPE_I8] = from_i8,   [FX_DTYPE_F16] = from_f16, [FX_DTYPE_F64] = from_f64};
    const fx_cast_params *p = &call->params->cast;
    const uint32_t all = units(call->kernels, call->kernel, call->params, call->window, threads);
    const int64_t count = call->window.y1 - call->window.y0;
    const int64_t first = call->window.y0 + fx_cut_at(count, all, u0), end = call->window.y0 + fx_cut_at(count, all, u1);
    const span s = {(const char *)call->in[0] + first * element_bytes(p->from),
                    (char *)call->out + first * element_bytes(p->to), end - first};
    loops[p->from](p->to, s);
    return FX_OK;
}

const fx_op_impl fx_cast_impl = {
    .traits = FX_TRAIT_ROWS,
    .full_window = full_window,
    .check = check,
    .extent = extent,
    .units = units,
    .run = run,
};
