/* Two operands of bytes, broadcast by strides of 0. */
#include "box.h"
#include "bytes.h"

#include <math.h>

static fx_window full_window(const fx_params *u) {
    return (fx_window){0, u->binary_u8.d0, 0, u->binary_u8.d5};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_binary_u8_params *p = &u->binary_u8;
    if (kernel != 0 || (p->kind != FX_BINARY_ADD && p->kind != FX_BINARY_MUL) || p->a_zero < 0 ||
        p->a_zero > UINT8_MAX || p->b_zero < 0 || p->b_zero > UINT8_MAX || !fx_byte_clamp_fits(p->zero, p->lo, p->hi))
        return FX_ERR_PARAMS;
    const int32_t *d = FX_SIX(u, binary_u8, d);
    return fx_box_fits(d, FX_SIX(u, binary_u8, as)) && fx_box_fits(d, FX_SIX(u, binary_u8, bs)) &&
                   fx_box_fits(d, FX_SIX(u, binary_u8, ys)) && fx_box_is_injective(d, FX_SIX(u, binary_u8, ys))
               ? FX_OK
               : FX_ERR_PARAMS;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const int32_t *s = operand == FX_OUTPUT ? FX_SIX(u, binary_u8, ys)
                       : operand            ? FX_SIX(u, binary_u8, bs)
                                            : FX_SIX(u, binary_u8, as);
    fx_box_extent(FX_DIMS, FX_SIX(u, binary_u8, d), s, 1, lo, hi);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_six_bytes(FX_SIX(u, binary_u8, d), 1);
}

static int64_t element_bytes(const fx_params *u, int operand) {
    (void)u, (void)operand;
    return 1;
}

static fx_box box_of(const fx_params *u, fx_window w) {
    const int32_t *const strides[] = {FX_SIX(u, binary_u8, as), FX_SIX(u, binary_u8, bs), FX_SIX(u, binary_u8, ys)};
    return fx_box_window(FX_SIX(u, binary_u8, d), strides, 3, w.y0, w.y1);
}

static uint32_t units_of(const fx_box *b, int threads) {
    return fx_box_units(fx_box_elements(b) * 3, threads);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    if (w.y0 >= w.y1 || w.c0 >= w.c1)
        return 0;
    const fx_box b = box_of(u, w);
    return units_of(&b, threads);
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_binary_u8_params *p = &call->params->binary_u8;
    const fx_box b = box_of(call->params, call->window);
    const uint32_t units = units_of(&b, threads);
    const int64_t total = fx_box_elements(&b), end = fx_box_cut(total, units, u1);
    fx_binary_u8 f = {.kind = p->kind, .a_zero = p->a_zero, .b_zero = p->b_zero, .zero = p->zero};
    f.a_scale = p->a_scale, f.b_scale = p->b_scale, f.lo = p->lo, f.hi = p->hi;
    f.a_row = b.s[0][FX_DIMS - 2], f.a_step = b.s[0][FX_DIMS - 1];
    f.b_row = b.s[1][FX_DIMS - 2], f.b_step = b.s[1][FX_DIMS - 1];
    f.y_row = b.s[2][FX_DIMS - 2], f.y_step = b.s[2][FX_DIMS - 1];
    for (int64_t e = fx_box_cut(total, units, u0); e < end; e += f.rows * f.n) {
        const fx_box_run r = fx_box_next(&b, e, end, end - e);
        f.rows = r.rows, f.n = r.n;
        f.a = (const uint8_t *)call->in[0] + r.at[0];
        f.b = (const uint8_t *)call->in[1] + r.at[1];
        f.y = (uint8_t *)call->out + r.at[2];
        call->kernels->bytes->binary_u8(&f);
    }
    return FX_OK;
}

FX_DRIVER(binary_u8, .traits = FX_TRAIT_ROWS, .element_bytes = element_bytes);
