/* Two operands, broadcast by strides of 0, and an activation over the result. */
#include "box.h"
#include "conv_common.h"

#include <math.h>

/* Elements of a run where the activation takes a second pass: they are still in the L1 cache then. */
#define ACTIVATED_MAX 2048

static fx_window full_window(const fx_params *u) {
    return (fx_window){0, u->binary.d0, 0, u->binary.d5};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_binary_params *p = &u->binary;
    if (kernel != 0 || p->kind < 0 || p->kind >= FX_BINARY_COUNT || p->act < 0 || p->act >= FX_ACT_COUNT ||
        p->act == FX_ACT_PRELU || isnan(p->alpha) || isnan(p->beta))
        return FX_ERR_PARAMS;
    if (!fx_box_fits(FX_SIX(u, binary, d), FX_SIX(u, binary, as)) ||
        !fx_box_fits(FX_SIX(u, binary, d), FX_SIX(u, binary, bs)) ||
        !fx_box_fits(FX_SIX(u, binary, d), FX_SIX(u, binary, ys)) ||
        !fx_box_is_injective(FX_SIX(u, binary, d), FX_SIX(u, binary, ys)))
        return FX_ERR_PARAMS;
    return FX_OK;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    fx_box_extent(FX_DIMS, FX_SIX(u, binary, d),
                  operand == FX_OUTPUT ? FX_SIX(u, binary, ys)
                  : operand            ? FX_SIX(u, binary, bs)
                                       : FX_SIX(u, binary, as),
                  sizeof(float), lo, hi);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_six_bytes(FX_SIX(u, binary, d), sizeof(float));
}

static fx_box box_of(const fx_params *u, fx_window w) {
    return fx_box_window(FX_SIX(u, binary, d),
                         (const int32_t *[]){FX_SIX(u, binary, as), FX_SIX(u, binary, bs), FX_SIX(u, binary, ys)}, 3,
                         w.y0, w.y1);
}

static uint32_t units_of(const fx_box *b, int threads) {
    return fx_box_units(fx_box_elements(b) * 3 * (int64_t)sizeof(float), threads);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    if (w.y0 >= w.y1 || w.c0 >= w.c1)
        return 0;
    const fx_box b = box_of(u, w);
    return units_of(&b, threads);
}

/* The second pass, over what the kernel stored: activations other than clamps. */
static void activate(const fx_call *call, const fx_binary *f) {
    const fx_binary_params *p = &call->params->binary;
    const fx_unary act = {.x = f->y,
                          .y = f->y,
                          .rows = f->rows,
                          .n = f->n,
                          .x_row = f->y_row,
                          .x_step = f->y_step,
                          .y_row = f->y_row,
                          .y_step = f->y_step,
                          .kind = p->act,
                          .alpha = p->alpha,
                          .beta = p->beta};
    call->kernels->unary_f32(&act);
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_binary_params *p = &call->params->binary;
    const fx_box b = box_of(call->params, call->window);
    const uint32_t units = units_of(&b, threads);
    const int64_t total = fx_box_elements(&b), end = fx_box_cut(total, units, u1);
    const int is_activated = p->act > FX_ACT_CLIP;
    const fx_finish clamp = fx_finish_of(is_activated ? FX_ACT_NONE : p->act, p->alpha, p->beta);
    fx_binary f = {.kind = p->kind, .lo = clamp.lo, .hi = clamp.hi};
    f.a_row = b.s[0][FX_DIMS - 2], f.a_step = b.s[0][FX_DIMS - 1];
    f.b_row = b.s[1][FX_DIMS - 2], f.b_step = b.s[1][FX_DIMS - 1];
    f.y_row = b.s[2][FX_DIMS - 2], f.y_step = b.s[2][FX_DIMS - 1];
    for (int64_t e = fx_box_cut(total, units, u0); e < end; e += f.rows * f.n) {
        const fx_box_run r = fx_box_next(&b, e, end, is_activated ? ACTIVATED_MAX : end - e);
        f.rows = r.rows, f.n = r.n;
        f.a = (const float *)call->in[0] + r.at[0];
        f.b = (const float *)call->in[1] + r.at[1];
        f.y = (float *)call->out + r.at[2];
        call->kernels->binary_f32(&f);
        if (is_activated)
            activate(call, &f);
    }
    return FX_OK;
}

FX_DRIVER(binary, .traits = FX_TRAIT_ROWS);
