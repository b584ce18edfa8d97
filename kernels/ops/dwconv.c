/* Depthwise convolution: its shapes, limits and sizes; the computing is in strips.c. */
#include "strips.h"

#include <math.h>

static fx_window full_window(const fx_params *u) {
    const fx_dwconv_params *p = &u->dwconv;
    return (fx_window){0, p->n * p->oh, 0, p->c};
}

static int64_t panel_bytes(const fx_params *u) {
    const fx_dwconv_params *p = &u->dwconv;
    return fx_stored_bytes(p->act, p->wtype, (int64_t)p->kh * p->kw * FX_NR);
}

static int32_t panels(const fx_params *u) {
    return (int32_t)fx_div_up(u->dwconv.c, FX_NR);
}

static fx_operand operand_of(const fx_dwconv_params *p, int operand) {
    switch (operand) {
    case 0:
        return (fx_operand){{p->n, p->h, p->w, p->c}, {p->x_sn, p->x_sh, p->x_sw, 1}};
    case 1: /* the residual */
        return (fx_operand){{p->n, p->oh, p->ow, p->c}, {p->r_sn, p->r_sh, p->r_sw, 1}};
    default:
        return (fx_operand){{p->n, p->oh, p->ow, p->c}, {p->y_sn, p->y_sh, p->y_sw, 1}};
    }
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_dwconv_params *p = &u->dwconv;
    const int32_t positive[] = {p->n, p->h, p->w, p->c, p->oh, p->ow, p->kh, p->kw, p->sh, p->sw, p->dh, p->dw};
    for (size_t i = 0; i < sizeof positive / sizeof *positive; i++)
        if (positive[i] < 1)
            return FX_ERR_PARAMS;
    if (kernel != 0 || p->nr != FX_NR || p->pt < 0 || p->pl < 0 || p->act < 0 || p->act >= FX_ACT_COUNT ||
        p->has_residual < 0 || p->has_residual > 1 || p->wtype < 0 || p->wtype >= FX_WTYPE_COUNT || isnan(p->alpha) ||
        isnan(p->beta))
        return FX_ERR_PARAMS;
    if ((int64_t)p->n * p->oh > INT32_MAX || (int64_t)p->kh * p->kw > 1 << 20 ||
        ((int64_t)p->kh * p->kw + 3) * FX_NR * fx_div_up(p->c, FX_NR) > FX_ELEMENTS_MAX || !fx_strips_fit(p) ||
        !fx_taps_fit(p->oh, p->sh, p->kh, p->dh) || !fx_taps_fit(p->ow, p->sw, p->kw, p->dw))
        return FX_ERR_PARAMS;
    if (!fx_span_fits(operand_of(p, 0)) || (p->has_residual && !fx_span_fits(operand_of(p, 1))) ||
        !fx_span_is_injective(operand_of(p, FX_OUTPUT)))
        return FX_ERR_PARAMS;
    return FX_OK;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    if (operand == 1 && !u->dwconv.has_residual)
        return;
    fx_operand_extent(operand_of(&u->dwconv, operand), lo, hi);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_operand_bytes(operand_of(&u->dwconv, FX_OUTPUT));
}

static int64_t workspace(const fx_kernels *k, uint32_t kernel, const fx_params *u) {
    (void)k, (void)kernel;
    return fx_strips_workspace(&u->dwconv, 1);
}

static int64_t zeros(const fx_params *u) {
    return u->dwconv.c;
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    return w.y0 >= w.y1 || w.c0 >= w.c1 ? 0 : fx_strips_units(&u->dwconv, 1, w, threads);
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    fx_strips_run(call, &call->params->dwconv, 1, threads, u0, u1);
    return FX_OK;
}

FX_DRIVER(dwconv, .traits = FX_TRAIT_ROWS | FX_TRAIT_CHANNELS | FX_TRAIT_PANELS, .panel_bytes = panel_bytes,
          .panels = panels, .workspace = workspace, .zeros = zeros);
