/* What drivers that add up halves share; half_sums.h describes each. */
#include "half_sums.h"

#include "flexnn/half.h"

#include <string.h>

static fx_panel_layout layout_of(const fx_half_panels *p) {
    return fx_panel_layout_of(p->act, p->wtype, p->weights);
}

const float *fx_half_panel_head(const fx_half_panels *p, int64_t i) {
    return (const float *)((const char *)p->call->weight + i * layout_of(p).bytes);
}

static const void *weights_of(const fx_half_panels *p, int64_t i) {
    return (const char *)fx_half_panel_head(p, i) + layout_of(p).weights;
}

const uint16_t *fx_half_panels_at(const fx_half_panels *p, int64_t first, int64_t count, int64_t *step) {
    if (p->wtype == FX_WTYPE_F16) {
        *step = layout_of(p).bytes / (int64_t)sizeof(uint16_t);
        return weights_of(p, first);
    }
    *step = p->weights;
    for (int64_t i = 0; i < count; i++) /* what becomes infinite makes sums that are computed again */
        p->call->kernels->narrow_f16(
            &(fx_narrowing){weights_of(p, first + i), p->room + i * p->weights, 1, p->weights, p->weights, p->weights});
    return p->room;
}

double fx_half_weight(const fx_half_panels *p, int64_t i, int64_t at) {
    const void *weights = weights_of(p, i);
    return p->wtype == FX_WTYPE_F16 ? fx_half_to(((const uint16_t *)weights)[at]) : ((const float *)weights)[at];
}

int fx_finish_half_pixel(const fx_kernels *k, const fx_half_pixel *p) {
    if (p->residual) {
        const float *r = p->r;
        if (fx_is_half(p->f16, 1)) {
            k->widen_f16(&(fx_widening){p->r, p->residual, 1, p->n, p->n, p->n});
            r = p->residual;
        }
        for (int64_t i = 0; i < p->n; i++)
            p->sums[i] += r[i];
    }
    if (p->act.act == FX_ACT_PRELU)
        for (int64_t i = 0; i < p->n; i++)
            p->sums[i] = p->sums[i] < 0 ? p->sums[i] * p->slopes[i] : p->sums[i];
    else if (p->act.act != FX_ACT_NONE)
        fx_activate_rows(k, p->act, p->sums, 1, 0, p->n);
    if (fx_is_half(p->f16, FX_OUTPUT))
        return k->narrow_f16(&(fx_narrowing){p->sums, p->y, 1, p->n, p->n, p->n});
    memcpy(p->y, p->sums, (size_t)p->n * sizeof(float));
    return 0;
}
