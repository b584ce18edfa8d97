/* Convolution: its shapes, limits and sizes; the computing is in conv_gemm.c, conv_wino.c, conv_gemv.c, conv_group.c,
 * conv_planar.c, conv_rounded.c.
 */
#include "conv.h"
#include "sums.h"
#include "wino_line.h"

static fx_window full_window(const fx_params *u) {
    const fx_conv_params *p = &u->conv;
    return (fx_window){0, p->n * p->oh, 0, p->cout};
}

static int64_t panel_bytes(const fx_params *u) {
    const fx_conv_params *p = &u->conv;
    return fx_panel_layout_of(p->act, p->wtype, (int64_t)p->kh * p->kw * p->cin_panel * FX_NR).bytes;
}

static int32_t panels(const fx_params *u) {
    return (int32_t)fx_div_up(u->conv.cout, FX_NR);
}

static int is_winograd(uint32_t kernel) {
    return kernel == FX_CONV_WINO2 || kernel == FX_CONV_WINO4 || kernel == FX_CONV_WINO_LINE;
}

int fx_conv_kernel_fits(uint32_t kernel, const fx_conv_params *p) {
    if (is_winograd(kernel) && p->sums != FX_DTYPE_F32) /* its transforms are not of integers */
        return 0;
    if (fx_conv_is_rounded(p))
        return fx_conv_rounded_fits(kernel, p);
    switch (kernel) {
    case FX_CONV_DIRECT:
        return 1;
    case FX_CONV_IM2COL: /* a row of taps and channels in one block is one run of the panel */
        return p->group == 1 && p->cin_block >= p->cin && (int64_t)p->kh * p->kw * p->cin <= 1 << 20;
    case FX_CONV_WINO2:
    case FX_CONV_WINO4:
        return p->group == 1 && p->kh == 3 && p->kw == 3 && p->sh == 1 && p->sw == 1 && p->dh == 1 && p->dw == 1;
    case FX_CONV_WINO_LINE:
        return p->group == 1 && p->sh == 1 && p->sw == 1 && p->dh == 1 && p->dw == 1 &&
               ((p->kh == 1 && fx_is_line_taps(p->kw)) || (p->kw == 1 && fx_is_line_taps(p->kh)));
    case FX_CONV_PLANAR:
        return fx_conv_planar_fits(p);
    default:
        return 0;
    }
}

static fx_maps maps_of(const fx_params *u) {
    return FX_MAPS_OF(&u->conv, u->conv.cin, u->conv.cout);
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_conv_params *p = &u->conv;
    const int32_t positive[] = {p->n,  p->h,  p->w,  p->cin, p->oh, p->ow,    p->cout,      p->kh,
                                p->kw, p->sh, p->sw, p->dh,  p->dw, p->group, p->cin_panel, p->cin_block};
    for (size_t i = 0; i < sizeof positive / sizeof *positive; i++)
        if (positive[i] < 1)
            return FX_ERR_PARAMS;
    if (p->pt < 0 || p->pl < 0 || !fx_panels_fit(p->nr, p->act, p->alpha, p->beta, p->wtype) ||
        (!fx_conv_is_rounded(p) && !fx_sums_fit(p->sums, p->act, p->has_residual)))
        return FX_ERR_PARAMS;
    if (p->cin % p->group || p->cout % p->group || p->cin_panel > p->cin || (p->group == 1 && p->cin_panel != p->cin))
        return FX_ERR_PARAMS;
    if ((int64_t)p->n * p->oh > INT32_MAX || (int64_t)p->n * p->oh * p->ow > FX_ELEMENTS_MAX)
        return FX_ERR_PARAMS;
    if (!fx_taps_fit(p->oh, p->sh, p->kh, p->dh) || !fx_taps_fit(p->ow, p->sw, p->kw, p->dw))
        return FX_ERR_PARAMS;
    int64_t taps = (int64_t)p->kh * p->kw;
    if (taps > 1 << 20 || taps * p->cin_panel > FX_ELEMENTS_MAX / FX_NR ||
        (taps * p->cin_panel + 3) * FX_NR * fx_div_up(p->cout, FX_NR) > FX_ELEMENTS_MAX)
        return FX_ERR_PARAMS;
    if (!fx_form_fits(p->wtype, taps, p->cin_panel, p->cin_block) ||
        (fx_weight_forms[p->wtype].block &&
         (fx_conv_is_narrow(p) || (p->sums != FX_DTYPE_F32 && !fx_conv_is_rounded(p)))))
        return FX_ERR_PARAMS;
    const fx_maps maps = maps_of(u);
    if (!fx_maps_fit(&maps))
        return FX_ERR_PARAMS;
    if (!fx_conv_kernel_fits(kernel, p) || (fx_conv_is_narrow(p) && !fx_conv_group_fits(p)))
        return FX_ERR_PARAMS;
    if (p->sums == FX_DTYPE_I32 && fx_conv_is_narrow(p) && taps * p->cin_panel > fx_exact_terms(p->wtype))
        return FX_ERR_PARAMS;
    if (is_winograd(kernel) && (p->tile_block < 1 || (int64_t)p->tile_block * p->cin > FX_ELEMENTS_MAX / 128))
        return FX_ERR_PARAMS;
    return FX_OK;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_maps maps = maps_of(u);
    fx_maps_extent(&maps, operand, lo, hi);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_operand_bytes(maps_of(u).y);
}

