/* Arm's intrinsics on another CPU, by SIMDe: the folders neon and neon_inorder unchanged, in tests only. */
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/arm/neon.h>

#ifndef vsqrtq_f32 /* SIMDe 0.7 */
#include <math.h>
#define vsqrtq_f32 fx_vsqrtq_f32
static inline float32x4_t fx_vsqrtq_f32(float32x4_t v) {
    for (int i = 0; i < 4; i++)
        v[i] = sqrtf(v[i]);
    return v;
}
#endif

#ifndef vcvtnq_s32_f32 /* SIMDe 0.7 */
#define vcvtnq_s32_f32 fx_vcvtnq_s32_f32
static inline int32x4_t fx_vcvtnq_s32_f32(float32x4_t v) {
    return vcvtq_s32_f32(vrndnq_f32(v));
}
#endif
