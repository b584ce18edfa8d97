/* neon_inorder's kernels, sums of halves, which are neon_fp16's, and products of bytes, which are neon_dot's. */
#include "flexnn/kernels.h"

#define FX_NEON_PROTOTYPE(name, ret, args) ret fx_##name##_neon args;
FX_KERNELS_ALL(FX_NEON_PROTOTYPE)
#define FX_FP16_PROTOTYPE(name, ret, args) ret fx_##name##_neon_fp16 args;
FX_KERNELS_HALVES(FX_FP16_PROTOTYPE)
void fx_gemm_f32_neon_inorder(const fx_gemm *g);
void fx_wino_gemm_f32_neon_inorder(const fx_wino_gemm *g);
extern const fx_byte_kernels fx_byte_kernels_neon_dot;

#define fx_gemm_f32_neon fx_gemm_f32_neon_inorder
#define fx_wino_gemm_f32_neon fx_wino_gemm_f32_neon_inorder
#define FX_NEON_ENTRY(name, ret, args) .name = fx_##name##_neon,
#define FX_FP16_ENTRY(name, ret, args) .name = fx_##name##_neon_fp16,
const fx_kernels FX_SYMBOL(kernels) = {.level = FX_STRING(FX_LEVEL),
                                       .width = FX_WIDTH,
                                       .mr = 5,
                                       .panels = 1,
                                       .halves = 1,
                                       .bytes = &fx_byte_kernels_neon_dot,
                                       FX_KERNELS_ALL(FX_NEON_ENTRY) FX_KERNELS_HALVES(FX_FP16_ENTRY)};
