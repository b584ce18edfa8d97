/* The definition of widen_f16 and narrow_f16 (kernels.h). */
#include "flexnn/half.h"
#include "flexnn/kernels.h"

void FX_SYMBOL(widen_f16)(const fx_widening *w) {
    for (int64_t r = 0; r < w->rows; r++)
        for (int64_t i = 0; i < w->n; i++)
            w->y[r * w->y_row + i] = (float)fx_half_to(w->x[r * w->x_row + i]);
}

int FX_SYMBOL(narrow_f16)(const fx_narrowing *n) {
    int is_beyond = 0;
    for (int64_t r = 0; r < n->rows; r++)
        for (int64_t i = 0; i < n->n; i++) {
            const float v = n->x[r * n->x_row + i];
            is_beyond |= fabsf(v) >= FX_F16_BEYOND && !isinf(v);
            n->y[r * n->y_row + i] = fx_half_from(v);
        }
    return is_beyond;
}
