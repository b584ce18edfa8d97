/* Rates of this machine, for the planner's first guess of times. */
#ifndef FLEXNN_ENGINE_RATES_H
#define FLEXNN_ENGINE_RATES_H

#include "flexnn/ops.h"

/* flop/s of the gemm kernel on one thread, and bytes/s one thread reads from memory; about 2 ms. FX_ERR_MEMORY. */
fx_status fx_measure_rates(const fx_kernels *k, double *flops, double *bytes);

#endif
