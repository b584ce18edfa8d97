/* lstm_f32 for all instruction sets. Gates stay in registers from their sums on: called one after the other, functions
 * of a short row wait for each other. */
#include "math.h"

FX_INLINE void cells(const fx_lstm *t, int j, const int looks) {
    const int n = (int)t->n;
    const fx_v before = fx_load_below(t->cell, j, n);
    fx_v in = fx_load_below(t->gates[0], j, n), out = fx_load_below(t->gates[1], j, n);
    fx_v forget = fx_load_below(t->gates[2], j, n);
    if (looks) {
        in += fx_load_below(t->look[0], j, n) * before;
        forget += fx_load_below(t->look[2], j, n) * before;
    }
    const fx_v added = fx_sigmoid(in) * fx_tanh(fx_load_below(t->gates[3], j, n));
    const fx_v cell = fx_sigmoid(forget) * before + added;
    if (looks)
        out += fx_load_below(t->look[1], j, n) * cell;
    fx_store_below(t->cell, j, n, cell);
    fx_store_below(t->y, j, n, fx_sigmoid(out) * fx_tanh(cell));
}

void FX_SYMBOL(lstm_f32)(const fx_lstm *t) {
    if (t->look[0])
        for (int j = 0; j < t->n; j += FX_WIDTH)
            cells(t, j, 1);
    else
        for (int j = 0; j < t->n; j += FX_WIDTH)
            cells(t, j, 0);
}
