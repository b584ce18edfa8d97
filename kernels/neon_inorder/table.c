/* The tiles are this level's own; every other kernel is neon's. */
#include "flexnn/kernels.h"

#define FX_NEON_PROTOTYPE(name, ret, args) ret fx_##name##_neon args;
FX_KERNELS_HERE(FX_NEON_PROTOTYPE)

#define fx_gemm_f32_neon fx_gemm_f32_neon_inorder
#define fx_wino_gemm_f32_neon fx_wino_gemm_f32_neon_inorder
extern const fx_byte_kernels fx_byte_kernels_neon;
#define fx_byte_kernels_neon_inorder fx_byte_kernels_neon
#undef FX_TABLE_ENTRY
#define FX_TABLE_ENTRY(name, ret, args) .name = fx_##name##_neon,
FX_TABLE(5, 1);
