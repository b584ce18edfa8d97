/* The definition of gemv_f32 (panel.h). */
#include "finish.h"
#include "weights.h"

void FX_SYMBOL(gemv_f32)(const fx_gemv *g) {
    for (int32_t i = 0; i < g->rows; i++)
        for (int32_t j = 0; j < g->columns; j++) {
            const float *panel = g->w + j / FX_NR * g->w_panel;
            float sum = 0;
            int64_t at = j % FX_NR;
            for (int32_t q0 = 0; q0 < g->k; q0 += g->block) {
                int32_t q1 = g->k - q0 < g->block ? g->k : q0 + g->block;
                for (int32_t t = 0; t < g->taps; t++)
                    for (int32_t q = q0; q < q1; q++, at += FX_NR)
                        sum += g->a[t * g->rows + i][q] * fx_weight_scalar(panel + g->head, at, g->wtype);
            }
            if (fx_weight_forms[g->wtype].scales)
                sum *= panel[g->scales + j % FX_NR];
            float slope = g->finish.act == FX_ACT_PRELU ? panel[FX_NR + j % FX_NR] : g->finish.lo;
            float *c = &g->c[i][g->c_at + j];
            *c = fx_finish_scalar(&g->finish, g->head ? sum + panel[j % FX_NR] : sum,
                                  g->r ? &g->r[i][g->c_at + j] : NULL, slope);
        }
}
