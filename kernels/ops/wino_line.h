/* Transforms of Winograd F(4, taps) in one dimension. */
#ifndef FLEXNN_OPS_WINO_LINE_H
#define FLEXNN_OPS_WINO_LINE_H

#include <stdint.h>

#define FX_LINE_OUT 4

static inline int fx_is_line_taps(int32_t taps) {
    return taps == 3 || taps == 5 || taps == 7;
}

typedef struct fx_wino_line {
    const float *input;  /* [taps + 3][taps + 3] */
    const float *weight; /* [taps + 3][taps] */
    const float *output; /* [4][taps + 3] */
} fx_wino_line;

/* Only for what fx_is_line_taps takes. */
fx_wino_line fx_wino_line_of(int32_t taps);

#endif
