/* The definition of pool_f32 (kernels.h). Rows are summed apart, so that errors grow with the sides of a big window. */
#include "flexnn/kernels.h"

#include <math.h>

void FX_SYMBOL(pool_f32)(const fx_pool *p) {
    for (int32_t j = 0; j < p->channels; j++) {
        float max = -INFINITY, sum = 0;
        for (int32_t r = 0; r < p->rows; r++) {
            float row = 0;
            for (int32_t i = 0; i < p->pixels; i++) {
                const float v = p->x[r * p->x_row + i * p->x_pixel + j];
                max = v > max || v != v ? v : max;
                row += v;
            }
            sum += row;
        }
        p->y[j] = p->kind == FX_POOL_MAX ? max : sum * p->scale;
    }
}
