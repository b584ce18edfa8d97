/* Across the lanes of a vector of floats. */
#ifndef FLEXNN_VEC_LANES_H
#define FLEXNN_VEC_LANES_H

#include "exp.h"

/* The first n lanes of v, the others from `rest`; n may be FX_WIDTH or more. */
FX_INLINE fx_v fx_first(fx_v v, int n, fx_v rest) {
    static const int32_t numbers[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    fx_vi lane;
    __builtin_memcpy(&lane, numbers, sizeof lane);
    return fx_select(lane < n, v, rest);
}

#if FX_WIDTH == 4
FX_INLINE float fx_lanes_sum(fx_v v) {
    return vaddvq_f32(v);
}
/* A NaN if any lane is one. */
FX_INLINE float fx_lanes_max(fx_v v) {
    return vmaxvq_f32(v);
}
/* Any number if one is. */
FX_INLINE float fx_lanes_most(fx_v v) {
    return vmaxvq_f32(v);
}
#else
#if FX_WIDTH == 16
FX_INLINE float fx_lanes_sum(fx_v v) {
    return _mm512_reduce_add_ps(v);
}
FX_INLINE int fx_any_nan(fx_v v) {
    return _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q) != 0;
}
FX_INLINE float fx_lanes_most(fx_v v) {
    return _mm512_reduce_max_ps(v);
}
#else
FX_INLINE float fx_lanes_sum(fx_v v) {
    const __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
}
FX_INLINE int fx_any_nan(fx_v v) {
    return _mm256_movemask_ps(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)) != 0;
}
FX_INLINE float fx_lanes_most(fx_v v) {
    const __m128 half = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 pair = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
}
#endif
/* A NaN if any lane is one. */
FX_INLINE float fx_lanes_max(fx_v v) {
    return fx_any_nan(v) ? __builtin_nanf("") : fx_lanes_most(v);
}
#endif

#endif
