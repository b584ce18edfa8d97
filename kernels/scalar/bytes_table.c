#include "flexnn/kernels.h"

FX_BYTE_TABLE(4, 1, 0, FX_BYTE_KERNELS_DIGITS(FX_TABLE_ENTRY));
