/* dwconv_f32 for all instruction sets.
 *
 * The taps' columns slide over the strip's input pixels: each vector of x is loaded once and multiplied into every
 * output pixel that sees it. Sums stay in registers; channels are the outer loop. */
#include "strip.h"

/* Output pixels [i0, i0 + N), KW taps in a row, stride S, dilation 1, of one vector of channels. */
#define STRIP(N, KW, S)                                                                                                \
    FX_INLINE void part_##N##_##KW##_##S(const fx_dwconv *d, int i0, const float *panel, int j, const int full) {      \
        enum { POSITIONS = (N - 1) * S + KW };                                                                         \
        const float *w = panel + d->head;                                                                              \
        const float *const *x = d->x + i0 * S;                                                                         \
        const int64_t from = (d->at + j) * (int64_t)sizeof(float); /* one addition for all pixels, clang on Arm too */ \
        fx_v sum[N];                                                                                                   \
        FX_UNROLL for (int i = 0; i < N; i++) sum[i] = fx_load(panel);                                                 \
        for (int ky = 0; ky < d->kh; ky++, w += KW * FX_NR, x += d->positions) {                                       \
            fx_v tap[KW];                                                                                              \
            FX_UNROLL for (int t = 0; t < KW; t++) tap[t] = fx_load(w + t * FX_NR);                                    \
            FX_UNROLL for (int p = 0; p < POSITIONS; p++) {                                                            \
                const float *pixel = (const float *)((const char *)x[p] + from);                                       \
                const fx_v v = full ? fx_load(pixel) : fx_load_part(pixel, d->channels - j);                           \
                FX_UNROLL for (int t = 0; t < KW; t++) if (p >= t && (p - t) % S == 0 && (p - t) / S < N)              \
                    sum[(p - t) / S] += v * tap[t];                                                                    \
            }                                                                                                          \
        }                                                                                                              \
        FINISH(N, full, 0, i0, sum);                                                                                   \
    }                                                                                                                  \
    static void strip_##N##_##KW##_##S(const fx_dwconv *d, int i0) {                                                   \
        int j = 0;                                                                                                     \
        for (; j + FX_WIDTH <= d->channels; j += FX_WIDTH)                                                             \
            part_##N##_##KW##_##S(d, i0, panel_of(d, j), j, 1);                                                        \
        if (j < d->channels)                                                                                           \
            part_##N##_##KW##_##S(d, i0, panel_of(d, j), j, 0);                                                        \
    }

#define STRIPS(KW, S)                                                                                                  \
    STRIP(1, KW, S)                                                                                                    \
    STRIP(2, KW, S) STRIP(3, KW, S) STRIP(4, KW, S) STRIP(5, KW, S) STRIP(6, KW, S) STRIP(7, KW, S) STRIP(8, KW, S)
STRIPS(3, 1)
STRIPS(3, 2)
STRIPS(5, 1)
STRIPS(5, 2)

#define LIST(KW, S)                                                                                                    \
    {strip_1_##KW##_##S, strip_2_##KW##_##S, strip_3_##KW##_##S, strip_4_##KW##_##S,                                   \
     strip_5_##KW##_##S, strip_6_##KW##_##S, strip_7_##KW##_##S, strip_8_##KW##_##S}

/* Twice as many sums as pixels: the 16 registers of AVX2 hold those of four, 32 those of eight. For NEON, and with
 * clang for AVX2, spills would cost more than it gains. */
#if FX_ISA_AVX512 || (FX_ISA_AVX2 && !defined(__clang__))
/* The next N output pixels, and their input pixels in the rows that the pair before has not read: on maps larger than a
 * cache. They are in L2 a strip later. */
#define ASK_FOR_PIXELS(N, S)                                                                                           \
    {                                                                                                                  \
        for (int row = 3 - S; row < 3 + S; row++)                                                                      \
            FX_UNROLL for (int p = POSITIONS - N * S; p < POSITIONS; p++)                                              \
                __builtin_prefetch((const char *)x[row * d->positions + p + ahead] + from, 0, 2);                      \
        const float *y = d->y + d->at + j + (i0 + N) * d->y_step;                                                      \
        FX_UNROLL for (int i = 0; i < N; i++) __builtin_prefetch(y + i * d->y_step, 0, 2),                             \
            __builtin_prefetch(y + d->y_row + i * d->y_step, 0, 2);                                                    \
    }

/* The same in two output rows, 3 x 3 taps: an input pixel that both see is loaded once. Everything is unrolled, so that
 * taps stay in registers from one output row to the other where there are as many. */
#define PAIR(N, S)                                                                                                     \
    FX_INLINE void two_##N##_##S(const fx_dwconv *d, int i0, const float *panel, int j, const int full) {              \
        enum { POSITIONS = (N - 1) * S + 3 };                                                                          \
        const float *w = panel + d->head;                                                                              \
        const float *const *x = d->x + i0 * S;                                                                         \
        const int64_t from = (d->at + j) * (int64_t)sizeof(float);                                                     \
        const int ahead = d->asks && (i0 + N) * S + POSITIONS <= d->positions ? N * S : 0;                             \
        if (ahead)                                                                                                     \
            ASK_FOR_PIXELS(N, S)                                                                                       \
        fx_v upper[N], lower[N];                                                                                       \
        FX_UNROLL for (int i = 0; i < N; i++) upper[i] = lower[i] = fx_load(panel);                                    \
        FX_UNROLL for (int row = 0; row < 3 + S; row++, x += d->positions) {                                           \
            FX_UNROLL for (int p = 0; p < POSITIONS; p++) {                                                            \
                const float *pixel = (const float *)((const char *)x[p] + from);                                       \
                const fx_v v = full ? fx_load(pixel) : fx_load_part(pixel, d->channels - j);                           \
                FX_UNROLL for (int t = 0; t < 3; t++) if (p >= t && (p - t) % S == 0 && (p - t) / S < N) {             \
                    if (row < 3)                                                                                       \
                        upper[(p - t) / S] += v * fx_load(w + (row * 3 + t) * FX_NR);                                  \
                    if (row >= S)                                                                                      \
                        lower[(p - t) / S] += v * fx_load(w + ((row - S) * 3 + t) * FX_NR);                            \
                }                                                                                                      \
            }                                                                                                          \
        }                                                                                                              \
        FINISH(N, full, 0, i0, upper);                                                                                 \
        FINISH(N, full, 1, i0, lower);                                                                                 \
    }                                                                                                                  \
    static void pair_##N##_##S(const fx_dwconv *d, int i0) {                                                           \
        int j = 0;                                                                                                     \
        for (; j + FX_WIDTH <= d->channels; j += FX_WIDTH)                                                             \
            two_##N##_##S(d, i0, panel_of(d, j), j, 1);                                                                \
        if (j < d->channels)                                                                                           \
            two_##N##_##S(d, i0, panel_of(d, j), j, 0);                                                                \
    }

