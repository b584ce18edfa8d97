/* Four products of bytes in each 32-bit lane, added to it: the rows' bytes have a sign; the weights' have one where
 * they are of 8 bits, and count from 0 where they are of 4. */
#ifndef FLEXNN_VEC_DOT_FOURS_H
#define FLEXNN_VEC_DOT_FOURS_H

#include "simd.h"

typedef int32_t fx_four __attribute__((aligned(1), may_alias));
typedef fx_vi fx_viu __attribute__((aligned(1), may_alias));

#define FX_FOURS 8 /* of a block */

/* Whether four products are one instruction, so that three of bytes take less than one of floats. */
#if defined __AVX512VNNI__ || (FX_ISA_NEON && defined __ARM_FEATURE_DOTPROD)
#define FX_HAS_DIGITS 1
#else
#define FX_HAS_DIGITS 0
#endif

FX_INLINE fx_vi fx_splat_int(int32_t x) {
    return (fx_vi){0} + x;
}

#if FX_ISA_AVX512
#ifdef __AVX512VNNI__
/* Weights of 8 bits are turned to ones that count from -128. */
#define FX_BYTE_OFFSET 128
FX_INLINE fx_vi fx_dot_fours(fx_vi sum, fx_vi w, fx_vi x, const int bits) {
    (void)bits;
    return (fx_vi)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)w, (__m512i)x);
}
#else
#define FX_BYTE_OFFSET 0
FX_INLINE fx_vi fx_dot_fours(fx_vi sum, fx_vi w, fx_vi x, const int bits) {
    __m512i a = (__m512i)w, b = (__m512i)x;
    if (bits == 8) /* sizes times what has the product's sign: pairs of products fit into 16 bits */
        b = _mm512_mask_sub_epi8(b, _mm512_movepi8_mask(a), _mm512_setzero_si512(), b), a = _mm512_abs_epi8(a);
    return sum + (fx_vi)_mm512_madd_epi16(_mm512_maddubs_epi16(a, b), _mm512_set1_epi16(1));
}
#endif
#elif FX_ISA_AVX2
#define FX_BYTE_OFFSET 0
FX_INLINE fx_vi fx_dot_fours(fx_vi sum, fx_vi w, fx_vi x, const int bits) {
    __m256i a = (__m256i)w, b = (__m256i)x;
    if (bits == 8) /* sizes times what has the product's sign: pairs of products fit into 16 bits */
        b = _mm256_sign_epi8(b, a), a = _mm256_abs_epi8(a);
    return sum + (fx_vi)_mm256_madd_epi16(_mm256_maddubs_epi16(a, b), _mm256_set1_epi16(1));
}
#else
#define FX_BYTE_OFFSET 0
FX_INLINE fx_vi fx_dot_fours(fx_vi sum, fx_vi w, fx_vi x, const int bits) {
    (void)bits;
    const int8x16_t a = (int8x16_t)w, b = (int8x16_t)x;
#ifdef __ARM_FEATURE_DOTPROD
    return vdotq_s32(sum, a, b);
#else
    const int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(a), vget_low_s8(b)));
    const int32x4_t high = vpaddlq_s16(vmull_high_s8(a, b));
    return sum + (fx_vi)vpaddq_s32(low, high);
#endif
}
#endif

/* Adds the products of four f of a block, f a constant, whose other factors are 4 of the 32 bytes at x. */
#if FX_ISA_NEON && defined __ARM_FEATURE_DOTPROD /* a lane of a vector serves as well as a vector of one lane's */
#define FX_DOT_FOUR(sum, w, x, f, bits) vdotq_laneq_s32(sum, (int8x16_t)(w), vld1q_s8((x) + (f) / 4 * 16), (f) % 4)
#else
#define FX_DOT_FOUR(sum, w, x, f, bits) fx_dot_fours(sum, w, fx_splat_int(*(const fx_four *)((x) + 4 * (f))), bits)
#endif

