/* The definition of planar_f32 (kernels.h). */
#include "finish.h"

#define SETS 4 /* sums to which runs are added in turn, as in vec/run_sums.h */

void FX_SYMBOL(planar_f32)(const fx_planar *p) {
    for (int32_t c = 0; c < p->columns; c++)
        for (int32_t i = 0; i < p->pixels; i++) {
            const float *w = p->w + p->head + c;
            float sums[SETS] = {p->w[c]}, run = 0;
            int64_t terms = 0;
            for (int32_t ky = 0; ky < p->kh; ky++)
                for (int32_t kx = 0; kx < p->kw; kx++)
                    for (int32_t q = 0; q < p->cin; q++, w += FX_NR) {
                        run += p->x[ky * p->cin + q][p->at[kx] + i] * *w;
                        if (++terms % FX_GEMM_RUN == 0)
                            sums[terms / FX_GEMM_RUN % SETS] += run, run = 0;
                    }
            const float sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
            const int64_t to = c * p->y_row + i;
            const float slope = p->finish.act == FX_ACT_PRELU ? p->w[FX_NR + c] : p->finish.lo;
            p->y[to] = fx_finish_scalar(&p->finish, sum + run, p->r ? p->r + to : NULL, slope);
        }
}
