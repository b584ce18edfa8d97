/* Vectors of FX_WIDTH floats: 16 (AVX-512), 8 (AVX2), 4 (NEON). Arithmetic is the compiler's own; here is what it has
 * no operator for. */
#ifndef FLEXNN_VEC_SIMD_H
#define FLEXNN_VEC_SIMD_H

#include "flexnn/kernels.h"

#if FX_WIDTH == 4
#include <arm_neon.h>
#else
#include <immintrin.h>
#endif

typedef float fx_v __attribute__((vector_size(4 * FX_WIDTH)));
typedef float fx_vu __attribute__((vector_size(4 * FX_WIDTH), aligned(4), may_alias)); /* in memory, unaligned */

#define FX_INLINE static inline __attribute__((always_inline))
#define FX_UNROLL _Pragma("GCC unroll 32")

FX_INLINE fx_v fx_load(const float *p) {
    return *(const fx_vu *)p;
}
FX_INLINE void fx_store(float *p, fx_v v) {
    *(fx_vu *)p = v;
}

#if FX_WIDTH == 16
FX_INLINE fx_v fx_splat(float x) {
    return _mm512_set1_ps(x);
}
/* The second operand where either is NaN, as the instructions do it. */
FX_INLINE fx_v fx_max(fx_v a, fx_v b) {
    return _mm512_max_ps(a, b);
}
FX_INLINE fx_v fx_min(fx_v a, fx_v b) {
    return _mm512_min_ps(a, b);
}
FX_INLINE fx_v fx_if_negative(fx_v v, fx_v then, fx_v otherwise) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_LT_OQ), otherwise, then);
}
/* The first n < FX_WIDTH floats; nothing else is touched, and the rest of a load is 0. */
FX_INLINE fx_v fx_load_part(const float *p, int n) {
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
FX_INLINE void fx_store_part(float *p, fx_v v, int n) {
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), v);
}
#elif FX_WIDTH == 8
FX_INLINE fx_v fx_splat(float x) {
    return _mm256_set1_ps(x);
}
FX_INLINE fx_v fx_max(fx_v a, fx_v b) {
    return _mm256_max_ps(a, b);
}
FX_INLINE fx_v fx_min(fx_v a, fx_v b) {
    return _mm256_min_ps(a, b);
}
FX_INLINE fx_v fx_if_negative(fx_v v, fx_v then, fx_v otherwise) {
    return _mm256_blendv_ps(otherwise, then, _mm256_cmp_ps(v, _mm256_setzero_ps(), _CMP_LT_OQ));
}
FX_INLINE __m256i fx_mask(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
FX_INLINE fx_v fx_load_part(const float *p, int n) {
    return _mm256_maskload_ps(p, fx_mask(n));
}
FX_INLINE void fx_store_part(float *p, fx_v v, int n) {
    _mm256_maskstore_ps(p, fx_mask(n), v);
}
#else
FX_INLINE fx_v fx_splat(float x) {
    return vdupq_n_f32(x);
}
FX_INLINE fx_v fx_max(fx_v a, fx_v b) {
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}
FX_INLINE fx_v fx_min(fx_v a, fx_v b) {
    return vbslq_f32(vcltq_f32(a, b), a, b);
}
FX_INLINE fx_v fx_if_negative(fx_v v, fx_v then, fx_v otherwise) {
    return vbslq_f32(vcltq_f32(v, vdupq_n_f32(0)), then, otherwise);
}
FX_INLINE fx_v fx_load_part(const float *p, int n) {
    fx_v v = {0};
    for (int i = 0; i < n; i++)
        v[i] = p[i];
    return v;
}
FX_INLINE void fx_store_part(float *p, fx_v v, int n) {
    for (int i = 0; i < n; i++)
        p[i] = v[i];
}
#endif

/* A NaN if either is one. */
FX_INLINE fx_v fx_max_nan(fx_v a, fx_v b) {
#if FX_WIDTH == 16
    return _mm512_mask_mov_ps(_mm512_max_ps(a, b), _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), a);
#elif FX_WIDTH == 8
    return _mm256_blendv_ps(_mm256_max_ps(a, b), a, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
#else
    return vmaxq_f32(a, b);
#endif
}

FX_INLINE fx_v fx_sqrt(fx_v v) {
#if FX_WIDTH == 16
    return _mm512_sqrt_ps(v);
#elif FX_WIDTH == 8
    return _mm256_sqrt_ps(v);
#else
    return vsqrtq_f32(v);
#endif
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
