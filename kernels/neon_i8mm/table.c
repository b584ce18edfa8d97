/* Products of bytes are this level's own; sums of halves are neon_fp16's, every other kernel is neon's. */
#include "flexnn/kernels.h"

#define FX_NEON_PROTOTYPE(name, ret, args) ret fx_##name##_neon args;
FX_KERNELS_HERE(FX_NEON_PROTOTYPE)
FX_BYTE_KERNELS(FX_NEON_PROTOTYPE)
#define FX_FP16_PROTOTYPE(name, ret, args) ret fx_##name##_neon_fp16 args;
FX_KERNELS_HALVES(FX_FP16_PROTOTYPE)

#define FX_NEON_ENTRY(name, ret, args) .name = fx_##name##_neon,
#define FX_FP16_ENTRY(name, ret, args) .name = fx_##name##_neon_fp16,
const fx_kernels FX_SYMBOL(kernels) = {.level = FX_STRING(FX_LEVEL),
                                       .width = FX_WIDTH,
                                       .mr = 5,
                                       .panels = 1,
                                       .halves = 1,
                                       .bytes = &FX_SYMBOL(byte_kernels),
                                       FX_KERNELS_ALL(FX_NEON_ENTRY) FX_KERNELS_HALVES(FX_FP16_ENTRY)};
