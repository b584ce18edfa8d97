/* The drivers of a convolution's kernels, that conv.c chooses from. */
#ifndef FLEXNN_OPS_CONV_H
#define FLEXNN_OPS_CONV_H

#include "conv_common.h"

uint32_t fx_conv_gemm_units(const fx_kernels *k, uint32_t kernel, const fx_conv_params *p, fx_window w, int threads);
int64_t fx_conv_gemm_workspace(const fx_kernels *k, uint32_t kernel, const fx_conv_params *p);
fx_status fx_conv_gemm_run(const fx_call *call, int threads, uint32_t u0, uint32_t u1);

uint32_t fx_conv_wino_units(const fx_kernels *k, uint32_t kernel, const fx_conv_params *p, fx_window w, int threads);
int64_t fx_conv_wino_workspace(const fx_kernels *k, uint32_t kernel, const fx_conv_params *p);
fx_status fx_conv_wino_run(const fx_call *call, int threads, uint32_t u0, uint32_t u1);

/* 1 if the output has so few pixels that reading the weights takes all the time. Only then conv_gemv.c computes it. */
int fx_conv_is_gemv(uint32_t kernel, const fx_conv_params *p);
uint32_t fx_conv_gemv_units(const fx_conv_params *p, fx_window w, int threads);
int64_t fx_conv_gemv_workspace(const fx_kernels *k, const fx_conv_params *p);
fx_status fx_conv_gemv_run(const fx_call *call, int threads, uint32_t u0, uint32_t u1);

/* 1 if rows are rounded to 8 bits. Only then conv_rounded.c computes it. */
int fx_conv_is_rounded(const fx_conv_params *p);
int fx_conv_rounded_fits(uint32_t kernel, const fx_conv_params *p);
uint32_t fx_conv_rounded_units(const fx_conv_params *p, fx_window w, int threads);
int64_t fx_conv_rounded_workspace(const fx_conv_params *p);
fx_status fx_conv_rounded_run(const fx_call *call, int threads, uint32_t u0, uint32_t u1);

/* 1 if the panels are those of narrow groups (fx_conv_panel_cin). Only then conv_group.c computes it. */
int fx_conv_is_narrow(const fx_conv_params *p);
int fx_conv_group_fits(const fx_conv_params *p);
uint32_t fx_conv_group_units(const fx_conv_params *p, fx_window w, int threads);
int64_t fx_conv_group_workspace(const fx_conv_params *p);
fx_status fx_conv_group_run(const fx_call *call, int threads, uint32_t u0, uint32_t u1);

/* Output channels that leave at least a quarter of a panel empty (kernel PLANAR). */
int fx_conv_planar_fits(const fx_conv_params *p);
uint32_t fx_conv_planar_units(const fx_conv_params *p, fx_window w, int threads);
int64_t fx_conv_planar_workspace(const fx_conv_params *p);
fx_status fx_conv_planar_run(const fx_call *call, int threads, uint32_t u0, uint32_t u1);

#endif
