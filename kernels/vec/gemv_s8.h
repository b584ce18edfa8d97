/* A product of one row with weights of 8 bits, AVX-512: gemv.c includes it. The conversion of weights to floats takes
 * the time, and vpmovsxbd and vcvtdq2ps would use the same two of Zen 4's four pipes. Here the 16 columns of 4 channels
 * are one vector of 32-bit lanes [channel][column / 4], and bytes are taken out by logic, which every pipe does: byte p
 * of each lane, signed, times SCALE[p], is a float after two operations, and sums[p] holds columns 4 j + p. Sums of
 * numbers above 2^96 overflow in this form. */

/* Byte p keeps its place in the lane. The lower two become the mantissa of 2^23 + byte + 128 (times 256), which is
 * subtracted again; the upper two are integers whose lower bits are 0. */
FX_INLINE fx_v byte_of(__m512i lanes, const int p) {
    const __m512i third = _mm512_broadcast_i32x4(_mm_set_epi32(0x0effffff, 0x0affffff, 0x06ffffff, 0x02ffffff));
    if (p == 2)
        return _mm512_cvtepi32_ps(_mm512_shuffle_epi8(lanes, third));
    if (p == 3)
        return _mm512_cvtepi32_ps(_mm512_and_si512(lanes, _mm512_set1_epi32((int)0xff000000)));
    const int sign = 0x80 << 8 * p;
    const __m512i mask = _mm512_set1_epi32(0xff << 8 * p), base = _mm512_set1_epi32(0x4b000000 | sign);
    const __m512i biased = _mm512_ternarylogic_epi32(lanes, mask, base, 0x6a); /* (lanes & mask) ^ base */
    return _mm512_castsi512_ps(biased) - (0x1p23f + (float)sign);
}

/* 4 channels: their weights, and the row's values of 16 channels of which these are the ones from 4 * quarter on. */
FX_INLINE void add_channels(fx_v *sums, __m512i lanes, fx_v row, const int quarter) {
    const __m512i of_lane = _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0);
    const fx_v x = _mm512_permutexvar_ps(_mm512_add_epi32(of_lane, _mm512_set1_epi32(4 * quarter)), row);
    FX_UNROLL for (int p = 0; p < 4; p++) sums[p] += byte_of(lanes, p) * x;
}

/* The sums of the four channels of a lane side by side, and their columns in order. */
FX_INLINE fx_v in_order(const fx_v *sums) {
    const float scale[4] = {1, 0x1p-8f, 0x1p-24f, 0x1p-24f};
    __m128 part[4];
    FX_UNROLL for (int p = 0; p < 4; p++) {
        const __m512 sum = sums[p] * scale[p];
        const __m256 half = _mm512_castps512_ps256(sum) + _mm512_extractf32x8_ps(sum, 1);
        part[p] = _mm256_castps256_ps128(half) + _mm256_extractf128_ps(half, 1);
    }
    _MM_TRANSPOSE4_PS(part[0], part[1], part[2], part[3]);
    const __m256 low = _mm256_insertf128_ps(_mm256_castps128_ps256(part[0]), part[1], 1);
    const __m256 high = _mm256_insertf128_ps(_mm256_castps128_ps256(part[2]), part[3], 1);
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}

static void gemv_s8(const fx_gemv *g) {
    const float *panel = g->w;
    for (int32_t column = 0; column < g->columns; column += FX_NR, panel += g->w_panel) {
        const unsigned char *from = (const unsigned char *)(panel + g->head);
        fx_v sums[4];
        FX_UNROLL for (int p = 0; p < 4; p++) sums[p] = fx_splat(0);
        for (int32_t q0 = 0; q0 < g->k; q0 += g->block) {
            const int32_t n = g->k - q0 < g->block ? g->k - q0 : g->block;
            for (int32_t t = 0; t < g->taps; t++) {
                const float *row = g->a[t] + q0;
                int32_t q = 0;
                for (; q + 16 <= n; q += 16) {
                    const fx_v x = fx_load(row + q);
                    FX_UNROLL for (int quarter = 0; quarter < 4; quarter++, from += 4 * FX_NR) {
                        look_ahead(from, FX_WTYPE_S8);
                        add_channels(sums, _mm512_loadu_si512(from), x, quarter);
                    }
                }
                for (; q < n; q += 4) { /* channels that are missing are zeros, not read */
                    const int left = n - q < 4 ? n - q : 4;
                    const __mmask16 lanes = (__mmask16)((1u << 4 * left) - 1);
                    add_channels(sums, _mm512_maskz_loadu_epi32(lanes, from), fx_load_part(row + q, left), 0);
                    from += left * FX_NR;
                }
            }
        }
        finish(g, panel, column, 0, 0, FX_WTYPE_S8, in_order(sums));
    }
}
