/* Depthwise convolution: its shapes, limits and sizes; the computing is in strips.c. */
#include "strips.h"
#include "sums.h"

static fx_window full_window(const fx_params *u) {
    const fx_dwconv_params *p = &u->dwconv;
    return (fx_window){0, p->n * p->oh, 0, p->c};
}

static int64_t panel_bytes(const fx_params *u) {
    const fx_dwconv_params *p = &u->dwconv;
    return fx_panel_layout_of(p->act, p->wtype, (int64_t)p->kh * p->kw * FX_NR).bytes;
}

static int32_t panels(const fx_params *u) {
    return (int32_t)fx_div_up(u->dwconv.c, FX_NR);
}

static fx_maps maps_of(const fx_params *u) {
    return FX_MAPS_OF(&u->dwconv, u->dwconv.c, u->dwconv.c);
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_dwconv_params *p = &u->dwconv;
    const int32_t positive[] = {p->n, p->h, p->w, p->c, p->oh, p->ow, p->kh, p->kw, p->sh, p->sw, p->dh, p->dw};
    for (size_t i = 0; i < sizeof positive / sizeof *positive; i++)
        if (positive[i] < 1)
            return FX_ERR_PARAMS;
    if (kernel != 0 || p->pt < 0 || p->pl < 0 || !fx_panels_fit(p->nr, p->act, p->alpha, p->beta, p->wtype) ||
        fx_weight_forms[p->wtype].block || !fx_sums_fit(p->sums, p->act, p->has_residual))
        return FX_ERR_PARAMS;
    if ((int64_t)p->n * p->oh > INT32_MAX || (int64_t)p->kh * p->kw > 1 << 20 ||
        ((int64_t)p->kh * p->kw + 3) * FX_NR * fx_div_up(p->c, FX_NR) > FX_ELEMENTS_MAX || !fx_strips_fit(p) ||
        !fx_taps_fit(p->oh, p->sh, p->kh, p->dh) || !fx_taps_fit(p->ow, p->sw, p->kw, p->dw))
        return FX_ERR_PARAMS;
    if (p->sums == FX_DTYPE_I32 && (int64_t)p->kh * p->kw > fx_exact_terms(p->wtype))
        return FX_ERR_PARAMS;
    const fx_maps maps = maps_of(u);
    return fx_maps_fit(&maps) ? FX_OK : FX_ERR_PARAMS;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_maps maps = maps_of(u);
    fx_maps_extent(&maps, operand, lo, hi);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_operand_bytes(maps_of(u).y);
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

FX_DRIVER(dwconv, .traits = FX_TRAIT_ROWS | FX_TRAIT_CHANNELS | FX_TRAIT_PANELS | FX_TRAIT_FLUSHES,
          .panel_bytes = panel_bytes, .panels = panels, .workspace = workspace, .zeros = zeros);
