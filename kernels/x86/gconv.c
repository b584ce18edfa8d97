/* gconv_f32 for AVX2 and AVX-512: for each channel of the groups a permutation brings it to all lanes of its group. */
#include "../vec/strip.h"

#if FX_ISA_AVX512
typedef __m512i lanes;
#define LANES _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
#define FIRST(wide) _mm512_and_si512(LANES, _mm512_set1_epi32(-(wide)))
#define NEXT(at) _mm512_add_epi32(at, _mm512_set1_epi32(1))
#define SPREAD(v, at) _mm512_permutexvar_ps(at, v)
#else
typedef __m256i lanes;
#define LANES _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)
#define FIRST(wide) _mm256_and_si256(LANES, _mm256_set1_epi32(-(wide)))
#define NEXT(at) _mm256_add_epi32(at, _mm256_set1_epi32(1))
#define SPREAD(v, at) _mm256_permutevar8x32_ps(v, at)
#endif

/* One row of T taps into N sums that are S positions apart. A channel of all positions before the next one: its T
 * weights and the sums stay in registers. */
#define MULTIPLY(N, T, S, POSITIONS, PIXEL)                                                                            \
    {                                                                                                                  \
        lanes at = FIRST(wide);                                                                                        \
        for (int q = 0; q < wide; q++, at = NEXT(at)) {                                                                \
            fx_v tap[T];                                                                                               \
            FX_UNROLL for (int t = 0; t < T; t++) tap[t] = fx_load(w + (t * wide + q) * FX_NR);                        \
            FX_UNROLL for (int p = 0; p < POSITIONS; p++) {                                                            \
                const fx_v v = SPREAD(LOAD(full, (PIXEL) + d->at, j, d->channels), at);                                \
                FX_UNROLL for (int t = 0; t < T; t++) if (p >= t && (p - t) % S == 0 && (p - t) / S < N)               \
                    sum[(p - t) / S] += v * tap[t];                                                                    \
            }                                                                                                          \
        }                                                                                                              \
    }

#define PAIRED(wide) 0
#define JOIN(sum, other) ((void)(other), (sum))

#include "../vec/gconv.h"
