/* The table of a level that adds up halves: kernels of floats are neon's, sums of halves neon_fp16's. A level that has
 * others renames neon's names between this file and its table. */
#ifndef FLEXNN_NEON_HALVES_TABLE_H
#define FLEXNN_NEON_HALVES_TABLE_H

#include "flexnn/kernels.h"

#define FX_NEON_PROTOTYPE(name, ret, args) ret fx_##name##_neon args;
FX_KERNELS_ALL(FX_NEON_PROTOTYPE)
#define FX_FP16_PROTOTYPE(name, ret, args) ret fx_##name##_neon_fp16 args;
FX_KERNELS_HALVES(FX_FP16_PROTOTYPE)
extern const fx_byte_kernels fx_byte_kernels_neon_dot;

#define FX_NEON_ENTRY(name, ret, args) .name = fx_##name##_neon,
#define FX_FP16_ENTRY(name, ret, args) .name = fx_##name##_neon_fp16,
#define FX_HALVES_TABLE(byte_table)                                                                                    \
    const fx_kernels FX_SYMBOL(kernels) = {.level = FX_STRING(FX_LEVEL),                                               \
                                           .width = FX_WIDTH,                                                          \
                                           .mr = 5,                                                                    \
                                           .panels = 1,                                                                \
                                           .halves = 1,                                                                \
                                           .bytes = &(byte_table),                                                     \
                                           FX_KERNELS_ALL(FX_NEON_ENTRY) FX_KERNELS_HALVES(FX_FP16_ENTRY)}

#endif