/* A run of taps of one row outside the map: im2col reads kw * cin zeros, direct cin. */
static int64_t zeros(const fx_params *u) {
    return (int64_t)u->conv.kw * u->conv.cin;
}

static int64_t workspace(const fx_kernels *k, uint32_t kernel, const fx_params *u) {
    if (fx_conv_is_narrow(&u->conv))
        return fx_conv_group_workspace(&u->conv);
    if (fx_conv_is_rounded(&u->conv))
        return fx_conv_rounded_workspace(&u->conv);
    if (fx_conv_is_gemv(kernel, &u->conv))
        return fx_conv_gemv_workspace(k, &u->conv);
    if (kernel == FX_CONV_PLANAR)
        return fx_conv_planar_workspace(&u->conv);
    return is_winograd(kernel) ? fx_conv_wino_workspace(k, kernel, &u->conv)
                               : fx_conv_gemm_workspace(k, kernel, &u->conv);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    if (w.y0 >= w.y1 || w.c0 >= w.c1)
        return 0;
    if (fx_conv_is_narrow(&u->conv))
        return fx_conv_group_units(&u->conv, w, threads);
    if (fx_conv_is_rounded(&u->conv))
        return fx_conv_rounded_units(&u->conv, w, threads);
    if (fx_conv_is_gemv(kernel, &u->conv))
        return fx_conv_gemv_units(&u->conv, w, threads);
    if (kernel == FX_CONV_PLANAR)
        return fx_conv_planar_units(&u->conv, w, threads);
    return is_winograd(kernel) ? fx_conv_wino_units(k, kernel, &u->conv, w, threads)
                               : fx_conv_gemm_units(k, kernel, &u->conv, w, threads);
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    if (fx_conv_is_narrow(&call->params->conv))
        return fx_conv_group_run(call, threads, u0, u1);
    if (fx_conv_is_rounded(&call->params->conv))
        return fx_conv_rounded_run(call, threads, u0, u1);
    if (fx_conv_is_gemv(call->kernel, &call->params->conv))
        return fx_conv_gemv_run(call, threads, u0, u1);
    if (call->kernel == FX_CONV_PLANAR)
        return fx_conv_planar_run(call, threads, u0, u1);
    return is_winograd(call->kernel) ? fx_conv_wino_run(call, threads, u0, u1)
                                     : fx_conv_gemm_run(call, threads, u0, u1);
}

FX_DRIVER(conv, .traits = FX_TRAIT_ROWS | FX_TRAIT_CHANNELS | FX_TRAIT_PANELS | FX_TRAIT_FLUSHES,
          .panel_bytes = panel_bytes, .panels = panels, .workspace = workspace, .zeros = zeros);
