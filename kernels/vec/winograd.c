/* Winograd's transforms for all instruction sets. The matrices are those of scalar/winograd.c, with their common terms
 * taken out. */
#include "simd.h"

#define S2 1.41421356237309505f

/* One dimension of each transform: from in[0], in[s], ... to out[0], out[d], ... */

FX_INLINE void input_2(const fx_v *in, int s, fx_v *out, int d) {
    out[0] = in[0] - in[2 * s];
    out[d] = in[s] + in[2 * s];
    out[2 * d] = in[2 * s] - in[s];
    out[3 * d] = in[3 * s] - in[s];
}

FX_INLINE void input_4(const fx_v *in, int s, fx_v *out, int d) {
    const fx_v odd1 = S2 * in[s] - (S2 / 2) * in[3 * s], even1 = in[4 * s] - 2.f * in[2 * s];
    const fx_v odd2 = S2 * in[3 * s] - (S2 / 2) * in[s], even2 = in[4 * s] - .5f * in[2 * s];
    out[0] = in[0] + in[4 * s] - 2.5f * in[2 * s];
    out[d] = even1 - odd1;
    out[2 * d] = even1 + odd1;
    out[3 * d] = even2 + odd2;
    out[4 * d] = even2 - odd2;
    out[5 * d] = in[s] + in[5 * s] - 2.5f * in[3 * s];
}

FX_INLINE void weight_2(const fx_v *in, int s, fx_v *out, int d) {
    const fx_v even = .5f * (in[0] + in[2 * s]), odd = .5f * in[s];
    out[0] = in[0];
    out[d] = even + odd;
    out[2 * d] = even - odd;
    out[3 * d] = in[2 * s];
}

FX_INLINE void weight_4(const fx_v *in, int s, fx_v *out, int d) {
    const fx_v even1 = (-2.f / 3) * in[0] - (1.f / 3) * in[2 * s], odd1 = (S2 / 3) * in[s];
    const fx_v even2 = (1.f / 6) * in[0] + (1.f / 3) * in[2 * s], odd2 = (S2 / 6) * in[s];
    out[0] = in[0];
    out[d] = even1 - odd1;
    out[2 * d] = even1 + odd1;
    out[3 * d] = even2 + odd2;
    out[4 * d] = even2 - odd2;
    out[5 * d] = in[2 * s];
}

FX_INLINE void output_2(const fx_v *in, int s, fx_v *out, int d) {
    out[0] = in[0] + in[s] + in[2 * s];
    out[d] = in[s] - in[2 * s] + in[3 * s];
}

FX_INLINE void output_4(const fx_v *in, int s, fx_v *out, int d) {
    const fx_v sum1 = in[s] + in[2 * s], difference1 = in[s] - in[2 * s];
    const fx_v sum2 = in[3 * s] + in[4 * s], difference2 = in[3 * s] - in[4 * s];
    out[0] = in[0] + sum1 + sum2;
    out[d] = (S2 / 2) * difference1 + S2 * difference2;
    out[2 * d] = .5f * sum1 + 2.f * sum2;
    out[3 * d] = in[5 * s] + (S2 / 4) * difference1 + (2 * S2) * difference2;
}

#define INPUT(M, full)                                                                                                 \
    do {                                                                                                               \
        enum { N = M + 2 };                                                                                            \
        fx_v half[N * N];                                                                                              \
        FX_UNROLL for (int j = 0; j < N; j++) {                                                                        \
            fx_v column[N];                                                                                            \
            FX_UNROLL for (int i = 0; i < N; i++) column[i] =                                                          \
                full ? fx_load(t->x[i * N + j] + c) : fx_load_part(t->x[i * N + j] + c, t->channels - c);              \
            input_##M(column, 1, half + j, N);                                                                         \
        }                                                                                                              \
        FX_UNROLL for (int i = 0; i < N; i++) {                                                                        \
            fx_v row[N];                                                                                               \
            input_##M(half + i * N, 1, row, 1);                                                                        \
            FX_UNROLL for (int j = 0; j < N; j++) {                                                                    \
                float *v = t->v + (i * N + j) * t->plane + c;                                                          \
                if (full)                                                                                              \
                    fx_store(v, row[j]);                                                                               \
                else                                                                                                   \
                    fx_store_part(v, row[j], t->channels - c);                                                         \
            }                                                                                                          \
        }                                                                                                              \
    } while (0)

/* Not inlined by any compiler: tests/kernels/test_mca.py looks for their loops. */
#define INPUTS(M)                                                                                                      \
    static __attribute__((noinline)) void inputs_##M(const fx_wino_input *t) {                                         \
        int c = 0;                                                                                                     \
        for (; c + FX_WIDTH <= t->channels; c += FX_WIDTH)                                                             \
            INPUT(M, 1);                                                                                               \
        if (c < t->channels)                                                                                           \
            INPUT(M, 0);                                                                                               \
    }
