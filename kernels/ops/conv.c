/* Convolution: its shapes, limits and sizes; the computing is in conv_gemm.c, conv_wino.c, conv_gemv.c, conv_group.c.
 */
#include "conv.h"
#include "wino_line.h"

#include <math.h>
#include <string.h>

static fx_window full_window(const fx_params *u) {
    const fx_conv_params *p = &u->conv;
    return (fx_window){0, p->n * p->oh, 0, p->cout};
}

static int64_t panel_bytes(const fx_params *u) {
    const fx_conv_params *p = &u->conv;
    return fx_stored_bytes(p->act, p->wtype, (int64_t)p->kh * p->kw * p->cin_panel * FX_NR);
}

static int32_t panels(const fx_params *u) {
    return (int32_t)fx_div_up(u->conv.cout, FX_NR);
}

int32_t fx_conv_panel_cin(const fx_conv_params *p, int32_t panel) {
    if (p->group == 1)
        return 0;
    int64_t first_group = (int64_t)panel * FX_NR / (p->cout / p->group);
    return (int32_t)fx_min64(first_group * (p->cin / p->group), p->cin - p->cin_panel);
}

int fx_conv_kernel_fits(uint32_t kernel, const fx_conv_params *p) {
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
    default:
        return 0;
    }
}

int fx_span_fits(fx_operand o) {
    int64_t sum = 0;
    for (int i = 0; i < 4; i++) {
        if (o.d[i] < 1 || o.s[i] < 0)
            return 0;
        sum += (int64_t)(o.d[i] - 1) * o.s[i];
        if (sum >= FX_ELEMENTS_MAX)
            return 0;
    }
    return 1;
}

int fx_span_is_injective(fx_operand o) {
    int64_t inside = 0; /* last element of what is inside a dimension */
    if (!fx_span_fits(o))
        return 0;
    for (int i = 3; i >= 0; i--) {
        if (o.d[i] > 1 && o.s[i] <= inside)
            return 0;
        inside += (int64_t)(o.d[i] - 1) * o.s[i];
    }
    return 1;
}

static int is_winograd(uint32_t kernel) {
    return kernel == FX_CONV_WINO2 || kernel == FX_CONV_WINO4 || kernel == FX_CONV_WINO_LINE;
}

static fx_operand operand_of(const fx_conv_params *p, int operand) {
    switch (operand) {
    case 0:
        return (fx_operand){{p->n, p->h, p->w, p->cin}, {p->x_sn, p->x_sh, p->x_sw, 1}};
    case 1: /* the residual */
        return (fx_operand){{p->n, p->oh, p->ow, p->cout}, {p->r_sn, p->r_sh, p->r_sw, 1}};
    default:
        return (fx_operand){{p->n, p->oh, p->ow, p->cout}, {p->y_sn, p->y_sh, p->y_sw, 1}};
    }
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_conv_params *p = &u->conv;
    const int32_t positive[] = {p->n,  p->h,  p->w,  p->cin, p->oh, p->ow,    p->cout,      p->kh,
                                p->kw, p->sh, p->sw, p->dh,  p->dw, p->group, p->cin_panel, p->cin_block};
    for (size_t i = 0; i < sizeof positive / sizeof *positive; i++)
        if (positive[i] < 1)
            return FX_ERR_PARAMS;
    if (p->nr != FX_NR || p->pt < 0 || p->pl < 0 || p->act < 0 || p->act >= FX_ACT_COUNT || p->has_residual < 0 ||
        p->has_residual > 1 || p->wtype < 0 || p->wtype >= FX_WTYPE_COUNT || isnan(p->alpha) || isnan(p->beta))
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
    if (!fx_span_fits(operand_of(p, 0)) || (p->has_residual && !fx_span_fits(operand_of(p, 1))) ||
        !fx_span_is_injective(operand_of(p, FX_OUTPUT)))
        return FX_ERR_PARAMS;
    if (!fx_conv_kernel_fits(kernel, p) || (fx_conv_is_narrow(p) && !fx_conv_group_fits(p)))
        return FX_ERR_PARAMS;
    if (is_winograd(kernel) && (p->tile_block < 1 || (int64_t)p->tile_block * p->cin > FX_ELEMENTS_MAX / 128))
        return FX_ERR_PARAMS;
    return FX_OK;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    if (operand == 1 && !u->conv.has_residual)
        return;
    fx_operand_extent(operand_of(&u->conv, operand), lo, hi);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_operand_bytes(operand_of(&u->conv, FX_OUTPUT));
}

