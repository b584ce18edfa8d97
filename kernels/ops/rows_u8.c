/* Functions of whole rows of bytes: some rows are restored to floats in the workspace, computed and rounded there. */
#include "bytes.h"
#include "units.h"

#include <math.h>

#define BLOCK 4096 /* floats in the workspace that stay in a first-level cache, where rows are shorter */
#define AXIS_MAX (INT32_MAX - 1024) /* micro kernels count in steps of several vectors */

static fx_window full_window(const fx_params *u) {
    return (fx_window){0, u->rows_u8.rows, 0, u->rows_u8.n};
}

static fx_operand operand_of(const fx_rows_u8_params *p, int operand) {
    return (fx_operand){{1, 1, p->rows, p->n}, {0, 0, operand == 0 ? p->x_s : p->y_s, 1}};
}

static int is_byte(int32_t v) {
    return v >= 0 && v <= UINT8_MAX;
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_rows_u8_params *p = &u->rows_u8;
    if (kernel != 0 || p->rows < 1 || p->n < 1 || p->n > AXIS_MAX || p->is_softmax < 0 || p->is_softmax > 1)
        return FX_ERR_PARAMS;
    const int most = 1 - p->is_softmax;
    if (p->is_rms < 0 || p->is_rms > most || p->has_bias < 0 || p->has_bias > most || isnan(p->epsilon))
        return FX_ERR_PARAMS;
    if (!is_byte(p->x_zero) || !is_byte(p->zero) || isnan(p->x_scale) || isnan(p->scale))
        return FX_ERR_PARAMS;
    return fx_operand_fits(operand_of(p, 0), 0) && fx_operand_fits(operand_of(p, FX_OUTPUT), 1) ? FX_OK : FX_ERR_PARAMS;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_rows_u8_params *p = &u->rows_u8;
    const fx_operand o = operand_of(p, operand);
    if (operand == 0 || operand == FX_OUTPUT)
        fx_box_extent(4, o.d, o.s, 1, lo, hi);
    else if (!p->is_softmax && (operand == 1 || p->has_bias))
        *hi = p->n * (int64_t)sizeof(float);
}

static int64_t output_bytes(const fx_params *u) {
    return (int64_t)u->rows_u8.rows * u->rows_u8.n;
}

static int64_t element_bytes(const fx_params *u, int operand) {
    (void)u;
    return operand == 0 || operand == FX_OUTPUT ? 1 : (int64_t)sizeof(float);
}

/* Rows at a time: several that are neighbours on both sides, so that no loop ends with each. */
static int64_t rows_at_once(const fx_rows_u8_params *p) {
    return p->x_s == p->n && p->y_s == p->n ? fx_max64(1, fx_min64(p->rows, BLOCK / p->n)) : 1;
}

static int64_t workspace_bytes(const fx_kernels *k, uint32_t kernel, const fx_params *u) {
    (void)k, (void)kernel;
    return rows_at_once(&u->rows_u8) * u->rows_u8.n * (int64_t)sizeof(float);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    return fx_units_of(w.c0 < w.c1 ? w.y1 - w.y0 : 0, (int64_t)u->rows_u8.n * (int64_t)sizeof(float), threads);
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_rows_u8_params *p = &call->params->rows_u8;
    const fx_kernels *k = call->kernels;
    const fx_window *w = &call->window;
    const int64_t pieces = units(k, call->kernel, call->params, *w, threads);
    float *v = call->workspace;
    fx_of_bytes restored = {.y = v, .scale = p->x_scale, .zero = p->x_zero};
    fx_softmax softmax = {.x = v, .y = v, .step = 1, .n = p->n, .columns = 1};
    fx_layer_norm norm = {.scale = call->in[1], .n = p->n, .is_rms = p->is_rms, .epsilon = p->epsilon};
    norm.bias = p->has_bias ? call->in[2] : NULL;
    fx_to_bytes rounded = {.x = v, .scale = p->scale, .zero = p->zero};
    rounded.lo = (float)-p->zero, rounded.hi = (float)(UINT8_MAX - p->zero);
    const int64_t last = w->y0 + fx_cut_at(w->y1 - w->y0, pieces, u1);
    for (int64_t row = w->y0 + fx_cut_at(w->y1 - w->y0, pieces, u0), some; row < last; row += some) {
        some = fx_min64(rows_at_once(p), last - row);
        restored.n = rounded.n = some * p->n;
        restored.x = (const uint8_t *)call->in[0] + row * p->x_s;
        rounded.y = (uint8_t *)call->out + row * p->y_s;
        softmax.rows = (int32_t)some;
        k->of_bytes_f32(&restored);
        for (int64_t i = 0; i < some && !p->is_softmax; i++) {
            norm.x = norm.y = v + i * p->n;
            k->layer_norm_f32(&norm);
        }
        if (p->is_softmax)
            k->softmax_f32(&softmax);
        k->to_bytes_f32(&rounded);
    }
    return FX_OK;
}

FX_DRIVER(rows_u8, .traits = FX_TRAIT_ROWS, .element_bytes = element_bytes, .workspace = workspace_bytes);
