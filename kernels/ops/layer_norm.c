/* Layer normalisation: rows one after the other. */
#include "units.h"

#include <math.h>

#define AXIS_MAX (INT32_MAX - 1024) /* micro kernels count in steps of several vectors */

static fx_window full_window(const fx_params *u) {
    return (fx_window){0, u->layer_norm.rows, 0, u->layer_norm.n};
}

/* in[0] or the output; in[1] and in[2], scale and bias, are n floats. */
static fx_operand operand_of(const fx_layer_norm_params *p, int operand) {
    return (fx_operand){{1, 1, p->rows, p->n}, {0, 0, operand == 0 ? p->x_s : p->y_s, 1}};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_layer_norm_params *p = &u->layer_norm;
    if (kernel != 0 || p->rows < 1 || p->n < 1 || p->n > AXIS_MAX || p->is_rms < 0 || p->is_rms > 1 ||
        p->has_bias < 0 || p->has_bias > 1 || isnan(p->epsilon))
        return FX_ERR_PARAMS;
    return fx_operand_fits(operand_of(p, 0), 0) && fx_operand_fits(operand_of(p, FX_OUTPUT), 1) ? FX_OK : FX_ERR_PARAMS;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_layer_norm_params *p = &u->layer_norm;
    if (operand == 2 && !p->has_bias)
        return;
    if (operand == 1 || operand == 2)
        *hi = p->n * (int64_t)sizeof(float);
    else
        fx_operand_extent(operand_of(p, operand), lo, hi);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_operand_bytes(operand_of(&u->layer_norm, FX_OUTPUT));
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    return fx_units_of(w.y1 - w.y0, (int64_t)u->layer_norm.n * (int64_t)sizeof(float), threads);
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_layer_norm_params *p = &call->params->layer_norm;
    const fx_window *w = &call->window;
    const int64_t rows = w->y1 - w->y0;
    const int64_t pieces = units(call->kernels, call->kernel, call->params, *w, threads);
    fx_layer_norm l = {.scale = call->in[1], .n = p->n, .is_rms = p->is_rms, .epsilon = p->epsilon};
    l.bias = p->has_bias ? call->in[2] : NULL;
    const int64_t last = w->y0 + fx_cut_at(rows, pieces, u1);
    for (int64_t row = w->y0 + fx_cut_at(rows, pieces, u0); row < last; row++) {
        l.x = (const float *)call->in[0] + row * p->x_s;
        l.y = (float *)call->out + row * p->y_s;
        call->kernels->layer_norm_f32(&l);
    }
    return FX_OK;
}

FX_DRIVER(layer_norm, .traits = FX_TRAIT_ROWS);