#if FX_ISA_AVX2
#define PAIR_PIXELS 4
#define PAIRS(S) PAIR(1, S) PAIR(2, S) PAIR(3, S) PAIR(4, S)
#define PAIR_LIST(S) {pair_1_##S, pair_2_##S, pair_3_##S, pair_4_##S}
#else
#define PAIR_PIXELS 8
#define PAIRS(S) PAIR(1, S) PAIR(2, S) PAIR(3, S) PAIR(4, S) PAIR(5, S) PAIR(6, S) PAIR(7, S) PAIR(8, S)
#define PAIR_LIST(S) {pair_1_##S, pair_2_##S, pair_3_##S, pair_4_##S, pair_5_##S, pair_6_##S, pair_7_##S, pair_8_##S}
#endif
PAIRS(1)
PAIRS(2)

static void two_rows(const fx_dwconv *d) {
    static void (*const pairs[2][PAIR_PIXELS])(const fx_dwconv *, int) = {PAIR_LIST(1), PAIR_LIST(2)};
    const int count = (d->pixels + PAIR_PIXELS - 1) / PAIR_PIXELS;
    for (int s = 0, i0 = 0; s < count; s++) {
        const int i1 = d->pixels * (s + 1) / count;
        pairs[d->stride - 1][i1 - i0 - 1](d, i0);
        i0 = i1;
    }
}
#else
/* One row of a strip after the other: the second finds two of its three input rows in L1. */
static void two_rows(const fx_dwconv *d) {
    static void (*const strips[2][8])(const fx_dwconv *, int) = {LIST(3, 1), LIST(3, 2)};
    fx_dwconv lower = *d;
    lower.x += d->stride * d->positions, lower.y += d->y_row;
    if (d->r)
        lower.r += d->r_row;
    const int count = (d->pixels + 7) / 8;
    for (int s = 0, i0 = 0; s < count; s++) {
        const int i1 = d->pixels * (s + 1) / count;
        strips[d->stride - 1][i1 - i0 - 1](d, i0);
        strips[d->stride - 1][i1 - i0 - 1](&lower, i0);
        i0 = i1;
    }
}
#endif

/* Any taps, stride and dilation: output pixels [i, i + N). */
#define ANY(N)                                                                                                         \
    FX_INLINE void any_##N(const fx_dwconv *d, const float *panel, int j, int i, const int full) {                     \
        const float *w = panel + d->head;                                                                              \
        fx_v sum[N];                                                                                                   \
        FX_UNROLL for (int l = 0; l < N; l++) sum[l] = fx_load(panel);                                                 \
        for (int ky = 0; ky < d->kh; ky++) {                                                                           \
            const float *const *x = d->x + ky * d->positions + i * d->stride;                                          \
            for (int kx = 0; kx < d->kw; kx++, w += FX_NR, x += d->dilation) {                                         \
                const fx_v tap = fx_load(w);                                                                           \
                FX_UNROLL for (int l = 0; l < N; l++) sum[l] +=                                                        \
                    LOAD(full, x[l * d->stride] + d->at, j, d->channels) * tap;                                        \
            }                                                                                                          \
        }                                                                                                              \
        FINISH(N, full, 0, i, sum);                                                                                    \
    }
ANY(1)
ANY(4)

FX_INLINE void any(const fx_dwconv *d, int j, const int full) {
    int i = 0;
    for (; i + 4 <= d->pixels; i += 4)
        any_4(d, panel_of(d, j), j, i, full);
    for (; i < d->pixels; i++)
        any_1(d, panel_of(d, j), j, i, full);
}

void FX_SYMBOL(dwconv_f32)(const fx_dwconv *d) {
    static void (*const strips[2][2][8])(const fx_dwconv *, int) = {{LIST(3, 1), LIST(3, 2)}, {LIST(5, 1), LIST(5, 2)}};
    if (d->rows == 2) {
        two_rows(d);
        return;
    }
    if (d->dilation == 1 && (d->kw == 3 || d->kw == 5) && d->stride <= 2) {
        const int count = (d->pixels + 7) / 8;
        for (int s = 0, i0 = 0; s < count; s++) {
            const int i1 = d->pixels * (s + 1) / count;
            strips[d->kw == 5][d->stride - 1][i1 - i0 - 1](d, i0);
            i0 = i1;
        }
        return;
    }
    int j = 0;
    for (; j + FX_WIDTH <= d->channels; j += FX_WIDTH)
        any(d, j, 1);
    if (j < d->channels)
        any(d, j, 0);
}
