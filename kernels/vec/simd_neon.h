/* What NEON has an instruction for and the compiler no operator; simd.h says what each function means. */
#ifndef FLEXNN_VEC_SIMD_NEON_H
#define FLEXNN_VEC_SIMD_NEON_H

#include <arm_neon.h>

FX_INLINE fx_v fx_splat(float x) {
    return vdupq_n_f32(x);
}
FX_INLINE fx_v fx_max(fx_v a, fx_v b) {
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}
FX_INLINE fx_v fx_min(fx_v a, fx_v b) {
    return vbslq_f32(vcltq_f32(a, b), a, b);
}
FX_INLINE fx_v fx_max_nan(fx_v a, fx_v b) {
    return vmaxq_f32(a, b);
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
FX_INLINE void fx_load_f16(fx_v *to, const void *from) {
    FX_UNROLL for (int j = 0; j < 4; j++) to[j] =
        vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16((const uint16_t *)from + j * 4)));
}
FX_INLINE void fx_store_f16(void *to, const fx_v *from) {
    FX_UNROLL for (int j = 0; j < 4; j++) vst1_u16((uint16_t *)to + j * 4, vreinterpret_u16_f16(vcvt_f16_f32(from[j])));
}
FX_INLINE void fx_load_s8(fx_v *to, const void *from) {
    const int8x16_t bytes = vld1q_s8(from);
    const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
    to[0] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), to[1] = vcvtq_f32_s32(vmovl_high_s16(low));
    to[2] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), to[3] = vcvtq_f32_s32(vmovl_high_s16(high));
}

FX_INLINE fx_v fx_nibble(fx_vw group, const int i, const int has_sign) {
    const fx_vi whole = has_sign ? (fx_vi)(group << (28 - 4 * i)) >> 28 : (fx_vi)(group >> 4 * i & 15);
    return __builtin_convertvector(whole, fx_v);
}

FX_INLINE void fx_store_bytes(uint8_t *p, fx_v v, int zero) {
    const int16x4_t narrow = vmovn_s32(vaddq_s32(vcvtq_s32_f32(v), vdupq_n_s32(zero)));
    const int8x8_t low = vmovn_s16(vcombine_s16(narrow, narrow));
    const int32_t four = vget_lane_s32(vreinterpret_s32_s8(low), 0);
    __builtin_memcpy(p, &four, sizeof four);
}

FX_INLINE fx_v fx_sqrt(fx_v v) {
    return vsqrtq_f32(v);
}
FX_INLINE fx_v fx_floor(fx_v v) {
    return vrndmq_f32(v);
}
FX_INLINE fx_v fx_ceil(fx_v v) {
    return vrndpq_f32(v);
}
FX_INLINE fx_v fx_round(fx_v v) {
    return vrndnq_f32(v);
}

FX_INLINE float fx_lanes_sum(fx_v v) {
    return vaddvq_f32(v);
}
FX_INLINE float fx_lanes_most(fx_v v) {
    return vmaxvq_f32(v);
}
FX_INLINE float fx_lanes_max(fx_v v) {
    return vmaxvq_f32(v);
}

#endif
