/* Instance normalisation of x[n, hw, c] over hw. */
#include "units.h"

#include <math.h>

static fx_window full_window(const fx_params *u) {
    const fx_instance_norm_params *p = &u->instance_norm;
    return (fx_window){0, p->n, 0, p->c};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_instance_norm_params *p = &u->instance_norm;
    if (kernel != 0 || p->n < 1 || p->hw < 1 || p->hw > INT32_MAX - 1024 || p->c < 1 || !isfinite(p->epsilon))
        return FX_ERR_PARAMS;
    return (int64_t)p->n * p->hw <= FX_ELEMENTS_MAX / p->c ? FX_OK : FX_ERR_PARAMS;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_instance_norm_params *p = &u->instance_norm;
    const int is_map = operand == 0 || operand == FX_OUTPUT;
    *lo = 0;
    *hi = (is_map ? (int64_t)p->n * p->hw : 1) * p->c * (int64_t)sizeof(float);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_contiguous_bytes(extent, u);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    return fx_column_units(w, u->instance_norm.hw, threads);
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_instance_norm_params *p = &call->params->instance_norm;
    const fx_window *w = &call->window;
    const int64_t each = fx_column_blocks(*w), items = (w->y1 - w->y0) * each;
    const int64_t pieces = units(call->kernels, call->kernel, call->params, *w, threads);
    fx_instance_norm t = {.step = p->c, .n = p->hw, .epsilon = p->epsilon};
    for (int64_t i = fx_cut_at(items, pieces, u0); i < fx_cut_at(items, pieces, u1); i++) {
        const int64_t channel = w->c0 + i % each * FX_COLUMNS;
        const int64_t at = (w->y0 + i / each) * p->hw * p->c + channel;
        t.x = (const float *)call->in[0] + at;
        t.y = (float *)call->out + at;
        t.scale = (const float *)call->in[1] + channel;
        t.bias = (const float *)call->in[2] + channel;
        t.columns = (int32_t)fx_min64(FX_COLUMNS, w->c1 - channel);
        call->kernels->instance_norm_f32(&t);
    }
    return FX_OK;
}

FX_DRIVER(instance_norm, .traits = FX_TRAIT_ROWS | FX_TRAIT_CHANNELS);
