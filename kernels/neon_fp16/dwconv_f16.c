/* dwconv_f16 of NEON: a panel's channels as two vectors, or what there is of them. */
#include <arm_neon.h>

#include "flexnn/kernels.h"

#define LANES 8
#define PIXELS 4 /* at a time: a vector of weights serves so many sums */

/* Adds up `count` pixels, for LANES channels from j on: what is not finite makes the result NaNs. Halves behind the
 * last channel are not touched. */
static float32x4_t pixels(const fx_dwconv_f16 *d, int first, int count, int j) {
    const int n = d->channels - j < LANES ? d->channels - j : LANES;
    float16x8_t sum[PIXELS];
    float32x4_t beyond = vdupq_n_f32(0);
    for (int i = 0; i < PIXELS; i++)
        sum[i] = vdupq_n_f16(0);
    for (int t = 0; t < d->taps; t++) {
        const float16x8_t w = vreinterpretq_f16_u16(vld1q_u16(d->w + t * FX_NR + j));
        for (int i = 0; i < PIXELS; i++) {
            const uint16_t *x = d->x[t * d->pixels + first + (i < count ? i : 0)] + d->at + j;
            uint16x8_t v = vdupq_n_u16(0);
            if (n == LANES)
                v = vld1q_u16(x);
            else
                __builtin_memcpy(&v, x, (size_t)n * sizeof *x);
            sum[i] = vfmaq_f16(sum[i], vreinterpretq_f16_u16(v), w);
        }
    }
    for (int i = 0; i < count; i++) {
        float32x4_t made[2] = {vcvt_f32_f16(vget_low_f16(sum[i])), vcvt_high_f32_f16(sum[i])};
        for (int h = 0; h < 2; h++) {
            made[h] = vaddq_f32(vld1q_f32(d->start + j + h * 4), made[h]);
            beyond = vfmaq_f32(beyond, made[h], vdupq_n_f32(0));
        }
        __builtin_memcpy(d->y + (first + i) * d->y_step + j, made, (size_t)n * sizeof(float));
    }
    return beyond;
}

int FX_SYMBOL(dwconv_f16)(const fx_dwconv_f16 *d) {
    float32x4_t beyond = vdupq_n_f32(0);
    for (int i = 0; i < d->pixels; i += PIXELS)
        for (int j = 0; j < d->channels; j += LANES)
            beyond = vaddq_f32(beyond, pixels(d, i, d->pixels - i < PIXELS ? d->pixels - i : PIXELS, j));
    return vaddvq_f32(beyond) != 0;
}
