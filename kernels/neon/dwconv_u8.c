/* Depthwise convolution of bytes, 16 channels at once: products of 16 bits, sums of 32. A panel's weights are widened
 * once for a strip. */
#include "bytes.h"

#define TAPS_MAX 49

extern void fx_dwconv_u8_scalar(const fx_dw_u8 *d);

/* [tap][FX_NR] of a panel; taps by columns. */
static void widen(const fx_dw_u8 *d, const char *panel, int16_t *to) {
    const int8_t *w = (const int8_t *)panel + fx_byte_panel_head(d->finish.to);
    for (int32_t kx = 0; kx < d->kw; kx++)
        for (int32_t ky = 0; ky < d->kh; ky += 4, w += FX_FOUR_BYTES) {
            const int8x16x4_t rows = vld4q_s8(w);
            for (int k = 0; k < 4 && ky + k < d->kh; k++, to += FX_NR) {
                vst1q_s16(to, vmovl_s8(vget_low_s8(rows.val[k])));
                vst1q_s16(to + 8, vmovl_high_s8(rows.val[k]));
            }
        }
}

/* The 16 channels of a tap, or those that are left. */
FX_INLINE uint8x16_t load_channels(const uint8_t *x, int n) {
    if (n >= FX_NR)
        return vld1q_u8(x);
    uint8_t part[FX_NR] = {0};
    memcpy(part, x, (size_t)n);
    return vld1q_u8(part);
}

void FX_SYMBOL(dwconv_u8)(const fx_dw_u8 *d) {
    int16_t weights[TAPS_MAX * FX_NR];
    if (d->kh * d->kw > TAPS_MAX) {
        fx_dwconv_u8_scalar(d);
        return;
    }
    for (int32_t j = 0; j < d->channels; j += FX_NR) {
        const char *panel = d->w + j / FX_NR * d->w_panel;
        const float *scales = (const float *)(const void *)panel + 2 * FX_NR;
        const int n = d->channels - j < FX_NR ? d->channels - j : FX_NR;
        widen(d, panel, weights);
        for (int32_t i = 0; i < d->pixels; i++) {
            int32x4_t s[4];
            FX_UNROLL for (int k = 0; k < 4; k++) s[k] = vld1q_s32((const int32_t *)(const void *)panel + 4 * k);
            const int16_t *w = weights;
            for (int32_t kx = 0; kx < d->kw; kx++) {
                const uint8_t *const *x = d->x + i * d->stride + kx * d->dilation;
                for (int32_t ky = 0; ky < d->kh; ky++, x += d->positions, w += FX_NR) {
                    const uint8x16_t bytes = load_channels(*x + d->at + j, n);
                    const int16x8_t low = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(bytes)));
                    const int16x8_t high = vreinterpretq_s16_u16(vmovl_high_u8(bytes));
                    const int16x8_t w0 = vld1q_s16(w), w1 = vld1q_s16(w + 8);
                    s[0] = vmlal_s16(s[0], vget_low_s16(low), vget_low_s16(w0));
                    s[1] = vmlal_high_s16(s[1], low, w0);
                    s[2] = vmlal_s16(s[2], vget_low_s16(high), vget_low_s16(w1));
                    s[3] = vmlal_high_s16(s[3], high, w1);
                }
            }
            int32_t sums[FX_NR];
            FX_UNROLL for (int k = 0; k < 4; k++) vst1q_s32(sums + 4 * k, s[k]);
            const int64_t at = i * d->y_step + j;
            if (d->finish.to == FX_DTYPE_F32)
                store_floats(&d->finish, sums, scales, scales + FX_NR, (float *)d->y + at, n);
            else
                store_finished(&d->finish, sums, scales, d->r ? d->r + i * d->r_step + j : NULL, (uint8_t *)d->y + at,
                               n);
        }
    }
}
