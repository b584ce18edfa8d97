/* gconv_f32 for NEON: a group of 4 or 8 channels is one or two vectors, multiplied lane by lane; of groups of 2 the
 * even and the odd channels are doubled. */
#include "../vec/strip.h"

/* The sums of all taps t that see position p. */
#define EACH_TAP(N, T, S, product)                                                                                     \
    FX_UNROLL for (int t = 0; t < T; t++) if (p >= t && (p - t) % S == 0 && (p - t) / S < N) sum[(p - t) / S] = product

/* One row of T taps into N sums that are S positions apart; the weights of four channels stay in registers. */
#define MULTIPLY(N, T, S, POSITIONS, PIXEL)                                                                            \
    if (wide == 2) {                                                                                                   \
        float32x4_t tap[T][2];                                                                                         \
        FX_UNROLL for (int t = 0; t < T; t++) FX_UNROLL for (int k = 0; k < 2; k++) tap[t][k] =                        \
            vld1q_f32(w + (t * 2 + k) * FX_NR);                                                                        \
        FX_UNROLL for (int p = 0; p < POSITIONS; p++) {                                                                \
            const float32x4_t v = LOAD(full, (PIXEL) + d->at, j, d->channels);                                         \
            const float32x4_t even = vtrn1q_f32(v, v), odd = vtrn2q_f32(v, v);                                         \
            EACH_TAP(N, T, S, vfmaq_f32(sum[(p - t) / S], tap[t][0], even));                                           \
            EACH_TAP(N, T, S, vfmaq_f32(sum[(p - t) / S], tap[t][1], odd));                                            \
        }                                                                                                              \
    } else {                                                                                                           \
        const float *group = w;                                                                                        \
        const int64_t first = d->at + j / wide * wide;                                                                 \
        for (int q = 0; q < wide; q += 4, group += 4 * FX_NR) {                                                        \
            float32x4_t tap[T][4];                                                                                     \
            FX_UNROLL for (int t = 0; t < T; t++) FX_UNROLL for (int k = 0; k < 4; k++) tap[t][k] =                    \
                vld1q_f32(group + (t * wide + k) * FX_NR);                                                             \
            FX_UNROLL for (int p = 0; p < POSITIONS; p++) {                                                            \
                const float32x4_t v = vld1q_f32((PIXEL) + first + q);                                                  \
                EACH_TAP(N, T, S, vfmaq_laneq_f32(sum[(p - t) / S], tap[t][0], v, 0));                                 \
                EACH_TAP(N, T, S, vfmaq_laneq_f32(sum[(p - t) / S], tap[t][1], v, 1));                                 \
                EACH_TAP(N, T, S, vfmaq_laneq_f32(sum[(p - t) / S], tap[t][2], v, 2));                                 \
                EACH_TAP(N, T, S, vfmaq_laneq_f32(sum[(p - t) / S], tap[t][3], v, 3));                                 \
            }                                                                                                          \
        }                                                                                                              \
    }

#include "../vec/gconv.h"
