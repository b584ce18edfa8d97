/* One function of every element. */
#include "box.h"
#include "flexnn/kernels.h"

#include <math.h>

static fx_window full_window(const fx_params *u) {
    return (fx_window){0, u->unary.d0, 0, u->unary.d5};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_unary_params *p = &u->unary;
    if (kernel != 0 || p->kind < 0 || p->kind >= FX_UNARY_COUNT || p->kind == FX_UNARY_PRELU || isnan(p->alpha) ||
        isnan(p->beta))
        return FX_ERR_PARAMS;
    if (!fx_box_fits(FX_SIX(u, unary, d), FX_SIX(u, unary, xs)) ||
        !fx_box_fits(FX_SIX(u, unary, d), FX_SIX(u, unary, ys)) ||
        !fx_box_is_injective(FX_SIX(u, unary, d), FX_SIX(u, unary, ys)))
        return FX_ERR_PARAMS;
    return FX_OK;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    fx_box_extent(FX_DIMS, FX_SIX(u, unary, d), operand == FX_OUTPUT ? FX_SIX(u, unary, ys) : FX_SIX(u, unary, xs),
                  sizeof(float), lo, hi);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_six_bytes(FX_SIX(u, unary, d), sizeof(float));
}

static fx_box box_of(const fx_params *u, fx_window w) {
    return fx_box_window(FX_SIX(u, unary, d), (const int32_t *[]){FX_SIX(u, unary, xs), FX_SIX(u, unary, ys)}, 2, w.y0,
                         w.y1);
}

static uint32_t units_of(const fx_box *b, int threads) {
    return fx_box_units(fx_box_elements(b) * 2 * (int64_t)sizeof(float), threads);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    if (w.y0 >= w.y1 || w.c0 >= w.c1)
        return 0;
    const fx_box b = box_of(u, w);
    return units_of(&b, threads);
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_unary_params *p = &call->params->unary;
    const fx_box b = box_of(call->params, call->window);
    const uint32_t units = units_of(&b, threads);
    const int64_t total = fx_box_elements(&b), end = fx_box_cut(total, units, u1);
    fx_unary f = {.kind = p->kind, .alpha = p->alpha, .beta = p->beta};
    f.x_row = b.s[0][FX_DIMS - 2], f.x_step = b.s[0][FX_DIMS - 1];
    f.y_row = b.s[1][FX_DIMS - 2], f.y_step = b.s[1][FX_DIMS - 1];
    for (int64_t e = fx_box_cut(total, units, u0); e < end; e += f.rows * f.n) {
        const fx_box_run r = fx_box_next(&b, e, end, end - e);
        f.rows = r.rows, f.n = r.n;
        f.x = (const float *)call->in[0] + r.at[0];
        f.y = (float *)call->out + r.at[1];
        call->kernels->unary_f32(&f);
    }
    return FX_OK;
}

FX_DRIVER(unary, .traits = FX_TRAIT_ROWS);
