/* neon_inorder's kernels, sums of halves, which are neon_fp16's, and products of bytes, which are neon_dot's. */
#include "../neon/halves_table.h"

void fx_gemm_f32_neon_inorder(const fx_gemm *g);
void fx_wino_gemm_f32_neon_inorder(const fx_wino_gemm *g);
#define fx_gemm_f32_neon fx_gemm_f32_neon_inorder
#define fx_wino_gemm_f32_neon fx_wino_gemm_f32_neon_inorder

FX_HALVES_TABLE(fx_byte_kernels_neon_dot);
