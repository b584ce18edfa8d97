/* How operators that walk equal items (pixels, rows, blocks of channels) cut a window into units. */
#ifndef FLEXNN_OPS_UNITS_H
#define FLEXNN_OPS_UNITS_H

#include "box.h"
#include "conv_common.h"

#define FX_UNIT_BYTES 8192 /* less work than this does not pay for a unit */

/* Units of `items`, each of which moves about `item_bytes`. */
static inline uint32_t fx_units_of(int64_t items, int64_t item_bytes, int threads) {
    if (items <= 0)
        return 0;
    const int64_t wanted = threads > 1 ? (int64_t)threads * FX_UNITS_PER_THREAD : 1;
    const int64_t worth = items / fx_div_up(FX_UNIT_BYTES, fx_max64(item_bytes, 1));
    return (uint32_t)fx_max64(1, fx_min64(fx_min64(wanted, items), worth));
}

#define FX_COLUMNS 64 /* neighbouring columns of one call: a few cache lines of each row */

/* Columns c0 .. c1 of rows y0 .. y1, each over `n` numbers: an item is a block of columns of one row. */
static inline int64_t fx_column_blocks(fx_window w) {
    return fx_div_up(w.c1 - w.c0, FX_COLUMNS);
}

static inline uint32_t fx_column_units(fx_window w, int64_t n, int threads) {
    if (w.y0 >= w.y1 || w.c0 >= w.c1)
        return 0;
    return fx_units_of((w.y1 - w.y0) * fx_column_blocks(w), 4 * fx_min64(w.c1 - w.c0, FX_COLUMNS) * n, threads);
}

/* fx_box_fits; an output's elements must not share addresses either. */
static inline int fx_operand_fits(fx_operand o, int is_output) {
    const int32_t sizes[FX_DIMS] = {1, 1, o.d[0], o.d[1], o.d[2], o.d[3]};
    const int32_t strides[FX_DIMS] = {0, 0, o.s[0], o.s[1], o.s[2], o.s[3]};
    return fx_box_fits(sizes, strides) && (!is_output || fx_box_is_injective(sizes, strides));
}

#endif
