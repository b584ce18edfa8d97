/* The products of int16 are this level's own; every other kernel is avx512's. */
#include "flexnn/kernels.h"

#define FX_AVX512_PROTOTYPE(name, ret, args) ret fx_##name##_avx512 args;
FX_KERNELS(FX_AVX512_PROTOTYPE)

#define fx_rows_s16_avx512 fx_rows_s16_avx512_vnni
#define fx_panel_s16_avx512 fx_panel_s16_avx512_vnni
#define fx_gemm_s16_avx512 fx_gemm_s16_avx512_vnni
#undef FX_TABLE_ENTRY
#define FX_TABLE_ENTRY(name, ret, args) .name = fx_##name##_avx512,
FX_TABLE(14, 2);