INPUTS(2)
INPUTS(4)

void FX_SYMBOL(wino_input_f32)(const fx_wino_input *t) {
    t->m == 2 ? inputs_2(t) : inputs_4(t);
}

/* Raw weights may come from memory: prefetches those of a few channels later. Not into the L1 cache, where the nine
 * taps, often 4 KiB apart, share one set (measured: 0.79 ms for 0.96 of 512 -> 512). */
#define AHEAD (4 * FX_NR)

#define WEIGHTS(M)                                                                                                     \
    static __attribute__((noinline)) void weights_##M(const fx_wino_weight *t) {                                       \
        enum { N = M + 2 };                                                                                            \
        for (int64_t at = 0; at < (int64_t)t->channels * FX_NR; at += FX_WIDTH) {                                      \
            fx_v half[N * 3];                                                                                          \
            FX_UNROLL for (int j = 0; j < 3; j++) {                                                                    \
                fx_v column[3];                                                                                        \
                FX_UNROLL for (int i = 0; i < 3; i++) {                                                                \
                    const float *g = t->g + (i * 3 + j) * t->tap + at;                                                 \
                    __builtin_prefetch(g + AHEAD);                                                                     \
                    column[i] = fx_load(g);                                                                            \
                }                                                                                                      \
                weight_##M(column, 1, half + j, 3);                                                                    \
            }                                                                                                          \
            FX_UNROLL for (int i = 0; i < N; i++) {                                                                    \
                fx_v row[N];                                                                                           \
                weight_##M(half + i * 3, 1, row, 1);                                                                   \
                FX_UNROLL for (int j = 0; j < N; j++) fx_store(t->u + (i * N + j) * t->plane + at, row[j]);            \
            }                                                                                                          \
        }                                                                                                              \
    }
WEIGHTS(2)
WEIGHTS(4)

void FX_SYMBOL(wino_weight_f32)(const fx_wino_weight *t) {
    t->m == 2 ? weights_2(t) : weights_4(t);
}

/* One vector of channels, from j on, of a pixel with its residual. */
FX_INLINE fx_v with_residual(const fx_wino_output *t, int whole, int row, int pixel, int j, fx_v v) {
    if (!t->r)
        return v;
    const float *r = t->r + row * t->r_row + pixel * t->r_pixel;
    return v + (whole ? fx_load(r + j) : fx_load_below(r, j, t->columns));
}

/* One vector of channels from j on: whole tiles of whole vectors and a clamp first, then whatever there is. */
#define OUTPUTS(M)                                                                                                     \
    static void outputs_##M(const fx_wino_output *t, int j) {                                                          \
        enum { N = M + 2 };                                                                                            \
        fx_v half[M * N], row[M];                                                                                      \
        FX_UNROLL for (int l = 0; l < N; l++) {                                                                        \
            fx_v column[N];                                                                                            \
            FX_UNROLL for (int i = 0; i < N; i++) column[i] = fx_load(t->s + (i * N + l) * t->plane + j);              \
            output_##M(column, 1, half + l, N);                                                                        \
        }                                                                                                              \
        const fx_v bias = fx_load(t->panel + j), lo = fx_splat(t->finish.lo), hi = fx_splat(t->finish.hi);             \
        if (t->rows == M && t->pixels == M && j + FX_WIDTH <= t->columns && t->finish.act <= FX_ACT_CLIP) {            \
            FX_UNROLL for (int i = 0; i < M; i++) {                                                                    \
                output_##M(half + i * N, 1, row, 1);                                                                   \
                FX_UNROLL for (int l = 0; l < M; l++) {                                                                \
                    const fx_v v = with_residual(t, 1, i, l, j, row[l] + bias);                                        \
                    fx_store(t->y + i * t->y_row + l * t->y_pixel + j, fx_min(hi, fx_max(lo, v)));                     \
                }                                                                                                      \
            }                                                                                                          \
            return;                                                                                                    \
        }                                                                                                              \
        for (int i = 0; i < t->rows; i++) { /* not unrolled: clang would take minutes and 5 GB */                      \
            output_##M(half + i * N, 1, row, 1);                                                                       \
            for (int l = 0; l < t->pixels; l++) {                                                                      \
                const fx_v v = with_residual(t, 0, i, l, j, row[l] + bias);                                            \
                fx_store_below(t->y + i * t->y_row + l * t->y_pixel, j, t->columns,                                    \
                               fx_activate(&t->finish, v, t->panel + FX_NR + j));                                      \
            }                                                                                                          \
        }                                                                                                              \
    }
OUTPUTS(2)
OUTPUTS(4)

void FX_SYMBOL(wino_output_f32)(const fx_wino_output *t) {
    for (int j = 0; j < t->columns; j += FX_WIDTH)
        t->m == 2 ? outputs_2(t, j) : outputs_4(t, j);
}