/* All products of a block: FX_FOURS vectors of weights, and the bytes of a row. */
FX_INLINE fx_vi fx_dot_block(fx_vi sum, const fx_vi *w, const int8_t *x, const int bits) {
#if FX_ISA_NEON && defined __ARM_FEATURE_DOTPROD /* a lane of a vector serves as well as a vector of one lane's */
    (void)bits;
    const int8x16_t low = vld1q_s8(x), high = vld1q_s8(x + 16);
    int32x4_t more = vdotq_laneq_s32(vdupq_n_s32(0), (int8x16_t)w[4], high, 0);
    sum = vdotq_laneq_s32(sum, (int8x16_t)w[0], low, 0), more = vdotq_laneq_s32(more, (int8x16_t)w[5], high, 1);
    sum = vdotq_laneq_s32(sum, (int8x16_t)w[1], low, 1), more = vdotq_laneq_s32(more, (int8x16_t)w[6], high, 2);
    sum = vdotq_laneq_s32(sum, (int8x16_t)w[2], low, 2), more = vdotq_laneq_s32(more, (int8x16_t)w[7], high, 3);
    return vdotq_laneq_s32(sum, (int8x16_t)w[3], low, 3) + more;
#else
    FX_UNROLL for (int f = 0; f < FX_FOURS; f++) sum =
        fx_dot_fours(sum, w[f], fx_splat_int(*(const fx_four *)(x + 4 * f)), bits);
    return sum;
#endif
}

/* The bytes of four rows of FX_NR channels each, a channel's four together: vector j of the panel, and the next one
 * where they are narrow. */
#if FX_ISA_AVX512
FX_INLINE void fx_turn_vectors(fx_vi *to, const unsigned char *from, const int j) {
    const __m512i gather = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    const __m512i order = _mm512_broadcast_i32x4(_mm_set_epi8(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0));
    const __m512i rows = _mm512_permutexvar_epi32(gather, _mm512_loadu_si512(from + j * FX_WIDTH));
    to[0] = (fx_vi)_mm512_shuffle_epi8(rows, order);
}
#elif FX_ISA_NEON
FX_INLINE void fx_turn_vectors(fx_vi *to, const unsigned char *from, const int j) {
    const int8_t *r = (const int8_t *)from + j * FX_WIDTH;
    const int8x8_t none = vdup_n_s8(0);
    const int8x16_t a = vcombine_s8(vld1_s8(r), none), b = vcombine_s8(vld1_s8(r + FX_NR), none);
    const int8x16_t c = vcombine_s8(vld1_s8(r + 2 * FX_NR), none), d = vcombine_s8(vld1_s8(r + 3 * FX_NR), none);
    const int16x8_t ab = vreinterpretq_s16_s8(vzip1q_s8(a, b)), cd = vreinterpretq_s16_s8(vzip1q_s8(c, d));
    to[0] = (fx_vi)vzip1q_s16(ab, cd), to[1] = (fx_vi)vzip2q_s16(ab, cd);
}
#endif

/* Those of all channels. */
FX_INLINE void fx_turn_four(void *to, const void *from) {
#if FX_ISA_AVX512
    fx_vi turned;
    fx_turn_vectors(&turned, from, 0);
    _mm512_storeu_si512(to, (__m512i)turned);
#elif FX_ISA_AVX2
    const __m128i *r = from;
    __m128i *t = to;
    const __m128i a = _mm_loadu_si128(r), b = _mm_loadu_si128(r + 1);
    const __m128i c = _mm_loadu_si128(r + 2), d = _mm_loadu_si128(r + 3);
    const __m128i ab = _mm_unpacklo_epi8(a, b), cd = _mm_unpacklo_epi8(c, d);
    const __m128i ef = _mm_unpackhi_epi8(a, b), gh = _mm_unpackhi_epi8(c, d);
    _mm_storeu_si128(t, _mm_unpacklo_epi16(ab, cd)), _mm_storeu_si128(t + 1, _mm_unpackhi_epi16(ab, cd));
    _mm_storeu_si128(t + 2, _mm_unpacklo_epi16(ef, gh)), _mm_storeu_si128(t + 3, _mm_unpackhi_epi16(ef, gh));
#else
    FX_UNROLL for (int j = 0; j < FX_NR / FX_WIDTH; j += 2) {
        fx_vi turned[2];
        fx_turn_vectors(turned, from, j);
        *(fx_viu *)((char *)to + 16 * j) = turned[0], *(fx_viu *)((char *)to + 16 * (j + 1)) = turned[1];
    }
#endif
}

#endif
