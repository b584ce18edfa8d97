/* The definition of binary_f32 (kernels.h). */
#include "flexnn/kernels.h"

#include <math.h>

static float apply(int32_t kind, float a, float b) {
    switch (kind) {
    case FX_BINARY_ADD:
        return a + b;
    case FX_BINARY_SUB:
        return a - b;
    case FX_BINARY_MUL:
        return a * b;
    case FX_BINARY_DIV:
        return a / b;
    case FX_BINARY_MAX: /* a NaN on either side stays */
        return a != a || a > b ? a : b;
    case FX_BINARY_MIN:
        return a != a || a < b ? a : b;
    case FX_BINARY_POW:
        return powf(a, b);
    default: /* PRELU */
        return a < 0 ? a * b : a;
    }
}

void FX_SYMBOL(binary_f32)(const fx_binary *p) {
    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t i = 0; i < p->n; i++) {
            float v = apply(p->kind, p->a[r * p->a_row + i * p->a_step], p->b[r * p->b_row + i * p->b_step]);
            v = v < p->lo ? p->lo : v;
            p->y[r * p->y_row + i * p->y_step] = v > p->hi ? p->hi : v;
        }
}
