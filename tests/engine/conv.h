/* Parameters of a convolution of square maps, with a rectifier, for programs that tests make. */
#ifndef FLEXNN_TESTS_CONV_H
#define FLEXNN_TESTS_CONV_H

#include "flexnn/ops.h"
#include "flexnn/weight_form.h"

#include <string.h>

/* As many channels go in as come out, and the map keeps its size; kernel: its side, odd. */
static inline fx_params conv_params(int side, int channels, int kernel) {
    fx_params p;
    memset(&p, 0, sizeof p);
    p.conv = (fx_conv_params){.n = 1,
                              .h = side,
                              .w = side,
                              .cin = channels,
                              .oh = side,
                              .ow = side,
                              .cout = channels,
                              .kh = kernel,
                              .kw = kernel,
                              .sh = 1,
                              .sw = 1,
                              .dh = 1,
                              .dw = 1,
                              .pt = kernel / 2,
                              .pl = kernel / 2,
                              .group = 1,
                              .cin_panel = channels,
                              .cin_block = channels,
                              .nr = FX_NR,
                              .x_sn = side * side * channels,
                              .x_sh = side * channels,
                              .x_sw = channels,
                              .y_sn = side * side * channels,
                              .y_sh = side * channels,
                              .y_sw = channels,
                              .act = FX_ACT_RELU,
                              .tile_block = 1};
    return p;
}

#endif
