/* Loops of pointwise. They are plain, for compilers to make vectors of, and define what each kind computes. Integers
 * are added, subtracted and multiplied as unsigned ones of the same size or of 32 bits, which wrap. */
#include "flexnn/ops.h"
#include "pointwise.h"

#include <math.h>

/* What is stored does not change what is read later: y is a or b, or has no byte of them. */
#if defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed" /* a loop that calls a function makes no vectors */
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

/* One case of a switch: y[i] from v = a[i], and w = b[i]. */
#define ONE(KIND, expression, in, out)                                                                                 \
    case FX_POINTWISE_##KIND: {                                                                                        \
        const in *from = a;                                                                                            \
        out *to = y;                                                                                                   \
        INDEPENDENT                                                                                                    \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const in v = from[i];                                                                                      \
            to[i] = (out)(expression);                                                                                 \
        }                                                                                                              \
        break;                                                                                                         \
    }

#define TWO(KIND, expression, in, out)                                                                                 \
    case FX_POINTWISE_##KIND: {                                                                                        \
        const in *left = a, *right = b;                                                                                \
        out *to = y;                                                                                                   \
        INDEPENDENT                                                                                                    \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const in v = left[i], w = right[i];                                                                        \
            to[i] = (out)(expression);                                                                                 \
        }                                                                                                              \
        break;                                                                                                         \
    }

#define COMPARISONS(in)                                                                                                \
    TWO(EQUAL, v == w, in, uint8_t) TWO(LESS, v < w, in, uint8_t) TWO(LESS_EQUAL, v <= w, in, uint8_t)

/* ---- integers ---- */

#define BITS(in) (8 * sizeof(in))

/* Neither division by zero nor of the smallest by -1 may trap. */
#define SIGNED(name, in, wide)                                                                                         \
    static inline in div_##name(in v, in w) {                                                                          \
        return w == 0 ? 0 : w == -1 ? (in)((wide)0 - (wide)v) : (in)(v / w);                                           \
    }                                                                                                                  \
    static inline in fmod_##name(in v, in w) {                                                                         \
        return w == 0 || w == -1 ? 0 : (in)(v % w);                                                                    \
    }                                                                                                                  \
    static inline in mod_##name(in v, in w) {                                                                          \
        const in rest = fmod_##name(v, w);                                                                             \
        return rest && (rest < 0) != (w < 0) ? (in)(rest + w) : rest;                                                  \
    }                                                                                                                  \
    static inline in shifted_##name(in v, in w) {                                                                      \
        return (uint64_t)w < BITS(in) ? (in)(v >> w) : v < 0 ? -1 : 0;                                                 \
    }                                                                                                                  \
    static inline in abs_##name(in v) {                                                                                \
        return v < 0 ? (in)((wide)0 - (wide)v) : v;                                                                    \
    }                                                                                                                  \
    static inline in sign_##name(in v) {                                                                               \
        return (in)((v > 0) - (v < 0));                                                                                \
    }                                                                                                                  \
    /* Of an exponent below zero, the integer part of 1 / v^-w. */                                                     \
    static inline in pow_##name(in v, in w) {                                                                          \
        wide power = 1, square = (wide)v;                                                                              \
        if (w < 0)                                                                                                     \
            return v == 1 ? 1 : v == -1 ? (w & 1 ? -1 : 1) : 0;                                                        \
        for (; w; w = (in)(w >> 1), square *= square)                                                                  \
            power *= w & 1 ? square : 1;                                                                               \
        return (in)power;                                                                                              \
    }
SIGNED(i8, int8_t, uint32_t)
SIGNED(i16, int16_t, uint32_t)
SIGNED(i32, int32_t, uint32_t)
SIGNED(i64, int64_t, uint64_t)

#define UNSIGNED(name, in, wide)                                                                                       \
    static inline in div_##name(in v, in w) {                                                                          \
        return w ? (in)(v / w) : 0;                                                                                    \
    }                                                                                                                  \
    static inline in fmod_##name(in v, in w) {                                                                         \
        return w ? (in)(v % w) : 0;                                                                                    \
    }                                                                                                                  \
    static inline in mod_##name(in v, in w) {                                                                          \
        return fmod_##name(v, w);                                                                                      \
    }                                                                                                                  \
    static inline in shifted_##name(in v, in w) {                                                                      \
        return w < BITS(in) ? (in)(v >> w) : 0;                                                                        \
    }                                                                                                                  \
    static inline in abs_##name(in v) {                                                                                \
        return v;                                                                                                      \
    }                                                                                                                  \
    static inline in sign_##name(in v) {                                                                               \
        return v != 0;                                                                                                 \
    }                                                                                                                  \
    static inline in pow_##name(in v, in w) {                                                                          \
        wide power = 1, square = v;                                                                                    \
        for (; w; w = (in)(w >> 1), square *= square)                                                                  \
            power *= w & 1 ? square : 1;                                                                               \
        return (in)power;                                                                                              \
    }
