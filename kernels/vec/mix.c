/* mix_f32 for all instruction sets. The inputs of a vector of columns stay in registers. */
#include "simd.h"

FX_INLINE void mix_columns(const fx_mix *m, int64_t j, int n, const int from) {
    fx_v x[FX_MIX_MAX];
    FX_UNROLL for (int i = 0; i < from; i++) x[i] = n == FX_WIDTH ? fx_load(m->x[i] + j) : fx_load_part(m->x[i] + j, n);
    const float *row = m->m;
    for (int32_t q = 0; q < m->to; q++, row += from) {
        fx_v even = fx_splat(0), odd = fx_splat(0);
        FX_UNROLL for (int i = 0; i + 1 < from; i += 2) even += x[i] * row[i], odd += x[i + 1] * row[i + 1];
        if (from % 2)
            even += x[from - 1] * row[from - 1];
        fx_v sum = even + odd;
        if (m->panel) {
            sum += fx_load(m->panel + j);
            if (m->r)
                sum += n == FX_WIDTH ? fx_load(m->r[q] + j) : fx_load_part(m->r[q] + j, n);
            sum = fx_activate(&m->finish, sum, m->panel + FX_NR + j);
        }
        if (n == FX_WIDTH)
            fx_store(m->y[q] + j, sum);
        else
            fx_store_part(m->y[q] + j, sum, n);
    }
}

#define MIX(FROM)                                                                                                      \
    static void mix_##FROM(const fx_mix *m) {                                                                          \
        int64_t j = 0;                                                                                                 \
        for (; j + FX_WIDTH <= m->n; j += FX_WIDTH)                                                                    \
            mix_columns(m, j, FX_WIDTH, FROM);                                                                         \
        if (j < m->n)                                                                                                  \
            mix_columns(m, j, (int)(m->n - j), FROM);                                                                  \
    }
MIX(3)
MIX(5)
MIX(6)
MIX(7)
MIX(8)
MIX(10)

void FX_SYMBOL(mix_f32)(const fx_mix *m) {
    static void (*const mixes[FX_MIX_MAX + 1])(const fx_mix *) = {[3] = mix_3, [5] = mix_5, [6] = mix_6,
                                                                  [7] = mix_7, [8] = mix_8, [10] = mix_10};
    mixes[m->from](m);
}
