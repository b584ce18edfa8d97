/* The definition of transpose_u32 (kernels.h). */
#include "flexnn/kernels.h"

void FX_SYMBOL(transpose_u32)(const fx_transpose *t) {
    for (int64_t j = 0; j < t->columns; j++)
        for (int64_t i = 0; i < t->rows; i++)
            t->y[j * t->y_row + i] = t->x[i * t->x_row + j];
}
