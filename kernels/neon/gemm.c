/* gemm_f32 for cores that execute out of order: Cortex-A72, A76, X1 and their like. */
#define AHEAD(R, n)
#include "gemm.h"
