/* gemm_f16 of NEON: a panel is two vectors of eight halves; eight channels of a row stand in one vector, multiplied
 * lane by lane. Sums of halves stay in registers, those of floats in the tile that is stored.
 *
 * Assembly, as in neon/gemm.h: gcc 12 copies sums of vfmaq_laneq_f16 around. A lane of a half stands in one of the
 * lower sixteen registers. */
#include <arm_neon.h>

#include "flexnn/kernels.h"

#define VECTORS 2 /* of a panel */
#define LANES 8
#define UNROLL _Pragma("GCC unroll 16")

#define FMLA(sum, b, e, lane) __asm__("fmla %0.8h, %1.8h, %2.h[" #lane "]" : "+w"(sum) : "w"(b), "x"(e))
#define SCALAR(e, p) __asm__("ldr %h0, %1" : "=x"(e) : "m"(*(p)))

/* One of eight channels: its 16 weights, in b, against that lane of every row. What the next channel needs is loaded as
 * soon as its register is free. */
#define LANE(R, lane)                                                                                                  \
    UNROLL for (int j = 0; j < VECTORS; j++) {                                                                         \
        UNROLL for (int i = 0; i < R; i++) FMLA(sum[i][j], b[j], e[i], lane);                                          \
        if (lane < LANES - 1)                                                                                          \
            b[j] = vld1q_u16(w + (lane + 1) * FX_NR + j * LANES);                                                      \
    }

#define EIGHTS(R, n)                                                                                                   \
    for (; q + LANES <= (n); q += LANES, w += LANES * FX_NR) {                                                         \
        uint16x8_t b[VECTORS], e[R];                                                                                   \
        UNROLL for (int j = 0; j < VECTORS; j++) b[j] = vld1q_u16(w + j * LANES);                                      \
        UNROLL for (int i = 0; i < R; i++) e[i] = vld1q_u16(row[i] + q);                                               \
        LANE(R, 0) LANE(R, 1) LANE(R, 2) LANE(R, 3) LANE(R, 4) LANE(R, 5) LANE(R, 6) LANE(R, 7)                        \
    }

/* One channel: what is left over after the last eight. */
#define ONE(R)                                                                                                         \
    {                                                                                                                  \
        uint16x8_t e[R];                                                                                               \
        UNROLL for (int i = 0; i < R; i++) SCALAR(e[i], row[i] + q);                                                   \
        UNROLL for (int j = 0; j < VECTORS; j++) {                                                                     \
            const uint16x8_t b = vld1q_u16(w + j * LANES);                                                             \
            UNROLL for (int i = 0; i < R; i++) FMLA(sum[i][j], b, e[i], 0);                                            \
        }                                                                                                              \
    }

/* Adds the sums of halves to those of floats, which stand at `from`, `step` floats from row to row: at first the bias.
 */
#define FOLD(R)                                                                                                        \
    UNROLL for (int i = 0; i < R; i++) UNROLL for (int j = 0; j < VECTORS; j++) {                                      \
        const float16x8_t half = vreinterpretq_f16_u16(sum[i][j]);                                                     \
        const float *old = from + i * step + j * LANES;                                                                \
        float *new = g->c + i * g->c_row + j * LANES;                                                                  \
        const float32x4_t low = vaddq_f32(vld1q_f32(old), vcvt_f32_f16(vget_low_f16(half)));                           \
        const float32x4_t high = vaddq_f32(vld1q_f32(old + 4), vcvt_high_f32_f16(half));                               \
        vst1q_f32(new, low), vst1q_f32(new + 4, high);                                                                 \
        sum[i][j] = vdupq_n_u16(0);                                                                                    \
    }                                                                                                                  \
    from = g->c, step = g->c_row, run = 0;

/* Whether a sum is not finite: it stays so whatever is added, and times 0 it is a NaN. */
#define BEYOND(R)                                                                                                      \
    float32x4_t beyond = vdupq_n_f32(0);                                                                               \
    for (int i = 0; i < R; i++)                                                                                        \
        for (int j = 0; j < FX_NR; j += 4)                                                                             \
            beyond = vfmaq_f32(beyond, vld1q_f32(g->c + i * g->c_row + j), vdupq_n_f32(0));

#define TILE(R)                                                                                                        \
    static int tile_##R(const fx_gemm_f16 *g) {                                                                        \
        const uint16_t *w = g->w;                                                                                      \
        const float *from = g->start;                                                                                  \
        int64_t step = 0, run = 0;                                                                                     \
        uint16x8_t sum[R][VECTORS];                                                                                    \
        UNROLL for (int i = 0; i < R; i++) UNROLL for (int j = 0; j < VECTORS; j++) sum[i][j] = vdupq_n_u16(0);        \
        for (int64_t q0 = 0; q0 < g->k; q0 += g->block) {                                                              \
            const uint16_t *const *a = g->a;                                                                           \
            const int64_t wide = g->k - q0 < g->block ? g->k - q0 : g->block;                                          \
            for (int64_t t = 0; t < g->taps; t++, a += R)                                                              \
                for (int64_t at = 0; at < wide; at += FX_HALF_RUN) {                                                   \
                    const int64_t n = wide - at < FX_HALF_RUN ? wide - at : FX_HALF_RUN;                               \
                    const uint16_t *row[R];                                                                            \
                    UNROLL for (int i = 0; i < R; i++) row[i] = a[i] + g->a_at + q0 + at;                              \
                    if (run + n > FX_HALF_RUN) {                                                                       \
                        FOLD(R)                                                                                        \
                    }                                                                                                  \
                    int64_t q = 0;                                                                                     \
                    EIGHTS(R, n)                                                                                       \
                    for (; q < n; q++, w += FX_NR)                                                                     \
                        ONE(R)                                                                                         \
                    run += n;                                                                                          \
                }                                                                                                      \
        }                                                                                                              \
        FOLD(R)                                                                                                        \
        BEYOND(R)                                                                                                      \
        return vaddvq_f32(beyond) != 0;                                                                                \
    }

TILE(1)
TILE(2)
TILE(3)
TILE(4)
TILE(5)
TILE(6)
TILE(7)

int FX_SYMBOL(gemm_f16)(const fx_gemm_f16 *g) {
    static int (*const tiles[FX_HALF_ROWS])(const fx_gemm_f16 *) = {tile_1, tile_2, tile_3, tile_4,
                                                                    tile_5, tile_6, tile_7};
    return tiles[g->rows - 1](g);
}
