/* Convolution in groups of 2, 4 or 8 channels whose panels hold no zeros: as depthwise, but channels see their
 * group. */
#include "conv.h"
#include "strips.h"

int fx_conv_is_narrow(const fx_conv_params *p) {
    return fx_conv_groups_are_narrow(p->cin, p->cout, p->group) && p->cin_panel == p->cin / p->group;
}

static fx_dwconv_params strips_of(const fx_conv_params *p) {
    fx_dwconv_params d = {.n = p->n, .h = p->h, .w = p->w, .c = p->cout, .oh = p->oh, .ow = p->ow, .nr = p->nr};
    d.kh = p->kh, d.kw = p->kw, d.sh = p->sh, d.sw = p->sw, d.dh = p->dh, d.dw = p->dw, d.pt = p->pt, d.pl = p->pl;
    d.x_sn = p->x_sn, d.x_sh = p->x_sh, d.x_sw = p->x_sw;
    d.y_sn = p->y_sn, d.y_sh = p->y_sh, d.y_sw = p->y_sw;
    d.has_residual = p->has_residual, d.r_sn = p->r_sn, d.r_sh = p->r_sh, d.r_sw = p->r_sw;
    d.wtype = p->wtype, d.sums = p->sums, d.act = p->act, d.alpha = p->alpha, d.beta = p->beta;
    return d;
}

int fx_conv_group_fits(const fx_conv_params *p) {
    const fx_dwconv_params d = strips_of(p);
    return fx_strips_fit(&d);
}

int64_t fx_conv_group_workspace(const fx_conv_params *p) {
    const fx_dwconv_params d = strips_of(p);
    return fx_strips_workspace(&d, p->cin_panel);
}

uint32_t fx_conv_group_units(const fx_conv_params *p, fx_window w, int threads) {
    const fx_dwconv_params d = strips_of(p);
    return fx_strips_units(&d, p->cin_panel, w, threads);
}

fx_status fx_conv_group_run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_conv_params *p = &call->params->conv;
    const fx_dwconv_params d = strips_of(p);
    fx_strips_run(call, &d, p->cin_panel, threads, u0, u1);
    return FX_OK;
}
