/* The definition of products of pairs of int16 (kernels.h). */
#include "flexnn/kernels.h"

#include <string.h>

static int16_t whole(float v) {
    const float above = v > -32768 ? v : -32768;
    return (int16_t)(above < 32767 ? above : 32767);
}

void FX_SYMBOL(rows_s16)(const fx_rows_s16 *r) {
    for (int32_t i = 0; i < r->rows; i++) {
        int16_t *to = r->to + i * r->to_row;
        for (int32_t q0 = 0; q0 < r->k; q0 += r->block)
            for (int32_t t = 0; t < r->taps; t++)
                for (int32_t q = q0; q < r->k && q < q0 + r->block; q++)
                    *to++ = whole(r->a[t * r->rows + i][r->a_at + q]);
        *to = 0; /* behind an odd depth; else the next row begins here */
    }
}

void FX_SYMBOL(panel_s16)(const fx_panel_s16 *p) {
    for (int32_t q = 0; q < p->depth + p->depth % 2; q++)
        for (int32_t j = 0; j < FX_NR; j++)
            p->to[((int64_t)(q / 2) * FX_NR + j) * 2 + q % 2] =
                q < p->depth ? whole(p->from[(int64_t)q * FX_NR + j]) : 0;
}

void FX_SYMBOL(gemm_s16)(const fx_gemm_s16 *g) {
    for (int32_t i = 0; i < g->rows; i++)
        for (int32_t j = 0; j < g->columns; j++) {
            int32_t *c = &g->c[i][g->c_at + j];
            const int16_t *a = g->a + i * g->a_row;
            const int16_t *w = g->w + j / FX_NR * g->w_panel + (int64_t)(j % FX_NR) * 2;
            uint32_t sum = g->is_more ? (uint32_t)*c : 0;
            for (int32_t q = 0; q < g->depth; q++)
                sum += (uint32_t)(a[q] * w[(int64_t)(q / 2) * 2 * FX_NR + q % 2]);
            memcpy(c, &sum, sizeof *c);
        }
}
