/* The definition of few_rows_f32 (rows.h). */
#include "flexnn/kernels.h"

void FX_SYMBOL(few_rows_f32)(const fx_few_rows *f) {
    for (int32_t i = 0; i < f->rows; i++)
        for (int32_t j = 0; j < f->columns; j++) {
            const float *b = f->b + j * f->b_n;
            float sum = f->is_more ? f->c[i][j] : 0;
            for (int32_t q = 0; q < f->k; q++)
                sum += f->a[i][q] * b[q * f->b_k];
            f->c[i][j] = sum;
        }
}
