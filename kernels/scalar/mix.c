/* The definition of mix_f32 (kernels.h). */
#include "finish.h"

void FX_SYMBOL(mix_f32)(const fx_mix *m) {
    for (int64_t j = 0; j < m->n; j++)
        for (int32_t q = 0; q < m->to; q++) {
            float sum = m->panel ? m->panel[j] : 0;
            for (int32_t i = 0; i < m->from; i++)
                sum += m->m[q * m->from + i] * m->x[i][j];
            if (m->panel)
                sum = fx_finish_scalar(&m->finish, sum, m->r ? &m->r[q][j] : NULL,
                                       m->finish.act == FX_ACT_PRELU ? m->panel[FX_NR + j] : m->finish.lo);
            m->y[q][j] = sum;
        }
}
