/* Products of bytes: SDOT adds four of them to each sum. Rows are 128 smaller, so that they are signed. A tile has 8
 * rows and half a panel: a lane of a row's vector stands against each vector of weights. */
#include "../neon/bytes.h"

#define ROWS BYTE_ROWS

void FX_SYMBOL(lay_rows_u8)(const fx_lay_rows_u8 *l) {
    lay_rows(l, ROWS, 0x80);
}

#define FOUR(L)                                                                                                        \
    do {                                                                                                               \
        const int8x16_t b0 = vld1q_s8(w + (L) * FX_FOUR_BYTES), b1 = vld1q_s8(w + (L) * FX_FOUR_BYTES + 16);           \
        FX_UNROLL for (int i = 0; i < ROWS; i++) {                                                                     \
            s[i][0] = vdotq_laneq_s32(s[i][0], b0, x[i], L);                                                           \
            s[i][1] = vdotq_laneq_s32(s[i][1], b1, x[i], L);                                                           \
        }                                                                                                              \
    } while (0)

/* Sums of 8 rows and of half a panel, added to `start`. */
static void products(const int8_t *a, int64_t row, const int8_t *w, int64_t fours, const int32x4_t *start,
                     tile_sums sums, int at) {
    int32x4_t s[ROWS][2];
    FX_UNROLL for (int i = 0; i < ROWS; i++) s[i][0] = start[0], s[i][1] = start[1];
    const int8_t *const r0 = a, *const r1 = r0 + row, *const r2 = r1 + row, *const r3 = r2 + row, *const r4 = r3 + row,
                        *const r5 = r4 + row, *const r6 = r5 + row, *const r7 = r6 + row;
    int64_t q = 0;
    for (; q + 4 <= fours; q += 4, w += 4 * FX_FOUR_BYTES) {
        const int64_t p = 4 * q;
        const int8x16_t x[ROWS] = {vld1q_s8(r0 + p), vld1q_s8(r1 + p), vld1q_s8(r2 + p), vld1q_s8(r3 + p),
                                   vld1q_s8(r4 + p), vld1q_s8(r5 + p), vld1q_s8(r6 + p), vld1q_s8(r7 + p)};
        FOUR(0);
        FOUR(1);
        FOUR(2);
        FOUR(3);
    }
    for (; q < fours; q++, w += FX_FOUR_BYTES) {
        const int8x16_t b0 = vld1q_s8(w), b1 = vld1q_s8(w + 16);
        FX_UNROLL for (int i = 0; i < ROWS; i++) {
            int32_t four;
            memcpy(&four, a + i * row + 4 * q, sizeof four);
            const int8x16_t x = vreinterpretq_s8_s32(vdupq_n_s32(four));
            s[i][0] = vdotq_s32(s[i][0], b0, x);
            s[i][1] = vdotq_s32(s[i][1], b1, x);
        }
    }
    FX_UNROLL for (int i = 0; i < ROWS; i++) {
        vst1q_s32(sums[i] + at, s[i][0]);
        vst1q_s32(sums[i] + at + 4, s[i][1]);
    }
}

void FX_SYMBOL(dot_u8)(const fx_dot_u8 *d) {
    const int64_t row = laid_row(d->runs, d->run), fours = (int64_t)d->runs * d->run / 4;
    tile_sums sums;
    for (int32_t j = 0; j < d->panels; j++) {
        const int8_t *w = (const int8_t *)d->w + j * d->w_panel + fx_byte_panel_head(d->finish.to);
        for (int at = 0; at < FX_NR; at += 8) {
            const int32x4_t start[] = {start_of(d, j, at, 1), start_of(d, j, at + 4, 1)};
            products(d->laid, row, w + 4 * at, fours, start, sums, at);
        }
        finish_panel(d, j, sums);
    }
}
