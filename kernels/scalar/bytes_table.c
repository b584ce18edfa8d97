#include "flexnn/kernels.h"

FX_BYTE_TABLE(4, 1, 0);
