/* Sums of halves are this level's own; products of bytes are neon_dot's, every other kernel is neon's. */
#include "flexnn/kernels.h"

#define FX_NEON_PROTOTYPE(name, ret, args) ret fx_##name##_neon args;
FX_KERNELS_ALL(FX_NEON_PROTOTYPE)
extern const fx_byte_kernels fx_byte_kernels_neon_dot;

#define FX_NEON_ENTRY(name, ret, args) .name = fx_##name##_neon,
const fx_kernels FX_SYMBOL(kernels) = {.level = FX_STRING(FX_LEVEL),
                                       .width = FX_WIDTH,
                                       .mr = 5,
                                       .panels = 1,
                                       .halves = 1,
                                       .bytes = &fx_byte_kernels_neon_dot,
                                       FX_KERNELS_ALL(FX_NEON_ENTRY) FX_KERNELS_HALVES(FX_TABLE_ENTRY)};
