/* The definition of gemv_f32 (panel.h). */
#include "finish.h"
#include "flexnn/kernels.h"
#include "flexnn/stored_weight.h"

/* Weight `at` of a form with blocks, times its scale and plus its minimum. */
static float of_block(const fx_gemv *g, const float *panel, int64_t at) {
    return fx_widened_scalar(panel + g->head, panel + g->scales, panel + g->minimum, at, g->wtype);
}

void FX_SYMBOL(gemv_f32)(const fx_gemv *g) {
    const int has_blocks = fx_weight_forms[g->wtype].block > 0;
    for (int32_t i = 0; i < g->rows; i++)
        for (int32_t j = 0; j < g->columns; j++) {
            const float *panel = g->w + j / FX_NR * g->w_panel;
            float sum = 0;
            int64_t at = j % FX_NR;
            for (int32_t q0 = 0; q0 < g->k; q0 += g->block) {
                int32_t q1 = g->k - q0 < g->block ? g->k : q0 + g->block;
                for (int32_t t = 0; t < g->taps; t++)
                    for (int32_t q = q0; q < q1; q++, at += FX_NR)
                        sum += g->a[t * g->rows + i][q] *
                               (has_blocks ? of_block(g, panel, at) : fx_weight_scalar(panel + g->head, at, g->wtype));
            }
            if (!has_blocks && fx_weight_forms[g->wtype].scales)
                sum *= panel[g->scales + j % FX_NR];
            float slope = g->finish.act == FX_ACT_PRELU ? panel[FX_NR + j % FX_NR] : g->finish.lo;
            float *c = &g->c[i][g->c_at + j];
            *c = fx_finish_scalar(&g->finish, g->head ? sum + panel[j % FX_NR] : sum,
                                  g->r ? &g->r[i][g->c_at + j] : NULL, slope);
        }
}
