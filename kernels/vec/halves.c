/* widen_f16 and narrow_f16 for all instruction sets. */
#include "simd.h"

#include <math.h>
#include <string.h>

#define VECTORS (FX_NR / FX_WIDTH)

static void widen_row(const uint16_t *x, float *y, int64_t n) {
    fx_v v[VECTORS];
    for (; n >= FX_NR; n -= FX_NR, x += FX_NR, y += FX_NR) {
        fx_load_f16(v, x);
        FX_UNROLL for (int j = 0; j < VECTORS; j++) fx_store(y + j * FX_WIDTH, v[j]);
    }
    if (n) {
        uint16_t part[FX_NR] = {0};
        memcpy(part, x, (size_t)n * sizeof *x);
        fx_load_f16(v, part);
        FX_UNROLL for (int j = 0; j < VECTORS; j++) fx_store_below(y, j * FX_WIDTH, (int)n, v[j]);
    }
}

void FX_SYMBOL(widen_f16)(const fx_widening *w) {
    if (w->x_row == w->n && w->y_row == w->n) {
        widen_row(w->x, w->y, w->rows * w->n);
        return;
    }
    for (int64_t r = 0; r < w->rows; r++)
        widen_row(w->x + r * w->x_row, w->y + r * w->y_row, w->n);
}

/* The largest absolute value, or `most`; a NaN counts as nothing, or makes the result one. */
static fx_v narrow_row(const float *x, uint16_t *y, int64_t n, fx_v most) {
    fx_v v[VECTORS];
    for (; n >= FX_NR; n -= FX_NR, x += FX_NR, y += FX_NR) {
        FX_UNROLL for (int j = 0; j < VECTORS; j++) {
            v[j] = fx_load(x + j * FX_WIDTH);
            most = fx_max(fx_from_bits(fx_bits(v[j]) & 0x7fffffff), most);
        }
        fx_store_f16(y, v);
    }
    if (n) {
        uint16_t part[FX_NR];
        FX_UNROLL for (int j = 0; j < VECTORS; j++) {
            v[j] = fx_load_below(x, j * FX_WIDTH, (int)n);
            most = fx_max(fx_from_bits(fx_bits(v[j]) & 0x7fffffff), most);
        }
        fx_store_f16(part, v);
        memcpy(y, part, (size_t)n * sizeof *y);
    }
    return most;
}

/* Infinities are no reason to fail: they were there before. */
static int is_beyond(const fx_narrowing *n) {
    for (int64_t r = 0; r < n->rows; r++)
        for (int64_t i = 0; i < n->n; i++) {
            const float v = fabsf(n->x[r * n->x_row + i]);
            if (v >= FX_F16_BEYOND && !isinf(v))
                return 1;
        }
    return 0;
}

int FX_SYMBOL(narrow_f16)(const fx_narrowing *n) {
    fx_v most = fx_splat(0);
    if (n->x_row == n->n && n->y_row == n->n)
        most = narrow_row(n->x, n->y, n->rows * n->n, most);
    else
        for (int64_t r = 0; r < n->rows; r++)
            most = narrow_row(n->x + r * n->x_row, n->y + r * n->y_row, n->n, most);
    for (int i = 0; i < FX_WIDTH; i++)
        if (!(most[i] < FX_F16_BEYOND))
            return is_beyond(n);
    return 0;
}
