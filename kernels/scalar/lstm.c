/* The definition of lstm_f32 (kernels.h). */
#include "flexnn/kernels.h"

#include <math.h>

static float sigmoid(float v) {
    return 1 / (1 + expf(-v));
}

void FX_SYMBOL(lstm_f32)(const fx_lstm *t) {
    for (int64_t j = 0; j < t->n; j++) {
        const float before = t->cell[j];
        float in = t->gates[0][j], out = t->gates[1][j], forget = t->gates[2][j];
        if (t->look[0]) {
            in += t->look[0][j] * before;
            forget += t->look[2][j] * before;
        }
        const float cell = sigmoid(forget) * before + sigmoid(in) * tanhf(t->gates[3][j]);
        if (t->look[0])
            out += t->look[1][j] * cell;
        t->cell[j] = cell;
        t->y[j] = sigmoid(out) * tanhf(cell);
    }
}
