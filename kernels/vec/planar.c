/* planar_f32 for all instruction sets: a weight in every lane against vectors of pixels, whose sums stay in registers.
 */
#include "run_sums.h"

FX_INLINE fx_v finish(const fx_planar *p, int c, fx_v v) {
    if (p->finish.act == FX_ACT_PRELU)
        return fx_if_negative(v, v * fx_splat(p->w[FX_NR + c]), v);
    return fx_activate(&p->finish, v, NULL);
}

/* C channels of V vectors of pixels from i0 on. */
#define TILE(NAME, C, V)                                                                                               \
    static void NAME(const fx_planar *p, int64_t i0) {                                                                 \
        const float *w = p->w + p->head;                                                                               \
        fx_v sum[C][V];                                                                                                \
        FX_UNROLL for (int c = 0; c < C; c++) FX_UNROLL for (int j = 0; j < V; j++) sum[c][j] = fx_splat(p->w[c]);     \
        FX_KEEP(kept, fx_v, C, V);                                                                                     \
        int64_t run = 0, folds = 0;                                                                                    \
        const float *const *x = p->x;                                                                                  \
        for (int32_t ky = 0; ky < p->kh; ky++, x += p->cin)                                                            \
            for (int32_t kx = 0; kx < p->kw; kx++, run += p->cin) {                                                    \
                if (run && run + p->cin > FX_GEMM_RUN) {                                                               \
                    fx_v *set = FX_KEPT_SET(kept, C, V, folds);                                                        \
                    FX_FOLD_COLUMNS(sum, set, C, 0, V, V, folds < FX_KEPT_SETS);                                       \
                    folds++, run = 0;                                                                                  \
                }                                                                                                      \
                const int64_t at = p->at[kx] + i0;                                                                     \
                for (int32_t q = 0; q < p->cin; q++, w += FX_NR) {                                                     \
                    const float *pixels = x[q] + at;                                                                   \
                    fx_v v[V];                                                                                         \
                    FX_UNROLL for (int j = 0; j < V; j++) v[j] = fx_load(pixels + j * FX_WIDTH);                       \
                    FX_UNROLL for (int c = 0; c < C; c++) {                                                            \
                        const fx_v b = fx_splat(w[c]);                                                                 \
                        FX_UNROLL for (int j = 0; j < V; j++) sum[c][j] += v[j] * b;                                   \
                    }                                                                                                  \
                }                                                                                                      \
            }                                                                                                          \
        for (int64_t turn = 0; turn < folds && turn < FX_KEPT_SETS; turn++)                                            \
            FX_ADD_KEPT(sum, FX_KEPT_SET(kept, C, V, turn), C, 0, V, V);                                               \
        FX_UNROLL for (int c = 0; c < C; c++) FX_UNROLL for (int j = 0; j < V; j++) {                                  \
            const int64_t to = c * p->y_row + i0 + j * FX_WIDTH;                                                       \
            if (p->r)                                                                                                  \
                sum[c][j] += fx_load(p->r + to);                                                                       \
            fx_store(p->y + to, finish(p, c, sum[c][j]));                                                              \
        }                                                                                                              \
    }

/* Vectors of tiles: of the widest, and of one for what it leaves over. With fewer sums than 8 each waits for itself,
 * more do not fit the registers. */
#if FX_ISA_AVX2
#define EACH(f)                                                                                                        \
    f(1, 8, 4) f(2, 4, 2) f(3, 3, 2) f(4, 2, 1) f(5, 2, 1) f(6, 1, 1) f(7, 1, 1) f(8, 1, 1) f(9, 1, 1) f(10, 1, 1)     \
        f(11, 1, 1) f(12, 1, 1)
#else
#define EACH(f)                                                                                                        \
    f(1, 8, 4) f(2, 6, 3) f(3, 4, 2) f(4, 4, 2) f(5, 3, 2) f(6, 3, 2) f(7, 3, 2) f(8, 3, 2) f(9, 2, 1) f(10, 2, 1)     \
        f(11, 2, 1) f(12, 2, 1)
#endif
#define TILES(C, V, HALF) TILE(wide_##C, C, V) TILE(half_##C, C, HALF) TILE(single_##C, C, 1)
EACH(TILES)

void FX_SYMBOL(planar_f32)(const fx_planar *p) {
#define ENTRY(C, V, HALF) {{V, wide_##C}, {HALF, half_##C}, {1, single_##C}},
    static const struct {
        int vectors;
        void (*run)(const fx_planar *, int64_t);
    } tiles[FX_PLANAR_COLUMNS][3] = {EACH(ENTRY)};
    int64_t i = 0;
    for (int size = 0; size < 3; size++) {
        const int pixels = tiles[p->columns - 1][size].vectors * FX_WIDTH;
        for (; i + pixels <= p->pixels; i += pixels)
            tiles[p->columns - 1][size].run(p, i);
    }
}
