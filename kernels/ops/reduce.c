/* Reduction of the middle of [outer, n, inner]. */
#include "units.h"

#define AXIS_MAX (INT32_MAX - 1024) /* micro kernels count in steps of some vectors */

static fx_window full_window(const fx_params *u) {
    const fx_reduce_params *p = &u->reduce;
    return (fx_window){0, p->outer, 0, p->inner};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_reduce_params *p = &u->reduce;
    if (kernel != 0 || p->kind < 0 || p->kind >= FX_REDUCE_COUNT || p->outer < 1 || p->n < 1 || p->n > AXIS_MAX ||
        p->inner < 1)
        return FX_ERR_PARAMS;
    return (int64_t)p->outer * p->n <= FX_ELEMENTS_MAX / p->inner ? FX_OK : FX_ERR_PARAMS;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_reduce_params *p = &u->reduce;
    *lo = 0;
    *hi = (int64_t)p->outer * (operand == 0 ? p->n : 1) * p->inner * (int64_t)sizeof(float);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_contiguous_bytes(extent, u);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    return fx_column_units(w, u->reduce.n, threads);
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_reduce_params *p = &call->params->reduce;
    const fx_window *w = &call->window;
    const int64_t each = fx_column_blocks(*w), items = (w->y1 - w->y0) * each;
    const int64_t pieces = units(call->kernels, call->kernel, call->params, *w, threads);
    fx_reduce r = {.step = p->inner, .kind = p->kind, .n = p->n};
    for (int64_t i = fx_cut_at(items, pieces, u0); i < fx_cut_at(items, pieces, u1); i++) {
        const int64_t outer = w->y0 + i / each, column = w->c0 + i % each * FX_COLUMNS;
        r.x = (const float *)call->in[0] + outer * p->n * p->inner + column;
        r.y = (float *)call->out + outer * p->inner + column;
        r.columns = (int32_t)fx_min64(FX_COLUMNS, w->c1 - column);
        call->kernels->reduce_f32(&r);
    }
    return FX_OK;
}

FX_DRIVER(reduce, .traits = FX_TRAIT_ROWS | FX_TRAIT_CHANNELS);
