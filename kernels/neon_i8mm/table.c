/* Products of bytes are this level's own; sums of halves are neon_fp16's, every other kernel is neon's. */
#include "../neon/halves_table.h"

FX_HALVES_TABLE(FX_SYMBOL(byte_kernels));
