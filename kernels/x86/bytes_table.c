#include "flexnn/kernels.h"

FX_BYTE_TABLE(2, 1, 2, .lay_rows_u8 = FX_SYMBOL(lay_rows_u8));
