/* The upper or lower triangle of matrices; zeros in the other one. */
#include "box.h"
#include "move.h"

#include <string.h>

static fx_window full_window(const fx_params *u) {
    return (fx_window){0, 1, 0, u->trilu.columns};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_trilu_params *p = &u->trilu;
    if (kernel != 0 || !fx_is_element(p->elem_bytes) || p->outer < 1 || p->rows < 1 || p->columns < 1 ||
        p->is_upper < 0 || p->is_upper > 1)
        return FX_ERR_PARAMS;
    return (int64_t)p->outer * p->rows <= FX_ELEMENTS_MAX / p->columns ? FX_OK : FX_ERR_PARAMS;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_trilu_params *p = &u->trilu;
    (void)operand;
    *lo = 0;
    *hi = (int64_t)p->outer * p->rows * p->columns * p->elem_bytes;
}

static int64_t output_bytes(const fx_params *u) {
    return fx_contiguous_bytes(extent, u);
}

static int64_t element_bytes(const fx_params *u, int operand) {
    (void)operand;
    return u->trilu.elem_bytes;
}

static int64_t rows_of(const fx_trilu_params *p) {
    return (int64_t)p->outer * p->rows;
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    if (w.y0 >= w.y1 || w.c0 >= w.c1)
        return 0;
    const int64_t rows = rows_of(&u->trilu);
    const uint32_t units = fx_box_units(rows * u->trilu.columns * 2 * u->trilu.elem_bytes, threads);
    return rows < units ? (uint32_t)rows : units;
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_trilu_params *p = &call->params->trilu;
    const uint32_t count = units(call->kernels, 0, call->params, call->window, threads);
    const int64_t end = fx_box_cut(rows_of(p), count, u1), bytes = p->elem_bytes;
    for (int64_t row = fx_box_cut(rows_of(p), count, u0); row < end; row++) {
        const char *x = (const char *)call->in[0] + row * p->columns * bytes;
        char *y = (char *)call->out + row * p->columns * bytes;
        int64_t cut = row % p->rows + p->k + (p->is_upper ? 0 : 1); /* columns before it are the lower ones */
        cut = cut < 0 ? 0 : cut > p->columns ? p->columns : cut;
        const int64_t kept = p->is_upper ? cut : 0, zeros = p->is_upper ? 0 : cut, lower = cut,
                      upper = p->columns - cut;
        if (x != y)
            memcpy(y + kept * bytes, x + kept * bytes, (size_t)((p->is_upper ? upper : lower) * bytes));
        memset(y + zeros * bytes, 0, (size_t)((p->is_upper ? lower : upper) * bytes));
    }
    return FX_OK;
}

FX_DRIVER(trilu, .traits = 0, .element_bytes = element_bytes);
