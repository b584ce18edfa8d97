/* The products of integers are this level's own; every other kernel is avx512's. */
#include "flexnn/kernels.h"

#define FX_AVX512_PROTOTYPE(name, ret, args) ret fx_##name##_avx512 args;
FX_KERNELS_ALL(FX_AVX512_PROTOTYPE)

#define FX_AVX512_ENTRY(name, ret, args) .name = fx_##name##_avx512,
const fx_kernels FX_SYMBOL(kernels) = {.level = FX_STRING(FX_LEVEL),
                                       .width = FX_WIDTH,
                                       .mr = 14,
                                       .panels = 2,
                                       .bytes = &FX_SYMBOL(byte_kernels),
                                       FX_KERNELS_ALL(FX_AVX512_ENTRY) FX_KERNELS_PAIRS(FX_TABLE_ENTRY)
                                           FX_KERNELS_BYTES(FX_TABLE_ENTRY)};
