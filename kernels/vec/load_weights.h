/* Stored weights (fx_wtype) as vectors of floats. */
#ifndef FLEXNN_VEC_LOAD_WEIGHTS_H
#define FLEXNN_VEC_LOAD_WEIGHTS_H

#include "simd.h"

#define VECTORS (FX_NR / FX_WIDTH) /* of a panel */

/* Bytes of a stored weight. */
FX_INLINE int weight_bytes(const int wtype) {
    return wtype == FX_WTYPE_F32 ? 4 : wtype == FX_WTYPE_F16 ? 2 : 1;
}

/* The FX_NR weights from `from` on. */
FX_INLINE void load_weights(fx_v *to, const unsigned char *from, const int wtype) {
    if (wtype == FX_WTYPE_F32) {
        FX_UNROLL for (int j = 0; j < VECTORS; j++) to[j] = fx_load((const float *)from + j * FX_WIDTH);
        return;
    }
#if FX_WIDTH == 16
    to[0] = wtype == FX_WTYPE_F16 ? _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from))
                                  : _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)from)));
#elif FX_WIDTH == 8
    FX_UNROLL for (int j = 0; j < VECTORS; j++) to[j] =
        wtype == FX_WTYPE_F16
            ? _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from + j))
            : _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(from + j * 8))));
#else
    if (wtype == FX_WTYPE_F16) {
        FX_UNROLL for (int j = 0; j < VECTORS; j++) to[j] =
            vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16_t *)from + j * 4)));
        return;
    }
    const int8x16_t bytes = vld1q_s8((const int8_t *)from);
    const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
    to[0] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), to[1] = vcvtq_f32_s32(vmovl_high_s16(low));
    to[2] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), to[3] = vcvtq_f32_s32(vmovl_high_s16(high));
#endif
}

#endif
