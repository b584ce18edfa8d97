/* state_rows_f32 for all instruction sets. */
#include "simd.h"

#include <string.h>

#define VECTORS (FX_NR / FX_WIDTH)

FX_INLINE void widen(float *to, const int8_t *from, const fx_v scale) {
    fx_v v[VECTORS];
    fx_load_s8(v, from);
    FX_UNROLL for (int j = 0; j < VECTORS; j++) fx_store(to + j * FX_WIDTH, v[j] * scale);
}

void FX_SYMBOL(state_rows_f32)(const fx_state_rows *s) {
    const int8_t *from = s->from;
    float *to = s->to;
    for (int32_t i = 0; i < s->rows; i++, from += fx_state_row_bytes(s->d), to += s->d) {
        const int8_t *scales = from + s->d;
        for (int32_t x = 0; x < s->d; x += FX_STATE_BLOCK, scales += sizeof(float)) {
            const int32_t end = s->d - x < FX_STATE_BLOCK ? s->d : x + FX_STATE_BLOCK;
            int32_t at = x;
            float scale;
            memcpy(&scale, scales, sizeof scale);
            for (; at + FX_NR <= end; at += FX_NR)
                widen(to + at, from + at, fx_splat(scale));
            for (; at < end; at++)
                to[at] = (float)from[at] * scale;
        }
    }
}
