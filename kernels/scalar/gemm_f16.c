/* The definition of gemm_f16 and dwconv_f16 (half_kernels.h). */
#include "flexnn/half.h"
#include "flexnn/kernels.h"

/* A fused multiply-add of halves: double holds the product exactly, and the sum so well that it is rounded once. */
static double fused(uint16_t a, uint16_t w, double sum) {
    return fx_half_to(fx_half_from(fx_half_to(a) * fx_half_to(w) + sum));
}

static float dot(const fx_gemm_f16 *g, int32_t i, int32_t j) {
    const uint16_t *w = g->w + j;
    float total = g->start[j];
    double half = 0;
    int32_t run = 0;
    for (int32_t q0 = 0; q0 < g->k; q0 += g->block) {
        const int32_t q1 = g->k - q0 < g->block ? g->k : q0 + g->block;
        for (int32_t t = 0; t < g->taps; t++) {
            const uint16_t *row = g->a[t * g->rows + i] + g->a_at;
            for (int32_t q = q0; q < q1;) {
                const int32_t n = q1 - q < FX_HALF_RUN ? q1 - q : FX_HALF_RUN;
                if (run + n > FX_HALF_RUN)
                    total += (float)half, half = 0, run = 0;
                for (int32_t end = q + n; q < end; q++, w += FX_NR)
                    half = fused(row[q], *w, half);
                run += n;
            }
        }
    }
    return total + (float)half;
}

int FX_SYMBOL(gemm_f16)(const fx_gemm_f16 *g) {
    int is_beyond = 0;
    for (int32_t i = 0; i < g->rows; i++)
        for (int32_t j = 0; j < FX_NR; j++) {
            const float total = dot(g, i, j);
            is_beyond |= !isfinite(total);
            g->c[i * g->c_row + j] = total;
        }
    return is_beyond;
}

int FX_SYMBOL(dwconv_f16)(const fx_dwconv_f16 *d) {
    int is_beyond = 0;
    for (int32_t i = 0; i < d->pixels; i++)
        for (int32_t j = 0; j < d->channels; j++) {
            double half = 0;
            for (int32_t t = 0; t < d->taps; t++)
                half = fused(d->x[t * d->pixels + i][d->at + j], d->w[t * FX_NR + j], half);
            const float total = d->start[j] + (float)half;
            is_beyond |= !isfinite(total);
            d->y[i * d->y_step + j] = total;
        }
    return is_beyond;
}
