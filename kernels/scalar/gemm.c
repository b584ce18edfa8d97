/* The definition of gemm_f32 (kernels.h). */
#include "finish.h"

#define SETS 4 /* sums to which runs are added in turn, as in vec/run_sums.h */

void FX_SYMBOL(gemm_f32)(const fx_gemm *g) {
    for (int32_t i = 0; i < g->rows; i++)
        for (int32_t j = 0; j < g->columns; j++) {
            const float *panel = g->w + j / FX_NR * g->w_panel;
            const float *w = panel + g->head + j % FX_NR;
            float sums[SETS] = {g->head ? panel[j % FX_NR] : 0}, run = 0;
            int64_t terms = 0;
            for (int32_t q0 = 0; q0 < g->k; q0 += g->block) {
                int32_t q1 = g->k - q0 < g->block ? g->k : q0 + g->block;
                for (int32_t t = 0; t < g->taps; t++) {
                    const float *const *a = g->a + (g->a_step ? t : t * g->rows);
                    const float *row = !*a ? NULL : g->a_step ? *a + i * g->a_step : a[i];
                    for (int32_t q = q0; q < q1; q++, w += FX_NR) {
                        if (row)
                            run += row[g->a_at + q] * *w;
                        if (++terms % FX_GEMM_RUN == 0)
                            sums[terms / FX_GEMM_RUN % SETS] += run, run = 0;
                    }
                }
            }
            const float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
            float slope = g->finish.act == FX_ACT_PRELU ? panel[FX_NR + j % FX_NR] : g->finish.lo;
            g->c[i][g->c_at + j] = fx_finish_scalar(&g->finish, sum + run, g->r ? &g->r[i][g->c_at + j] : NULL, slope);
        }
}