UNSIGNED(u8, uint8_t, uint32_t)
UNSIGNED(u16, uint16_t, uint32_t)
UNSIGNED(u32, uint32_t, uint32_t)
UNSIGNED(u64, uint64_t, uint64_t)

#define INTEGERS(name, in, wide)                                                                                       \
    static void run_##name(int32_t kind, const void *a, const void *b, void *y, int64_t n) {                           \
        switch (kind) {                                                                                                \
            COMPARISONS(in)                                                                                            \
            TWO(AND, v & w, in, in)                                                                                    \
            TWO(OR, v | w, in, in)                                                                                     \
            TWO(XOR, v ^ w, in, in)                                                                                    \
            TWO(SHIFT_LEFT, (uint64_t)w < BITS(in) ? (wide)v << w : 0, in, in)                                         \
            TWO(SHIFT_RIGHT, shifted_##name(v, w), in, in)                                                             \
            ONE(NOT, ~v, in, in)                                                                                       \
            TWO(ADD, (wide)v + (wide)w, in, in)                                                                        \
            TWO(SUB, (wide)v - (wide)w, in, in)                                                                        \
            TWO(MUL, (wide)v * (wide)w, in, in)                                                                        \
            TWO(DIV, div_##name(v, w), in, in)                                                                         \
            TWO(MOD, mod_##name(v, w), in, in)                                                                         \
            TWO(FMOD, fmod_##name(v, w), in, in)                                                                       \
            TWO(POW, pow_##name(v, w), in, in)                                                                         \
            TWO(MAX, v > w ? v : w, in, in)                                                                            \
            TWO(MIN, v < w ? v : w, in, in)                                                                            \
            ONE(NEG, (wide)0 - (wide)v, in, in)                                                                        \
            ONE(ABS, abs_##name(v), in, in)                                                                            \
            ONE(SIGN, sign_##name(v), in, in)                                                                          \
        default:                                                                                                       \
            break;                                                                                                     \
        }                                                                                                              \
    }
INTEGERS(i8, int8_t, uint32_t)
INTEGERS(u8, uint8_t, uint32_t)
INTEGERS(i16, int16_t, uint32_t)
INTEGERS(u16, uint16_t, uint32_t)
INTEGERS(i32, int32_t, uint32_t)
INTEGERS(u32, uint32_t, uint32_t)
INTEGERS(i64, int64_t, uint64_t)
INTEGERS(u64, uint64_t, uint64_t)

/* What is not its own logic, bool computes as u8. */
static void run_bool(int32_t kind, const void *a, const void *b, void *y, int64_t n) {
    switch (kind) {
        ONE(NOT, !v, uint8_t, uint8_t)
    default:
        run_u8(kind, a, b, y, n);
    }
}

/* ---- floats ---- */

static inline double mod(double v, double w) {
    const double rest = fmod(v, w);
    if (w == 0 || isnan(rest))
        return rest;
    if (rest == 0)
        return copysign(0, w);
    return (rest < 0) != (w < 0) ? rest + w : rest;
}

static inline double sigmoid(double v) {
    const double e = exp(-fabs(v));
    return (v >= 0 ? 1 : e) / (1 + e);
}

#define CALL(KIND, function, in) ONE(KIND, function((double)v), in, in)

/* Functions of float go through double: nothing that takes long uses them. */
#define FLOATS(name, in)                                                                                               \
    static void run_##name(int32_t kind, const void *a, const void *b, void *y, int64_t n) {                           \
        switch (kind) {                                                                                                \
            COMPARISONS(in)                                                                                            \
            ONE(IS_NAN, v != v, in, uint8_t)                                                                           \
            ONE(IS_INF, v == (in)INFINITY || v == -(in)INFINITY, in, uint8_t)                                          \
            ONE(IS_INF_ABOVE, v == (in)INFINITY, in, uint8_t)                                                          \
            ONE(IS_INF_BELOW, v == -(in)INFINITY, in, uint8_t)                                                         \
            TWO(ADD, v + w, in, in)                                                                                    \
            TWO(SUB, v - w, in, in)                                                                                    \
            TWO(MUL, v * w, in, in)                                                                                    \
            TWO(DIV, v / w, in, in)                                                                                    \
            TWO(MOD, mod(v, w), in, in)                                                                                \
            TWO(FMOD, fmod(v, w), in, in)                                                                              \
            TWO(POW, pow(v, w), in, in)                                                                                \
            TWO(MAX, v != v || v > w ? v : w, in, in)                                                                  \
            TWO(MIN, v != v || v < w ? v : w, in, in)                                                                  \
            ONE(NEG, -v, in, in)                                                                                       \
            ONE(SIGN, v != v ? v : (in)((v > 0) - (v < 0)), in, in)                                                    \
            ONE(RECIPROCAL, 1 / v, in, in)                                                                             \
            ONE(SIGMOID, sigmoid(v), in, in)                                                                           \
            ONE(SOFTPLUS, (v > 0 ? v : 0) + log1p(exp(-fabs((double)v))), in, in)                                      \
            CALL(ABS, fabs, in)                                                                                        \
            CALL(FLOOR, floor, in)                                                                                     \
            CALL(CEIL, ceil, in)                                                                                       \
            CALL(ROUND, nearbyint, in)                                                                                 \
            CALL(SQRT, sqrt, in)                                                                                       \
            CALL(EXP, exp, in)                                                                                         \
            CALL(LOG, log, in)                                                                                         \
            CALL(SIN, sin, in)                                                                                         \
            CALL(COS, cos, in)                                                                                         \
            CALL(TAN, tan, in)                                                                                         \
            CALL(ASIN, asin, in)                                                                                       \
            CALL(ACOS, acos, in)                                                                                       \
            CALL(ATAN, atan, in)                                                                                       \
            CALL(SINH, sinh, in)                                                                                       \
            CALL(COSH, cosh, in)                                                                                       \
            CALL(TANH, tanh, in)                                                                                       \
            CALL(ASINH, asinh, in)                                                                                     \
            CALL(ACOSH, acosh, in)                                                                                     \
            CALL(ATANH, atanh, in)                                                                                     \
            CALL(ERF, erf, in)                                                                                         \
        default:                                                                                                       \
            break;                                                                                                     \
        }                                                                                                              \
    }
FLOATS(f32, float)
FLOATS(f64, double)

/* ---- choices ---- */

#define CHOOSE(type)                                                                                                   \
    static void choose_##type(const uint8_t *c, const type *a, const type *b, type *y, int64_t n) {                    \
        INDEPENDENT                                                                                                    \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const type v = a[i], w = b[i];                                                                             \
            y[i] = c[i] ? v : w;                                                                                       \
        }                                                                                                              \
    }
CHOOSE(uint8_t)
CHOOSE(uint16_t)
CHOOSE(uint32_t)
CHOOSE(uint64_t)

static void choose(int64_t bytes, const void *a, const void *b, const void *c, void *y, int64_t n) {
    if (bytes == 8)
        choose_uint64_t(c, a, b, y, n);
    else if (bytes == 4)
        choose_uint32_t(c, a, b, y, n);
    else if (bytes == 2)
        choose_uint16_t(c, a, b, y, n);
    else
        choose_uint8_t(c, a, b, y, n);
}

void fx_pointwise(int32_t kind, int32_t dtype, const void *a, const void *b, const void *c, void *y, int64_t n) {
    typedef void (*loop)(int32_t, const void *, const void *, void *, int64_t);
    static const loop loops[FX_DTYPE_COUNT] = {
        [FX_DTYPE_F32] = run_f32,   [FX_DTYPE_F64] = run_f64, [FX_DTYPE_I64] = run_i64, [FX_DTYPE_U64] = run_u64,
        [FX_DTYPE_I32] = run_i32,   [FX_DTYPE_U32] = run_u32, [FX_DTYPE_I16] = run_i16, [FX_DTYPE_U16] = run_u16,
        [FX_DTYPE_BOOL] = run_bool, [FX_DTYPE_I8] = run_i8,   [FX_DTYPE_U8] = run_u8};
    if (kind == FX_POINTWISE_WHERE)
        choose(fx_dtype_bytes(dtype), a, b, c, y, n);
    else
        loops[dtype](kind, a, b, y, n);
}
