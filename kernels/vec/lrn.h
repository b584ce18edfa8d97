/* lrn_f32 for every vector width: vec/lrn.c and neon/lrn.c include it. A power as exp(-beta ln d): beta is about 1, so
 * the logarithm's error grows little. */
#include "exp.h"

void FX_SYMBOL(lrn_f32)(const fx_lrn *l) {
    for (int32_t j = 0; j < l->channels; j += FX_WIDTH) {
        const int32_t below = l->channels + l->taps - 1; /* floats of padded */
        fx_v sum = fx_splat(0);
        for (int32_t i = j; i < j + l->taps; i++) {
            const fx_v v = fx_load_below(l->padded, i, below);
            sum += v * v;
        }
        const fx_v x = fx_load_below(l->padded + l->before, j, l->channels);
        fx_store_below(l->y, j, l->channels, x * fx_exp(fx_log(sum * l->scale + l->bias) * -l->beta));
    }
}
