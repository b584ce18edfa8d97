/* A product of one row with weights of 8 bits, AVX-512: gemv.c includes it. The conversion of weights to floats takes
 * the time, and vectors of 256 bits convert faster than those of 512 (docs/kernels.md). */

/* The weights of one channel, times its value. */
FX_INLINE void add_channel(__m256 *sum, const unsigned char *from, float x) {
    FX_UNROLL for (int j = 0; j < 2; j++) {
        const __m256i whole = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(from + 8 * j)));
        sum[j] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(whole), _mm256_set1_ps(x), sum[j]);
    }
}

static void gemv_s8(const fx_gemv *g) {
    const float *panel = g->w;
    for (int32_t column = 0; column < g->columns; column += FX_NR, panel += g->w_panel) {
        const unsigned char *from = (const unsigned char *)(panel + g->head);
        __m256 sum[STEPS][2];
        FX_UNROLL for (int s = 0; s < STEPS; s++) sum[s][0] = sum[s][1] = _mm256_setzero_ps();
        for (int32_t q0 = 0; q0 < g->k; q0 += g->block) {
            const int32_t n = g->k - q0 < g->block ? g->k - q0 : g->block;
            for (int32_t t = 0; t < g->taps; t++) {
                const float *row = g->a[t] + q0;
                int32_t q = 0;
                for (; q + STEPS <= n; q += STEPS, from += STEPS * FX_NR) {
                    look_ahead(from, FX_WTYPE_S8);
                    FX_UNROLL for (int s = 0; s < STEPS; s++) add_channel(sum[s], from + s * FX_NR, row[q + s]);
                }
                for (; q < n; q++, from += FX_NR)
                    add_channel(sum[0], from, row[q]);
            }
        }
        FX_UNROLL for (int j = 0; j < 2; j++) sum[0][j] = (sum[0][j] + sum[2][j]) + (sum[1][j] + sum[3][j]);
        const __m512 low = _mm512_castps256_ps512(sum[0][0]);
        finish(g, panel, column, 0, 0, FX_WTYPE_S8, _mm512_insertf32x8(low, sum[0][1], 1));
    }
}
