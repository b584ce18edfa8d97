/* gconv_f32 for NEON: a group of 4 or 8 channels is one or two vectors, multiplied lane by lane. For groups of 2 there
 * are sums for the even and for the odd outputs, each with a term of either input channel: x is multiplied as it is,
 * and the halves are added at the end. */
#include "../vec/strip.h"

/* The sums of all taps t that see position p. */
#define EACH_TAP(N, T, S, product)                                                                                     \
    FX_UNROLL for (int t = 0; t < T; t++) if (p >= t && (p - t) % S == 0 && (p - t) / S < N) sum[(p - t) / S] = product

#define PAIRED(wide) ((wide) == 2)
#define JOIN(sum, other) vaddq_f32(vtrn1q_f32(sum, other), vtrn2q_f32(sum, other))

/* In assembly as in gemm.h, as gcc 12 would copy sums around. */
#ifdef __aarch64__
#define FMLA(sum, w, v) __asm__("fmla %0.4s, %1.4s, %2.4s" : "+w"(sum) : "w"(w), "w"(v))
#else
#define FMLA(sum, w, v) (sum) = vfmaq_f32(sum, w, v)
#endif

/* The sums of all taps t that see position p, of outputs 0, 0, 2, 2 and of 1, 1, 3, 3. */
#define EACH_PAIR(N, T, S)                                                                                             \
    FX_UNROLL for (int t = 0; t < T; t++) if (p >= t && (p - t) % S == 0 && (p - t) / S < N) {                         \
        FMLA(sum[(p - t) / S], even[t], v);                                                                            \
        FMLA(other[(p - t) / S], odd[t], v);                                                                           \
    }

/* One row of T taps into N sums that are S positions apart; the weights of four channels stay in registers. */
#define MULTIPLY(N, T, S, POSITIONS, PIXEL)                                                                            \
    if (paired) {                                                                                                      \
        const int64_t from = (d->at + j) * (int64_t)sizeof(float);                                                     \
        float32x4_t even[T], odd[T];                                                                                   \
        FX_UNROLL for (int t = 0; t < T; t++) {                                                                        \
            const float32x4_t first = vld1q_f32(w + t * 2 * FX_NR), second = vld1q_f32(w + (t * 2 + 1) * FX_NR);       \
            even[t] = vtrn1q_f32(first, second);                                                                       \
            odd[t] = vtrn2q_f32(first, second);                                                                        \
        }                                                                                                              \
        FX_UNROLL for (int p = 0; p < POSITIONS; p++) {                                                                \
            const float *pixel = (const float *)((const char *)(PIXEL) + from);                                        \
            const float32x4_t v = full ? fx_load(pixel) : fx_load_part(pixel, d->channels - j);                        \
            EACH_PAIR(N, T, S)                                                                                         \
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
