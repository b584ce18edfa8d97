/* The definition of state_rows_f32 (rows.h). */
#include "flexnn/kernels.h"

#include <string.h>

void FX_SYMBOL(state_rows_f32)(const fx_state_rows *s) {
    for (int32_t i = 0; i < s->rows; i++) {
        const int8_t *from = s->from + i * fx_state_row_bytes(s->d);
        for (int32_t x = 0; x < s->d; x++) {
            float scale;
            memcpy(&scale, from + s->d + x / FX_STATE_BLOCK * (int32_t)sizeof scale, sizeof scale);
            s->to[(int64_t)i * s->d + x] = (float)from[x] * scale;
        }
    }
}
