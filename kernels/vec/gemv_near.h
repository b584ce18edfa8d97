/* Products of one row with few weights, which wait in the core's nearest cache: gemv.c includes it where a vector is a
 * panel. Panels are read side by side, so that each of the row's values is read once for all of them, and nothing is
 * asked for ahead. Sums are those of multiply, bit for bit. */

#define NEAR_BYTES (32 << 10) /* of 48 KiB: the row, and what comes before and after it, have a place there, too */
#define NEAR_PANELS 4         /* STEPS sums for each are half of the registers */

FX_INLINE void multiply_near(const fx_gemv *g, const float *panel, int32_t column, const int P) {
    fx_v sum[NEAR_PANELS][STEPS];
    const float *row = g->a[0], *w = panel + g->head;
    FX_UNROLL for (int p = 0; p < P; p++) FX_UNROLL for (int s = 0; s < STEPS; s++) sum[p][s] = fx_splat(0);
    int32_t q = 0;
    for (; q + STEPS <= g->k; q += STEPS, w += STEPS * FX_NR)
        FX_UNROLL for (int s = 0; s < STEPS; s++) {
            const fx_v value = fx_splat(row[q + s]);
            FX_UNROLL for (int p = 0; p < P; p++) sum[p][s] += fx_load(w + p * g->w_panel + s * FX_NR) * value;
        }
    for (; q < g->k; q++, w += FX_NR)
        FX_UNROLL for (int p = 0; p < P; p++) sum[p][0] += fx_load(w + p * g->w_panel) * row[q];
    FX_UNROLL for (int p = 0; p < P; p++) finish(g, panel + p * g->w_panel, column + p * FX_NR, 0, 0, FX_WTYPE_F32,
                                                 (sum[p][0] + sum[p][2]) + (sum[p][1] + sum[p][3]));
}

static int is_near(const fx_gemv *g) {
    const int64_t panels = (g->columns + FX_NR - 1) / FX_NR;
    return g->all_rows == 1 && g->wtype == FX_WTYPE_F32 && g->taps == 1 && g->block >= g->k &&
           panels * g->w_panel * (int64_t)sizeof(float) <= NEAR_BYTES;
}

static void gemv_near(const fx_gemv *g) {
    const float *panel = g->w;
    int32_t column = 0;
    for (; column + NEAR_PANELS * FX_NR <= g->columns; column += NEAR_PANELS * FX_NR, panel += NEAR_PANELS * g->w_panel)
        multiply_near(g, panel, column, NEAR_PANELS);
    const int32_t left = g->columns - column;
    if (left > 3 * FX_NR)
        multiply_near(g, panel, column, 4);
    else if (left > 2 * FX_NR)
        multiply_near(g, panel, column, 3);
    else if (left > FX_NR)
        multiply_near(g, panel, column, 2);
    else if (left > 0)
        multiply_near(g, panel, column, 1);
}
