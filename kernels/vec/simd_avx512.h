/* What AVX-512 has an instruction for and the compiler no operator; simd.h says what each function means. */
#ifndef FLEXNN_VEC_SIMD_AVX512_H
#define FLEXNN_VEC_SIMD_AVX512_H

#include <immintrin.h>

FX_INLINE fx_v fx_splat(float x) {
    return _mm512_set1_ps(x);
}
FX_INLINE fx_v fx_max(fx_v a, fx_v b) {
    return _mm512_max_ps(a, b);
}
FX_INLINE fx_v fx_min(fx_v a, fx_v b) {
    return _mm512_min_ps(a, b);
}
FX_INLINE fx_v fx_max_nan(fx_v a, fx_v b) {
    return _mm512_mask_mov_ps(_mm512_max_ps(a, b), _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), a);
}
FX_INLINE fx_v fx_if_negative(fx_v v, fx_v then, fx_v otherwise) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_LT_OQ), otherwise, then);
}

FX_INLINE fx_v fx_load_part(const float *p, int n) {
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
FX_INLINE void fx_store_part(float *p, fx_v v, int n) {
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), v);
}
FX_INLINE void fx_load_f16(fx_v *to, const void *from) {
    to[0] = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
}
FX_INLINE void fx_store_f16(void *to, const fx_v *from) {
    _mm256_storeu_si256((__m256i *)to, _mm512_cvtps_ph(from[0], _MM_FROUND_TO_NEAREST_INT));
}
FX_INLINE void fx_load_s8(fx_v *to, const void *from) {
    to[0] = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)from)));
}

/* A table holds what 4 bits stand for: the permutation reads the lowest 4 bits of each lane. */
FX_INLINE fx_v fx_nibble(fx_vw group, const int i, const int has_sign) {
    const fx_v with_sign = _mm512_set_ps(-1, -2, -3, -4, -5, -6, -7, -8, 7, 6, 5, 4, 3, 2, 1, 0);
    const fx_v without = _mm512_set_ps(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    return _mm512_permutexvar_ps((__m512i)(group >> 4 * i), has_sign ? with_sign : without);
}

FX_INLINE void fx_store_bytes(uint8_t *p, fx_v v, int zero) {
    const __m512i wide = _mm512_add_epi32(_mm512_cvttps_epi32(v), _mm512_set1_epi32(zero));
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(wide));
}

FX_INLINE fx_v fx_sqrt(fx_v v) {
    return _mm512_sqrt_ps(v);
}
FX_INLINE fx_v fx_floor(fx_v v) {
    return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}
FX_INLINE fx_v fx_ceil(fx_v v) {
    return _mm512_roundscale_ps(v, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
}
FX_INLINE fx_v fx_round(fx_v v) {
    return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

FX_INLINE float fx_lanes_sum(fx_v v) {
    return _mm512_reduce_add_ps(v);
}
FX_INLINE float fx_lanes_most(fx_v v) {
    return _mm512_reduce_max_ps(v);
}
FX_INLINE float fx_lanes_max(fx_v v) {
    return _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q) ? __builtin_nanf("") : fx_lanes_most(v);
}

#endif
