#include "flexnn/kernels.h"

/* The gemm tile keeps its sums in registers: 14 x 2 of 32 (AVX-512), 6 x 2 of 16 (AVX2). */
#if FX_ISA_AVX512
FX_TABLE(14, 2);
#else
FX_TABLE(6, 1);
#endif
