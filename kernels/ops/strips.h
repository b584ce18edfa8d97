/* What depthwise convolution (dwconv.c) and that of narrow groups (conv_group.c) share: p's window over strips of
 * output pixels. Each channel sees the `wide` channels of its group. */
#ifndef FLEXNN_OPS_STRIPS_H
#define FLEXNN_OPS_STRIPS_H

#include "conv_common.h"

/* 1 if a strip's input pixels can be counted in 32 bits. Only for strides, taps and dilations of at least 1. */
int fx_strips_fit(const fx_dwconv_params *p);
int64_t fx_strips_workspace(const fx_dwconv_params *p, int32_t wide);
uint32_t fx_strips_units(const fx_dwconv_params *p, int32_t wide, fx_window w, int threads);
void fx_strips_run(const fx_call *call, const fx_dwconv_params *p, int32_t wide, int threads, uint32_t u0, uint32_t u1);

#endif
