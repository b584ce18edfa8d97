#include "flexnn/kernels.h"

FX_TABLE(5, 1);
