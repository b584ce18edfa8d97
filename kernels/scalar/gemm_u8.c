/* The definition of products of bytes (kernels.h). */
#include "finish.h"

#include <string.h>

#define MOST (1 << 20) /* farther than any whole number that is right */

static int32_t whole(float v) {
    const float above = v > -MOST ? v : -MOST;
    return (int32_t)(above < MOST ? above : MOST);
}

void FX_SYMBOL(rows_u8)(const fx_rows_u8 *r) {
    for (int32_t i = 0; i < r->rows; i++) {
        int32_t least = MOST;
        for (int32_t t = 0; t < r->taps; t++)
            for (int32_t q = 0; q < r->k; q++) {
                const int32_t v = whole(r->a[t * r->rows + i][r->a_at + q]);
                least = v < least ? v : least;
            }
        r->least[i] = least;
        uint8_t *to = r->to + i * r->to_row;
        for (int32_t q0 = 0; q0 < r->k; q0 += r->block)
            for (int32_t t = 0; t < r->taps; t++)
                for (int32_t q = q0; q < r->k && q < q0 + r->block; q++) {
                    const int32_t v = whole(r->a[t * r->rows + i][r->a_at + q]) - least;
                    *to++ = (uint8_t)(v < 255 ? v : 255);
                }
        memset(to, 0, (size_t)(r->to + (i + 1) * r->to_row - to));
    }
}

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

void FX_SYMBOL(gemm_u8)(const fx_gemm_u8 *g) {
    for (int32_t i = 0; i < g->rows; i++)
        for (int32_t j = 0; j < g->columns; j++) {
            const uint8_t *a = g->a + i * g->a_row;
            const int8_t *w = g->w + j / FX_NR * g->w_panel;
            const float *head = g->head + j / FX_NR * g->head_panel + j % FX_NR;
            uint32_t sum = g->sums ? (uint32_t)g->least[i] * (uint32_t)g->sums[j] : 0;
            for (int32_t q = 0; q < g->depth && g->sums; q++)
                sum += (uint32_t)(a[q] * w[((int64_t)(q / 4) * FX_NR + j % FX_NR) * 4 + q % 4]);
            for (int32_t q = 0; q < g->depth && !g->sums; q++)
                sum += (uint32_t)((a[q] + g->least[i]) * w[(int64_t)q * FX_NR + j % FX_NR]);
            int32_t whole_sum;
            memcpy(&whole_sum, &sum, sizeof sum);
            const float slope = g->finish.act == FX_ACT_LEAKY_RELU ? g->finish.lo
                                : g->finish.act == FX_ACT_PRELU    ? head[FX_NR]
                                                                   : 0;
            const float v = head[0] + head[g->scales] * (float)whole_sum;
            g->c[i][g->c_at + j] = fx_finish_scalar(&g->finish, v, g->r ? &g->r[i][g->c_at + j] : NULL, slope);
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
