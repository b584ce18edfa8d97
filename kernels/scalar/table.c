#include "flexnn/kernels.h"

FX_TABLE(4, 1);
