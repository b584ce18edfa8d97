/* Functions that drivers share; conv_common.h describes each. */
#include "conv_common.h"

#include <math.h>
#include <string.h>

int32_t fx_conv_panel_cin(const fx_conv_params *p, int32_t panel) {
    if (p->group == 1)
        return 0;
    int64_t first_group = (int64_t)panel * FX_NR / (p->cout / p->group);
    return (int32_t)fx_min64(first_group * (p->cin / p->group), p->cin - p->cin_panel);
}

int fx_conv_groups_are_narrow(int64_t cin, int64_t cout, int64_t group) {
    const int64_t wide = cin / group;
    return group > 1 && cin == cout && (wide == 2 || wide == 4 || wide == 8);
}

int64_t fx_conv_cin_panel(int64_t cin, int64_t cout, int64_t group) {
    const int64_t outputs = cout / group;
    if (group == 1 || fx_conv_groups_are_narrow(cin, cout, group))
        return cin / group;
    int64_t most = 0;
    for (int64_t c0 = 0; c0 < cout; c0 += FX_NR) {
        const int64_t last = fx_min64(c0 + FX_NR, cout) - 1;
        most = fx_max64(most, last / outputs - c0 / outputs + 1);
    }
    return most * (cin / group);
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

int fx_maps_fit(const fx_maps *m) {
    return fx_span_fits(m->x) && (m->has_residual == 0 || (m->has_residual == 1 && fx_span_fits(m->residual))) &&
           fx_span_is_injective(m->y);
}

void fx_maps_extent(const fx_maps *m, int operand, int64_t *lo, int64_t *hi) {
    if (operand != 1)
        fx_operand_extent(operand == 0 ? m->x : m->y, lo, hi);
    else if (m->has_residual)
        fx_operand_extent(m->residual, lo, hi);
}

int fx_panels_fit(int32_t nr, int32_t act, float alpha, float beta, int32_t wtype) {
    return nr == FX_NR && act >= 0 && act < FX_ACT_COUNT && wtype >= 0 && wtype < FX_WTYPE_COUNT && !isnan(alpha) &&
           !isnan(beta);
}

const float *fx_panels_at(const fx_panels *p, int64_t first, int64_t count) {
    const fx_panel_layout stored = fx_panel_layout_of(p->act, p->wtype, p->weights);
    const int64_t head = fx_panel_head(p->act);
    const char *from = (const char *)p->call->weight + first * stored.bytes;
    if (p->wtype == FX_WTYPE_F32)
        return (const float *)from;
    float *to = p->room;
    for (int64_t i = 0; i < count; i++, from += stored.bytes, to += head + p->weights) {
        memcpy(to, from, (size_t)head * sizeof(float));
        fx_weights w = {.to = to + head, .n = p->weights, .wtype = p->wtype};
        w.scale = from + stored.scales, w.minimum = from + stored.minimum;
        w.from = from + stored.weights;
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
