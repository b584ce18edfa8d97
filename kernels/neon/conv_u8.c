/* Products of bytes where there is no dot product: SMULL and SMLAL2 make two products of 8 bits a lane, which fit 16
 * bits unless both weights are -128, and SADALP adds pairs of them to the sums. Rows are 128 smaller, so that they are
 * signed. A vector holds 16 products of one output, so panels are laid out as [16 of depth][FX_NR][16]. */
#include "bytes.h"

#define ROWS 4

void FX_SYMBOL(lay_rows_u8)(const fx_lay_rows_u8 *l) {
    lay_rows(l, ROWS, 0x80);
}

/* Fours of 16 outputs, one after the other, become sixteens; what is missing of the last one is 0. */
void FX_SYMBOL(lay_panel_u8)(const fx_lay_panel_u8 *l) {
    const int32_t *from = (const int32_t *)(const void *)l->from;
    int32_t *to = (int32_t *)(void *)l->to;
    for (int64_t four = 0; four < l->fours; four += 4, to += 4 * FX_NR)
        for (int j = 0; j < FX_NR; j++)
            for (int k = 0; k < 4; k++)
                to[4 * j + k] = four + k < l->fours ? from[(four + k) * FX_NR + j] : 0;
}

#define STEP(x, b, s, SECOND)                                                                                          \
    do {                                                                                                               \
        int16x8_t pairs = vmull_s8(vget_low_s8(x), vget_low_s8(b));                                                    \
        SECOND(pairs, x, b, s);                                                                                        \
        s = vpadalq_s16(s, pairs);                                                                                     \
    } while (0)
#define BOTH(pairs, x, b, s) pairs = vmlal_high_s8(pairs, x, b)
#define APART(pairs, x, b, s) s = vpadalq_s16(s, vmull_high_s8(x, b))

/* Sums of four rows and of outputs [at, at + 4) of a panel. */
#define PRODUCTS(NAME, SECOND)                                                                                         \
    static void NAME(const int8_t *a, int64_t row, const int8_t *w, int64_t depth, int32x4_t *sums) {                  \
        int32x4_t s[ROWS][4];                                                                                          \
        FX_UNROLL for (int i = 0; i < ROWS; i++) FX_UNROLL for (int j = 0; j < 4; j++) s[i][j] = vdupq_n_s32(0);       \
        const int8_t *a1 = a + row, *a2 = a1 + row, *a3 = a2 + row;                                                    \
        for (int64_t q = 0; q < depth; q += 16, w += 16 * FX_NR) {                                                     \
            const int8x16_t x[ROWS] = {vld1q_s8(a + q), vld1q_s8(a1 + q), vld1q_s8(a2 + q), vld1q_s8(a3 + q)};         \
            FX_UNROLL for (int j = 0; j < 4; j++) {                                                                    \
                const int8x16_t b = vld1q_s8(w + 16 * j);                                                              \
                FX_UNROLL for (int i = 0; i < ROWS; i++) STEP(x[i], b, s[i][j], SECOND);                               \
            }                                                                                                          \
        }                                                                                                              \
        FX_UNROLL for (int i = 0; i < ROWS; i++) sums[i] =                                                             \
            vpaddq_s32(vpaddq_s32(s[i][0], s[i][1]), vpaddq_s32(s[i][2], s[i][3]));                                    \
    }
PRODUCTS(both_products, BOTH)
PRODUCTS(apart_products, APART)

void FX_SYMBOL(dot_u8)(const fx_dot_u8 *d) {
    const int64_t row = laid_row(d->runs, d->run);
    tile_sums sums;
    for (int32_t j = 0; j < d->panels; j++) {
        const int8_t *w = (const int8_t *)d->laid_w + j * d->laid_panel;
        for (int at = 0; at < FX_NR; at += 4) {
            int32x4_t four[ROWS];
            (d->is_symmetric ? both_products : apart_products)(d->laid, row, w + 16 * at, row, four);
            const int32x4_t start = start_of(d, j, at, 1);
            for (int i = 0; i < ROWS; i++)
                vst1q_s32(sums[i] + at, vaddq_s32(four[i], start));
        }
        finish_panel(d, j, sums);
    }
}
