/* Vectors of FX_WIDTH floats. Arithmetic is the compiler's own; for the rest each instruction set has a header with the
 * same functions:
 *
 *     fx_splat(x)                     x in every lane
 *     fx_max(a, b), fx_min(a, b)      the second operand where either is NaN, as the instructions of x86 do it
 *     fx_max_nan(a, b)                a NaN where either is one
 *     fx_if_negative(v, then, other)  v < 0 ? then : other
 *     fx_load_part(p, n)              the first n < FX_WIDTH floats, then zeros; nothing else is read
 *     fx_store_part(p, v, n)          the first n < FX_WIDTH lanes; nothing else is written
 *     fx_load_f16(to, p)              FX_NR numbers of IEEE binary16 as floats, FX_NR / FX_WIDTH vectors
 *     fx_store_f16(p, from)           the same numbers back, rounded to the nearest, halves of a step to even
 *     fx_load_s8(to, p)               FX_NR signed bytes as floats, FX_NR / FX_WIDTH vectors
 *     fx_nibble(group, i, has_sign)   bits 4 i to 4 i + 3 of each 32-bit lane as floats: -8 to 7, or 0 to 15
 *     fx_store_bytes(p, v, zero)      FX_WIDTH bytes: v, whole numbers, plus zero, from -128 to 255
 *     fx_sqrt, fx_floor, fx_ceil, fx_round
 *     fx_lanes_sum(v)                 the sum of all lanes
 *     fx_lanes_max(v)                 the largest lane; a NaN if any lane is one
 *     fx_lanes_most(v)                the largest lane; any number if a lane is NaN */
#ifndef FLEXNN_VEC_SIMD_H
#define FLEXNN_VEC_SIMD_H

#include "flexnn/kernels.h"

typedef float fx_v __attribute__((vector_size(4 * FX_WIDTH)));
typedef int32_t fx_vi __attribute__((vector_size(4 * FX_WIDTH)));
typedef uint32_t fx_vw
    __attribute__((vector_size(4 * FX_WIDTH))); /* bits that wrap: a NaN's make no sense as numbers */
typedef float fx_vu __attribute__((vector_size(4 * FX_WIDTH), aligned(4), may_alias)); /* in memory, unaligned */

#define FX_INLINE static inline __attribute__((always_inline))
#define FX_UNROLL _Pragma("GCC unroll 32")

#if FX_ISA_AVX512
#include "simd_avx512.h"
#elif FX_ISA_AVX2
#include "simd_avx2.h"
#elif FX_ISA_NEON
#include "simd_neon.h"
#else
#error "no instruction set of vectors"
#endif

FX_INLINE fx_v fx_load(const float *p) {
    return *(const fx_vu *)p;
}
FX_INLINE void fx_store(float *p, fx_v v) {
    *(fx_vu *)p = v;
}

FX_INLINE fx_vw fx_bits(fx_v v) {
    return (fx_vw)v;
}
FX_INLINE fx_v fx_from_bits(fx_vw v) {
    return (fx_v)v;
}
/* m (all ones or zeros in each lane) ? a : b */
FX_INLINE fx_v fx_select(fx_vi m, fx_v a, fx_v b) {
    return (fx_v)((m & (fx_vi)a) | (~m & (fx_vi)b));
}

/* The first n lanes of v, the others from `rest`; n may be FX_WIDTH or more. */
FX_INLINE fx_v fx_first(fx_v v, int n, fx_v rest) {
    static const int32_t numbers[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    fx_vi lane;
    __builtin_memcpy(&lane, numbers, sizeof lane);
    return fx_select(lane < n, v, rest);
}

/* Of the floats [at, at + FX_WIDTH) of a row only those below `end` exist. */
FX_INLINE fx_v fx_load_below(const float *row, int at, int end) {
    return at + FX_WIDTH <= end ? fx_load(row + at) : at < end ? fx_load_part(row + at, end - at) : fx_splat(0);
}
FX_INLINE void fx_store_below(float *row, int at, int end, fx_v v) {
    if (at + FX_WIDTH <= end)
        fx_store(row + at, v);
    else if (at < end)
        fx_store_part(row + at, v, end - at);
}

/* fx_finish of a vector that has its residual already; slope: the channels', of PRELU. */
FX_INLINE fx_v fx_activate(const fx_finish *f, fx_v v, const float *slope) {
    if (f->act <= FX_ACT_CLIP)
        return fx_min(fx_splat(f->hi), fx_max(fx_splat(f->lo), v));
    if (f->act == FX_ACT_LEAKY_RELU)
        return fx_if_negative(v, v * f->lo, v);
    if (f->act == FX_ACT_PRELU)
        return fx_if_negative(v, v * fx_load(slope), v);
    return v;
}

#endif
