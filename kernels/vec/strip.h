/* What dwconv_f32 and gconv_f32 share: the ends of a strip of output pixels. */
#ifndef FLEXNN_VEC_STRIP_H
#define FLEXNN_VEC_STRIP_H

#include "simd.h"

/* Channels [j, j + FX_WIDTH) below `end`; with FULL all of them exist. */
#define LOAD(FULL, p, j, end) ((FULL) ? fx_load((p) + (j)) : fx_load_below(p, j, end))

/* Where channel j's bias stands. */
FX_INLINE const float *panel_of(const fx_dwconv *d, int j) {
    return d->w + j / FX_NR * d->w_panel + j % FX_NR;
}

/* Finishes n output pixels of row o from pixel i0 on: any activation, any number of channels. */
static __attribute__((noinline)) void finish_any(const fx_dwconv *d, int o, int j, int i0, int n, const fx_v *sum) {
    for (int i = 0; i < n; i++) {
        fx_v v = sum[i];
        if (d->r)
            v += fx_load_below(d->r + o * d->r_row + (i0 + i) * d->r_step + d->at, j, d->channels);
        v = fx_activate(&d->finish, v, panel_of(d, j) + FX_NR);
        fx_store_below(d->y + o * d->y_row + (i0 + i) * d->y_step + d->at, j, d->channels, v);
    }
}

/* The same where it is inlined into every strip: a whole vector and a clamp, else finish_any. */
#define FINISH(N, FULL, O, I0, SUM)                                                                                    \
    do {                                                                                                               \
        if (!(FULL) || d->finish.act > FX_ACT_CLIP) {                                                                  \
            fx_v stored[N]; /* the sums themselves have no address, so that they stay in registers */                  \
            FX_UNROLL for (int i = 0; i < N; i++) stored[i] = (SUM)[i];                                                \
            finish_any(d, O, j, I0, N, stored);                                                                        \
            break;                                                                                                     \
        }                                                                                                              \
        float *to = d->y + d->at + j + (O) * d->y_row + (I0) * d->y_step;                                              \
        const fx_v lo = fx_splat(d->finish.lo), hi = fx_splat(d->finish.hi);                                           \
        if (d->r) {                                                                                                    \
            const float *from = d->r + d->at + j + (O) * d->r_row + (I0) * d->r_step;                                  \
            FX_UNROLL for (int i = 0; i < N; i++)(SUM)[i] += fx_load(from + i * d->r_step);                            \
        }                                                                                                              \
        FX_UNROLL for (int i = 0; i < N; i++) fx_store(to + i * d->y_step, fx_min(hi, fx_max(lo, (SUM)[i])));          \
    } while (0)

#endif
