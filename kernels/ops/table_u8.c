/* A function of every byte, by its 256 values. */
#include "box.h"
#include "bytes.h"

static fx_window full_window(const fx_params *u) {
    return (fx_window){0, u->table_u8.d0, 0, u->table_u8.d5};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_table_u8_params *p = &u->table_u8;
    const int32_t *d = FX_SIX(u, table_u8, d);
    if (kernel != 0 || (p->elem_bytes != 1 && p->elem_bytes != 4) || !fx_box_fits(d, FX_SIX(u, table_u8, xs)) ||
        !fx_box_fits(d, FX_SIX(u, table_u8, ys)) || !fx_box_is_injective(d, FX_SIX(u, table_u8, ys)))
        return FX_ERR_PARAMS;
    return FX_OK;
}

static int64_t element_bytes(const fx_params *u, int operand) {
    return operand == 0 ? 1 : u->table_u8.elem_bytes;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    if (operand == 1)
        *hi = (UINT8_MAX + 1) * (int64_t)u->table_u8.elem_bytes;
    else
        fx_box_extent(FX_DIMS, FX_SIX(u, table_u8, d),
                      operand == FX_OUTPUT ? FX_SIX(u, table_u8, ys) : FX_SIX(u, table_u8, xs),
                      element_bytes(u, operand), lo, hi);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_six_bytes(FX_SIX(u, table_u8, d), u->table_u8.elem_bytes);
}

static fx_box box_of(const fx_params *u, fx_window w) {
    const int32_t *const strides[] = {FX_SIX(u, table_u8, xs), FX_SIX(u, table_u8, ys)};
    return fx_box_window(FX_SIX(u, table_u8, d), strides, 2, w.y0, w.y1);
}

static uint32_t units_of(const fx_box *b, int threads) {
    return fx_box_units(fx_box_elements(b) * 4, threads);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    if (w.y0 >= w.y1 || w.c0 >= w.c1)
        return 0;
    const fx_box b = box_of(u, w);
    return units_of(&b, threads);
}

static void look_up(const fx_call *call, const uint8_t *x, int64_t x_step, char *y, int64_t y_step, int64_t n) {
    if (call->params->table_u8.elem_bytes == 1 && x_step == 1 && y_step == 1) {
        const fx_table_u8 t = {.x = x, .table = call->in[1], .y = (uint8_t *)y, .n = n};
        call->kernels->bytes->table_u8(&t);
    } else if (call->params->table_u8.elem_bytes == 1) {
        for (int64_t i = 0; i < n; i++)
            y[i * y_step] = ((const char *)call->in[1])[x[i * x_step]];
    } else {
        for (int64_t i = 0; i < n; i++)
            ((uint32_t *)(void *)y)[i * y_step] = ((const uint32_t *)call->in[1])[x[i * x_step]];
    }
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_box b = box_of(call->params, call->window);
    const uint32_t units = units_of(&b, threads);
    const int64_t total = fx_box_elements(&b), end = fx_box_cut(total, units, u1);
    const int64_t bytes = call->params->table_u8.elem_bytes;
    fx_box_run r;
    for (int64_t e = fx_box_cut(total, units, u0); e < end; e += r.rows * r.n) {
        r = fx_box_next(&b, e, end, end - e);
        for (int64_t row = 0; row < r.rows; row++)
            look_up(call, (const uint8_t *)call->in[0] + r.at[0] + row * b.s[0][FX_DIMS - 2], b.s[0][FX_DIMS - 1],
                    (char *)call->out + (r.at[1] + row * b.s[1][FX_DIMS - 2]) * bytes, b.s[1][FX_DIMS - 1], r.n);
    }
    return FX_OK;
}

FX_DRIVER(table_u8, .traits = FX_TRAIT_ROWS, .element_bytes = element_bytes);
