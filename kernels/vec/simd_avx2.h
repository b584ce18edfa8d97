/* What AVX2 has an instruction for and the compiler no operator; simd.h says what each function means. */
#ifndef FLEXNN_VEC_SIMD_AVX2_H
#define FLEXNN_VEC_SIMD_AVX2_H

#include <immintrin.h>

FX_INLINE fx_v fx_splat(float x) {
    return _mm256_set1_ps(x);
}
FX_INLINE fx_v fx_max(fx_v a, fx_v b) {
    return _mm256_max_ps(a, b);
}
FX_INLINE fx_v fx_min(fx_v a, fx_v b) {
    return _mm256_min_ps(a, b);
}
FX_INLINE fx_v fx_max_nan(fx_v a, fx_v b) {
    return _mm256_blendv_ps(_mm256_max_ps(a, b), a, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
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
FX_INLINE void fx_load_f16(fx_v *to, const void *from) {
    FX_UNROLL for (int j = 0; j < 2; j++) to[j] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from + j));
}
FX_INLINE void fx_store_f16(void *to, const fx_v *from) {
    FX_UNROLL for (int j = 0; j < 2; j++)
        _mm_storeu_si128((__m128i *)to + j, _mm256_cvtps_ph(from[j], _MM_FROUND_TO_NEAREST_INT));
}
FX_INLINE void fx_load_s8(fx_v *to, const void *from) {
    FX_UNROLL for (int j = 0; j < 2; j++) to[j] =
        _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)((const int8_t *)from + j * 8))));
}

FX_INLINE fx_v fx_nibble(fx_vw group, const int i, const int has_sign) {
    const fx_vi whole = has_sign ? (fx_vi)(group << (28 - 4 * i)) >> 28 : (fx_vi)(group >> 4 * i & 15);
    return __builtin_convertvector(whole, fx_v);
}

FX_INLINE void fx_store_bytes(uint8_t *p, fx_v v, int zero) {
    const __m256i lowest = _mm256_set1_epi32(0x0c080400),
                  wide = _mm256_add_epi32(_mm256_cvttps_epi32(v), _mm256_set1_epi32(zero));
    const __m256i low = _mm256_shuffle_epi8(wide, lowest);
    _mm_storel_epi64((__m128i *)p, _mm_unpacklo_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1)));
}

FX_INLINE fx_v fx_sqrt(fx_v v) {
    return _mm256_sqrt_ps(v);
}
FX_INLINE fx_v fx_floor(fx_v v) {
    return _mm256_floor_ps(v);
}
FX_INLINE fx_v fx_ceil(fx_v v) {
    return _mm256_ceil_ps(v);
}
FX_INLINE fx_v fx_round(fx_v v) {
    return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

FX_INLINE float fx_lanes_sum(fx_v v) {
    const __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}
FX_INLINE float fx_lanes_most(fx_v v) {
    const __m128 half = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 pair = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
}
FX_INLINE float fx_lanes_max(fx_v v) {
    return _mm256_movemask_ps(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)) ? __builtin_nanf("") : fx_lanes_most(v);
}

#endif
