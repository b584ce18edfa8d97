#include "flexnn/kernels.h"

/* What is done to each byte is avx512's. */
#define FX_AVX512_PROTOTYPE(name, ret, args) ret fx_##name##_avx512 args;
FX_BYTE_KERNELS(FX_AVX512_PROTOTYPE)
#define fx_binary_u8_avx512_vnni fx_binary_u8_avx512
#define fx_table_u8_avx512_vnni fx_table_u8_avx512
#define fx_pool_u8_avx512_vnni fx_pool_u8_avx512
#define fx_resize_u8_avx512_vnni fx_resize_u8_avx512
FX_BYTE_TABLE(14, 2, 0, FX_BYTE_KERNELS_DIGITS(FX_TABLE_ENTRY));
