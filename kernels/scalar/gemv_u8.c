/* The definition of products of few rows of bytes (kernels.h). */
#include "flexnn/kernels.h"

#include <string.h>

void FX_SYMBOL(panel_s8)(const fx_panel_s8 *p) {
    for (int32_t j = 0; j < FX_NR; j++) {
        p->sums[j] = 0;
        for (int32_t q = 0; q < (p->depth + 3) / 4 * 4; q++) {
            const int8_t w = q < p->depth ? p->from[(int64_t)q * FX_NR + j] : 0;
            p->to[((int64_t)(q / 4) * FX_NR + j) * 4 + q % 4] = w;
            p->sums[j] += w;
        }
    }
}

void FX_SYMBOL(gemv_u8)(const fx_gemv_u8 *g) {
    for (int32_t i = 0; i < g->rows; i++)
        for (int32_t j = 0; j < g->columns; j++) {
            const int8_t *w = g->w + j / FX_NR * g->w_panel + (int64_t)(j % FX_NR) * 4;
            uint32_t sum = -(uint32_t)g->zero * (uint32_t)g->sums[j];
            for (int32_t q = 0; q < g->depth; q++)
                sum += (uint32_t)(g->a[i * g->a_row + q] * w[(int64_t)(q / 4) * 4 * FX_NR + q % 4]);
            int32_t whole_sum;
            memcpy(&whole_sum, &sum, sizeof sum);
            const float scale = g->scale * g->scales[j / FX_NR * g->scale_panel + j % FX_NR];
            g->c[i * g->c_row + j] = g->x[i * g->x_row + j] + scale * (float)whole_sum;
        }
}
