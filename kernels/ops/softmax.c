/* Softmax over the middle of [outer, n, inner]. */
#include "units.h"

#define AXIS_MAX (INT32_MAX - 1024) /* micro kernels count in steps of some vectors */

static fx_window full_window(const fx_params *u) {
    const fx_softmax_params *p = &u->softmax;
    return (fx_window){0, p->outer, 0, p->inner};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_softmax_params *p = &u->softmax;
    if (kernel != 0 || p->outer < 1 || p->n < 1 || p->n > AXIS_MAX || p->inner < 1 || p->log < 0 || p->log > 1)
        return FX_ERR_PARAMS;
    return (int64_t)p->outer * p->n <= FX_ELEMENTS_MAX / p->inner ? FX_OK : FX_ERR_PARAMS;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_softmax_params *p = &u->softmax;
    (void)operand;
    *lo = 0;
    *hi = (int64_t)p->outer * p->n * p->inner * (int64_t)sizeof(float);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_contiguous_bytes(extent, u);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    return fx_column_units(w, u->softmax.n, threads);
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_softmax_params *p = &call->params->softmax;
    const fx_window *w = &call->window;
    const int64_t each = fx_column_blocks(*w), items = (w->y1 - w->y0) * each;
    const int64_t pieces = units(call->kernels, call->kernel, call->params, *w, threads);
    const int64_t first = fx_cut_at(items, pieces, u0), last = fx_cut_at(items, pieces, u1);
    fx_softmax s = {.step = p->inner, .n = p->n, .log = p->log, .columns = 1, .rows = 1};
    if (p->inner == 1) { /* items are rows, one after the other */
        s.x = (const float *)call->in[0] + (w->y0 + first) * p->n;
        s.y = (float *)call->out + (w->y0 + first) * p->n;
        s.rows = (int32_t)(last - first);
        if (s.rows)
            call->kernels->softmax_f32(&s);
        return FX_OK;
    }
    for (int64_t i = first; i < last; i++) {
        const int64_t column = w->c0 + i % each * FX_COLUMNS;
        const int64_t at = (w->y0 + i / each) * p->n * p->inner + column;
        s.x = (const float *)call->in[0] + at;
        s.y = (float *)call->out + at;
        s.columns = (int32_t)fx_min64(FX_COLUMNS, w->c1 - column);
        call->kernels->softmax_f32(&s);
    }
    return FX_OK;
}

FX_DRIVER(softmax, .traits = FX_TRAIT_ROWS);
