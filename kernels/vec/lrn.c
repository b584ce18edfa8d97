/* lrn_f32 for all instruction sets. */
#include "exp.h"

/* d^-beta. 3/4 is what every model has that we know; else exp(-beta ln d), where beta is about 1, so that the
 * logarithm's error grows little. */
FX_INLINE fx_v power(fx_v d, float beta) {
    if (beta == 0.75f) {
        const fx_v root = fx_sqrt(d);
        return 1.0f / (root * fx_sqrt(root));
    }
    return fx_exp(fx_log(d) * -beta);
}

/* n vectors of channels from j on; without full the last lanes may be missing. */
FX_INLINE void normalize(const fx_lrn *l, int32_t j, const int n, const int full) {
    const int32_t below = l->channels + l->taps - 1; /* floats of padded */
    fx_v sum[4];
    FX_UNROLL for (int i = 0; i < n; i++) sum[i] = fx_splat(0);
    for (int32_t t = 0; t < l->taps; t++)
        FX_UNROLL for (int i = 0; i < n; i++) {
            const int32_t at = j + t + i * FX_WIDTH;
            const fx_v v = full ? fx_load(l->padded + at) : fx_load_below(l->padded, at, below);
            sum[i] += v * v;
        }
    FX_UNROLL for (int i = 0; i < n; i++) {
        const int32_t at = j + i * FX_WIDTH;
        const fx_v x = fx_load_below(l->padded + l->before, at, l->channels);
        fx_store_below(l->y, at, l->channels, x * power(sum[i] * l->scale + l->bias, l->beta));
    }
}

void FX_SYMBOL(lrn_f32)(const fx_lrn *l) {
    int32_t j = 0;
    for (; j + 4 * FX_WIDTH <= l->channels; j += 4 * FX_WIDTH)
        normalize(l, j, 4, 1);
    for (; j < l->channels; j += FX_WIDTH)
        normalize(l, j, 1, j + FX_WIDTH <= l->channels);
}