/* A run of taps of one row outside the map: im2col reads kw * cin zeros, direct cin. */
static int64_t zeros(const fx_params *u) {
    return (int64_t)u->conv.kw * u->conv.cin;
}

static int64_t workspace(const fx_kernels *k, uint32_t kernel, const fx_params *u) {
    if (fx_conv_is_narrow(&u->conv))
        return fx_conv_group_workspace(&u->conv);
    if (fx_conv_is_gemv(kernel, &u->conv))
        return fx_conv_gemv_workspace(&u->conv);
    return is_winograd(kernel) ? fx_conv_wino_workspace(k, kernel, &u->conv)
                               : fx_conv_gemm_workspace(k, kernel, &u->conv);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    if (w.y0 >= w.y1 || w.c0 >= w.c1)
        return 0;
    if (fx_conv_is_narrow(&u->conv))
        return fx_conv_group_units(&u->conv, w, threads);
    if (fx_conv_is_gemv(kernel, &u->conv))
        return fx_conv_gemv_units(&u->conv, w, threads);
    return is_winograd(kernel) ? fx_conv_wino_units(k, kernel, &u->conv, w, threads)
                               : fx_conv_gemm_units(k, kernel, &u->conv, w, threads);
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    if (fx_conv_is_narrow(&call->params->conv))
        return fx_conv_group_run(call, threads, u0, u1);
    if (fx_conv_is_gemv(call->kernel, &call->params->conv))
        return fx_conv_gemv_run(call, threads, u0, u1);
    return is_winograd(call->kernel) ? fx_conv_wino_run(call, threads, u0, u1)
                                     : fx_conv_gemm_run(call, threads, u0, u1);
}

const float *fx_panels_at(const fx_panels *p, int64_t first, int64_t count) {
    const int64_t stored = fx_stored_bytes(p->act, p->wtype, p->weights), head = fx_panel_head(p->act);
    const char *from = (const char *)p->call->weight + first * stored;
    if (p->wtype == FX_WTYPE_F32)
        return (const float *)from;
    float *to = p->room;
    for (int64_t i = 0; i < count; i++, from += stored, to += head + p->weights) {
        memcpy(to, from, (size_t)head * sizeof(float));
        fx_weights w = {.to = to + head, .n = p->weights, .wtype = p->wtype};
        w.scale = (const float *)from + head;
        w.from = (const float *)from + fx_stored_head(p->act, p->wtype);
        p->call->kernels->weights_f32(&w);
    }
    return p->room;
}

fx_finish fx_finish_of(int32_t act, float alpha, float beta) {
    switch (act) {
    case FX_ACT_RELU:
        return (fx_finish){act, 0, INFINITY};
    case FX_ACT_CLIP:
        return (fx_finish){act, alpha, beta};
    case FX_ACT_LEAKY_RELU:
        return (fx_finish){act, alpha, 0};
    case FX_ACT_PRELU:
        return (fx_finish){act, 0, 0};
    default:
        return (fx_finish){FX_ACT_NONE, -INFINITY, INFINITY};
    }
}

fx_cut fx_cut_window(int64_t items, int64_t groups, int64_t min_cuts, int threads) {
    const int64_t wanted = threads > 1 ? (int64_t)threads * FX_UNITS_PER_THREAD : 1;
    fx_cut cut = {items, groups, 1, fx_min64(min_cuts, groups)};
    if (cut.cuts < wanted)
        cut.parts = fx_min64(items, fx_div_up(wanted, cut.cuts));
    if (cut.cuts * cut.parts < wanted)
        cut.cuts = fx_min64(groups, fx_div_up(wanted, cut.parts));
    return cut;
}

FX_DRIVER(conv, .traits = FX_TRAIT_ROWS | FX_TRAIT_CHANNELS | FX_TRAIT_PANELS, .panel_bytes = panel_bytes,
          .panels = panels, .workspace = workspace, .zeros = zeros);
