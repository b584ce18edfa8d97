/* Local response normalisation (Krizhevsky et al. 2012, 3.3) over channels: each row is copied between zeros first. */
#include "units.h"

#include <math.h>
#include <string.h>

static fx_window full_window(const fx_params *u) {
    return (fx_window){0, u->lrn.rows, 0, u->lrn.c};
}

/* Channels before and after that a sum includes: beyond c - 1 there are only zeros. */
static int32_t before(const fx_lrn_params *p) {
    return (int32_t)fx_min64((p->size - 1) / 2, p->c - 1);
}
static int32_t after(const fx_lrn_params *p) {
    return (int32_t)fx_min64(p->size / 2, p->c - 1);
}

static fx_operand operand_of(const fx_lrn_params *p, int operand) {
    return (fx_operand){{1, 1, p->rows, p->c}, {0, 0, operand == 0 ? p->x_s : p->y_s, 1}};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_lrn_params *p = &u->lrn;
    if (kernel != 0 || p->size < 1 || p->c > INT32_MAX / 4 || !isfinite(p->alpha) || !isfinite(p->beta) ||
        !isfinite(p->bias))
        return FX_ERR_PARAMS;
    return fx_operand_fits(operand_of(p, 0), 0) && fx_operand_fits(operand_of(p, FX_OUTPUT), 1) ? FX_OK : FX_ERR_PARAMS;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    fx_operand_extent(operand_of(&u->lrn, operand), lo, hi);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_operand_bytes(operand_of(&u->lrn, FX_OUTPUT));
}

static int64_t workspace(const fx_kernels *k, uint32_t kernel, const fx_params *u) {
    (void)k, (void)kernel;
    return fx_round_up(((int64_t)u->lrn.c + before(&u->lrn) + after(&u->lrn)) * (int64_t)sizeof(float), 64);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    const int64_t taps = before(&u->lrn) + 1 + after(&u->lrn);
    return fx_units_of(w.y1 - w.y0, u->lrn.c * taps * 4, threads);
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_lrn_params *p = &call->params->lrn;
    const fx_window *w = &call->window;
    const int64_t rows = w->y1 - w->y0;
    const int64_t pieces = units(call->kernels, call->kernel, call->params, *w, threads);
    float *padded = call->workspace;
    fx_lrn l = {.padded = padded, .channels = p->c, .before = before(p), .taps = before(p) + 1 + after(p)};
    l.scale = p->alpha / (float)p->size, l.beta = p->beta, l.bias = p->bias;
    memset(padded, 0, (size_t)(p->c + l.taps - 1) * sizeof(float));
    const int64_t last = w->y0 + fx_cut_at(rows, pieces, u1);
    for (int64_t row = w->y0 + fx_cut_at(rows, pieces, u0); row < last; row++) {
        memcpy(padded + l.before, (const float *)call->in[0] + row * p->x_s, (size_t)p->c * sizeof(float));
        l.y = (float *)call->out + row * p->y_s;
        call->kernels->lrn_f32(&l);
    }
    return FX_OK;
}

FX_DRIVER(lrn, .traits = FX_TRAIT_ROWS, .workspace = workspace);
