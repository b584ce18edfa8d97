/* gemm_f32 for cores that issue two instructions a cycle in order: Cortex-A53, A55 and their like.
 *
 * A load of 128 bits keeps such a core from starting a multiply-add beside it, and a multiply-add whose operand has not
 * arrived stops everything behind it. So vectors come in halves, one through a general register (ldr d and ldr x each
 * start beside a multiply-add, ins takes a cycle), spread evenly among the multiply-adds, across the loop's end too. */

/* Volatile: in the order written. `at` is a constant, in floats. */
#ifdef __aarch64__
#define ORDERED(sum, b, e, lane) __asm__ volatile("fmla %0.4s, %1.4s, %2.s[" #lane "]" : "+w"(sum) : "w"(b), "w"(e))
#define LOW(v, p, at)                                                                                                  \
    __asm__ volatile("ldr %d0, [%1, %2]" : "=w"(v) : "r"(p), "i"(4 * (at)), "m"(*(const float (*)[8 * FX_NR])(p)))
#define HIGH(half, p, at)                                                                                              \
    __asm__ volatile("ldr %0, [%1, %2]" : "=r"(half) : "r"(p), "i"(4 * (at) + 8), "m"(*(const float (*)[8 * FX_NR])(p)))
#define JOIN(v, half) __asm__ volatile("ins %0.d[1], %1" : "+w"(v) : "r"(half))
#else
#define ORDERED(sum, b, e, lane) (sum) = vfmaq_laneq_f32(sum, b, e, lane)
#define LOW(v, p, at) (v) = vcombine_f32(vld1_f32((p) + (at)), vdup_n_f32(0))
#define HIGH(half, p, at) (half) = vget_lane_u64(vreinterpret_u64_f32(vld1_f32((p) + (at) + 2)), 0)
#define JOIN(v, half) (v) = vreinterpretq_f32_u64(vsetq_lane_u64(half, vreinterpretq_u64_f32(v), 1))
#endif

/* Row i of sums, if there is one: vector j of the lane's weights stands in b[v % 2]. */
#define ROW(R, i, v, lane, e)                                                                                          \
    if (i < R)                                                                                                         \
        ORDERED(sum[i < R ? i : 0][(v) % VECTORS], b[(v) % 2], e[i < R ? i : 0], lane);

/* Vector v of the sixteen of four channels, times a lane of every row. Meanwhile the vector after it comes into the
 * other b, in three cycles and three before its use, and in every third turn a row, four channels further on. */
#define TURN(R, v, lane, e, next, ahead)                                                                               \
    {                                                                                                                  \
        enum { LOADS = (v) % 3 == 1 && (v) / 3 < R, I = LOADS ? (v) / 3 : 0 };                                         \
        enum { JOINS = (v) > 1 && ((v) - 1) % 3 == 1 && ((v) - 1) / 3 < R, J = JOINS ? ((v) - 1) / 3 : 0 };            \
        ROW(R, 0, v, lane, e)                                                                                          \
        LOW(b[((v) + 1) % 2], weights, 4 * (v) + 4);                                                                   \
        ROW(R, 1, v, lane, e)                                                                                          \
        HIGH(high[(v) % 2], weights, 4 * (v) + 8);                                                                     \
        ROW(R, 2, v, lane, e)                                                                                          \
        JOIN(b[((v) + 1) % 2], high[((v) + 1) % 2]);                                                                   \
        ROW(R, 3, v, lane, e)                                                                                          \
        if (LOADS)                                                                                                     \
            LOW(next[I], x[I], ahead);                                                                                 \
        if (JOINS)                                                                                                     \
            JOIN(next[J], row_high);                                                                                   \
        ROW(R, 4, v, lane, e)                                                                                          \
        if (LOADS)                                                                                                     \
            HIGH(row_high, x[I], ahead);                                                                               \
    }

#define TURNS(R, lane, e, next, ahead)                                                                                 \
    TURN(R, 4 * lane, lane, e, next, ahead)                                                                            \
    TURN(R, 4 * lane + 1, lane, e, next, ahead)                                                                        \
    TURN(R, 4 * lane + 2, lane, e, next, ahead)                                                                        \
    TURN(R, 4 * lane + 3, lane, e, next, ahead)

/* Four channels of every row, in e; the next four arrive in next. */
#define CHANNELS(R, e, next, ahead)                                                                                    \
    {                                                                                                                  \
        TURNS(R, 0, e, next, ahead)                                                                                    \
        TURNS(R, 1, e, next, ahead)                                                                                    \
        TURNS(R, 2, e, next, ahead)                                                                                    \
        TURNS(R, 3, e, next, ahead)                                                                                    \
        weights += 4 * FX_NR;                                                                                          \
    }

/* Loads run four channels ahead, so the last ones are left to the loop that follows in MULTIPLY. */
#define AHEAD(R, n)                                                                                                    \
    if ((n) >= 12) {                                                                                                   \
        const float *weights = w, *x[R];                                                                               \
        float32x4_t b[2], even[R], odd[R];                                                                             \
        uint64_t high[2], row_high;                                                                                    \
        b[0] = vld1q_f32(w);                                                                                           \
        HIGH(high[1], w, 4);                                                                                           \
        FX_UNROLL for (int i = 0; i < R; i++) {                                                                        \
            x[i] = row[i];                                                                                             \
            even[i] = vld1q_f32(x[i]);                                                                                 \
        }                                                                                                              \
        for (; q + 12 <= (n); q += 8) {                                                                                \
            CHANNELS(R, even, odd, 4)                                                                                  \
            CHANNELS(R, odd, even, 8)                                                                                  \
            FX_UNROLL for (int i = 0; i < R; i++) x[i] += 8;                                                           \
        }                                                                                                              \
        w = weights;                                                                                                   \
    }

#include "../neon/gemm.h"
