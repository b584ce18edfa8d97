#include "flexnn/kernels.h"

FX_BYTE_TABLE(4, 1, 1, FX_BYTE_KERNELS_LAYING(FX_TABLE_ENTRY).asks = 1);
