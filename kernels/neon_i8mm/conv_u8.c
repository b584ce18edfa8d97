/* Products of bytes: USMMLA multiplies two rows of eight unsigned bytes by eight signed ones of two outputs. Rows are
 * laid out as [8 of depth][pair][2][8], panels as [8 of depth][pair of outputs][2][8]; a tile has 8 rows and half a
 * panel. */
#include "../neon/bytes.h"

#define ROWS BYTE_ROWS

/* Eights of a row that is laid out: as many as laid_row has bytes for. */
void FX_SYMBOL(lay_rows_u8)(const fx_lay_rows_u8 *l) {
    const int64_t eights = laid_row(l->runs, l->run) / 8;
    uint8_t *to = l->to;
    for (int32_t i = 0; i < ROWS; i++) {
        const int32_t row = i < l->rows ? i : l->rows - 1;
        uint8_t *at = to + i * 8;
        int64_t done = 0; /* bytes of the row */
        for (int32_t t = 0; t < l->runs; t++)
            for (int32_t q = 0; q < l->run; q += 4, done += 4)
                memcpy(at + done / 8 * 8 * ROWS + done % 8, l->a[t * l->rows + row] + q, 4);
        for (; done < eights * 8; done += 4)
            memset(at + done / 8 * 8 * ROWS + done % 8, 0, 4);
    }
}

void FX_SYMBOL(lay_panel_u8)(const fx_lay_panel_u8 *l) {
    const int32_t *from = (const int32_t *)(const void *)l->from;
    int32_t *to = (int32_t *)(void *)l->to;
    const int64_t fours = (l->fours + 3) / 4 * 4;
    for (int64_t four = 0; four < fours; four += 2, to += 2 * FX_NR)
        for (int j = 0; j < FX_NR; j++) {
            to[2 * j] = four < l->fours ? from[four * FX_NR + j] : 0;
            to[2 * j + 1] = four + 1 < l->fours ? from[(four + 1) * FX_NR + j] : 0;
        }
}

/* Sums of 8 rows and of 8 outputs: of a pair of rows and one of outputs, both of the first row, then of the second. */
static void products(const uint8_t *a, const int8_t *w, int64_t eights, int32x4_t s[4][4]) {
    int32x4_t sum[4][4];
    FX_UNROLL for (int i = 0; i < 4; i++) FX_UNROLL for (int j = 0; j < 4; j++) sum[i][j] = vdupq_n_s32(0);
    for (; eights > 0; eights--, a += 8 * ROWS, w += 8 * FX_NR) {
        uint8x16_t x[4];
        int8x16_t b[4];
        FX_UNROLL for (int i = 0; i < 4; i++) x[i] = vld1q_u8(a + 16 * i), b[i] = vld1q_s8(w + 16 * i);
        FX_UNROLL for (int i = 0; i < 4; i++) FX_UNROLL for (int j = 0; j < 4; j++) sum[i][j] =
            vusmmlaq_s32(sum[i][j], x[i], b[j]);
    }
    FX_UNROLL for (int i = 0; i < 4; i++) FX_UNROLL for (int j = 0; j < 4; j++) s[i][j] = sum[i][j];
}

FX_INLINE int32x4_t both_low(int32x4_t a, int32x4_t b) {
    return vreinterpretq_s32_s64(vzip1q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
}
FX_INLINE int32x4_t both_high(int32x4_t a, int32x4_t b) {
    return vreinterpretq_s32_s64(vzip2q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
}

void FX_SYMBOL(dot_u8)(const fx_dot_u8 *d) {
    const int64_t eights = laid_row(d->runs, d->run) / 8;
    tile_sums sums;
    for (int32_t j = 0; j < d->panels; j++) {
        const int8_t *w = (const int8_t *)d->laid_w + j * d->laid_panel;
        for (int at = 0; at < FX_NR; at += 8) {
            int32x4_t s[4][4];
            products(d->laid, w + 8 * at, eights, s);
            for (int i = 0; i < 4; i++)
                for (int k = 0; k < 2; k++) {
                    const int32x4_t start = start_of(d, j, at + 4 * k, 0);
                    vst1q_s32(sums[2 * i] + at + 4 * k, vaddq_s32(both_low(s[i][2 * k], s[i][2 * k + 1]), start));
                    vst1q_s32(sums[2 * i + 1] + at + 4 * k, vaddq_s32(both_high(s[i][2 * k], s[i][2 * k + 1]), start));
                }
        }
        finish_panel(d, j, sums);
    }
}
