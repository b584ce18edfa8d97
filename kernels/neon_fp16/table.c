/* Sums of halves are this level's own; products of bytes are neon_dot's, every other kernel is neon's. */
#include "../neon/halves_table.h"

FX_HALVES_TABLE(fx_byte_kernels_neon_dot);
