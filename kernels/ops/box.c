/* Walking boxes of strided operands. */
#include "box.h"

void fx_box_extent(int rank, const int32_t *d, const int32_t *s, int64_t elem_bytes, int64_t *lo, int64_t *hi) {
    int64_t low = 0, high = 0;
    for (int i = 0; i < rank; i++) {
        if (d[i] < 1) {
            *lo = *hi = 0;
            return;
        }
        const int64_t reach = (int64_t)(d[i] - 1) * s[i];
        *(reach < 0 ? &low : &high) += reach;
    }
    *lo = low * elem_bytes;
    *hi = (high + 1) * elem_bytes;
}

int fx_box_fits(const int32_t *d, const int32_t *s) {
    int64_t elements = 1, reach = 0;
    for (int i = 0; i < FX_DIMS; i++) {
        if (d[i] < 1 || elements > FX_ELEMENTS_MAX / d[i])
            return 0;
        elements *= d[i];
        const int64_t step = (int64_t)(d[i] - 1) * s[i];
        reach += step < 0 ? -step : step;
        if (reach >= FX_ELEMENTS_MAX)
            return 0;
    }
    return 1;
}

int fx_box_is_injective(const int32_t *d, const int32_t *s) {
    int order[FX_DIMS], n = 0;
    for (int i = 0; i < FX_DIMS; i++) { /* by stride, smallest first */
        if (d[i] == 1)
            continue;
        int at = n++;
        for (; at > 0 && s[order[at - 1]] > s[i]; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    int64_t inside = 0;
    for (int i = 0; i < n; i++) {
        if (s[order[i]] <= inside)
            return 0;
        inside += (int64_t)(d[order[i]] - 1) * s[order[i]];
    }
    return 1;
}

fx_box fx_box_window(const int32_t *d, const int32_t *const *s, int operands, int32_t y0, int32_t y1) {
    fx_box b = {.operands = operands};
    int at = FX_DIMS;
    for (int o = 0; o < operands; o++)
        b.at[o] = (int64_t)y0 * s[o][0];
    for (int i = FX_DIMS - 1; i >= 0; i--) {
        const int64_t size = i == 0 ? y1 - y0 : d[i];
        if (size == 1)
            continue;
        int joins = at < FX_DIMS;
        for (int o = 0; o < operands && joins; o++)
            joins = s[o][i] == b.s[o][at] * b.d[at];
        if (joins) {
            b.d[at] *= size;
            continue;
        }
        b.d[--at] = size;
        for (int o = 0; o < operands; o++)
            b.s[o][at] = s[o][i];
    }
    while (at > 0)
        b.d[--at] = 1;
    return b;
}

int64_t fx_box_elements(const fx_box *b) {
    int64_t n = 1;
    for (int i = 0; i < FX_DIMS; i++)
        n *= b->d[i];
    return n;
}

uint32_t fx_box_units(int64_t bytes, int threads) {
    const int64_t most = threads > 1 ? (int64_t)threads * FX_BOX_UNITS : 1, units = bytes / FX_BOX_UNIT_BYTES;
    return bytes <= 0 ? 0 : units < 1 ? 1 : (uint32_t)(units < most ? units : most);
}

int64_t fx_box_cut(int64_t total, uint32_t units, uint32_t u) {
    return u >= units ? total : total / units * u + total % units * u / units;
}

fx_box_run fx_box_next(const fx_box *b, int64_t e, int64_t e1, int64_t most) {
    const int64_t columns = b->d[FX_DIMS - 1], column = e % columns;
    fx_box_run r = {.rows = 1, .n = columns - column};
    int64_t row = 0, rest = e / columns;
    for (int o = 0; o < b->operands; o++)
        r.at[o] = b->at[o] + column * b->s[o][FX_DIMS - 1];
    for (int i = FX_DIMS - 2; i >= 0 && rest; i--) {
        const int64_t index = i ? rest % b->d[i] : rest;
        rest /= b->d[i];
        for (int o = 0; o < b->operands; o++)
            r.at[o] += index * b->s[o][i];
        row = i == FX_DIMS - 2 ? index : row;
    }
    const int64_t left = e1 - e < most ? e1 - e : most;
    if (column || left < 2 * columns) {
        r.n = r.n < left ? r.n : left;
        return r;
    }
    r.rows = b->d[FX_DIMS - 2] - row;
    r.rows = r.rows < left / columns ? r.rows : left / columns;
    return r;
}
