/* Products of bytes are this level's own; every other kernel is neon's. */
#include "flexnn/kernels.h"

#define FX_NEON_PROTOTYPE(name, ret, args) ret fx_##name##_neon args;
FX_KERNELS_HERE(FX_NEON_PROTOTYPE)
FX_BYTE_KERNELS(FX_NEON_PROTOTYPE)

#undef FX_TABLE_ENTRY
#define FX_TABLE_ENTRY(name, ret, args) .name = fx_##name##_neon,
FX_TABLE(5, 1);
