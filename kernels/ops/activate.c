/* Activations that the micro kernels leave to a pass over what they stored. */
#include "conv.h"

#include <math.h>

void fx_activate_row(const fx_kernels *k, int32_t act, float alpha, float beta, float *y, int64_t n) {
    (void)k;
    for (int64_t i = 0; i < n; i++) {
        const float v = y[i];
        switch (act) {
        case FX_ACT_SIGMOID:
            y[i] = 1 / (1 + expf(-v));
            break;
        case FX_ACT_HARDSIGMOID:
            y[i] = fmaxf(0, fminf(1, alpha * v + beta));
            break;
        case FX_ACT_HARDSWISH:
            y[i] = v * fmaxf(0, fminf(1, v / 6 + 0.5f));
            break;
        case FX_ACT_SILU:
            y[i] = v / (1 + expf(-v));
            break;
        case FX_ACT_TANH:
            y[i] = tanhf(v);
            break;
        default:
            break;
        }
    }
}
