/* One of `depth` elements set for each index. */
#include "box.h"
#include "move.h"

static fx_window full_window(const fx_params *u) {
    return (fx_window){0, 1, 0, u->one_hot.inner};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_one_hot_params *p = &u->one_hot;
    if (kernel != 0 || !fx_is_element(p->elem_bytes) || (p->index_bytes != 4 && p->index_bytes != 8) || p->outer < 1 ||
        p->depth < 1 || p->inner < 1)
        return FX_ERR_PARAMS;
    return (int64_t)p->outer * p->depth <= FX_ELEMENTS_MAX / p->inner ? FX_OK : FX_ERR_PARAMS;
}

static int64_t element_bytes(const fx_params *u, int operand) {
    return operand == 0 ? u->one_hot.index_bytes : u->one_hot.elem_bytes;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_one_hot_params *p = &u->one_hot;
    const int64_t indices = (int64_t)p->outer * p->inner;
    *lo = 0;
    *hi = (operand == 0 ? indices : operand == 1 ? 2 : indices * p->depth) * element_bytes(u, operand);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_contiguous_bytes(extent, u);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    const fx_one_hot_params *p = &u->one_hot;
    if (w.y0 >= w.y1 || w.c0 >= w.c1)
        return 0;
    const uint32_t units = fx_box_units((int64_t)p->outer * p->depth * p->inner * p->elem_bytes, threads);
    return (uint32_t)p->outer < units ? (uint32_t)p->outer : units;
}

static int64_t index_at(const fx_call *call, int64_t i) {
    return call->params->one_hot.index_bytes == 4 ? ((const int32_t *)call->in[0])[i]
                                                  : ((const int64_t *)call->in[0])[i];
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_one_hot_params *p = &call->params->one_hot;
    const uint32_t count = units(call->kernels, 0, call->params, call->window, threads);
    const int64_t bytes = p->elem_bytes, each = (int64_t)p->depth * p->inner, end = fx_box_cut(p->outer, count, u1);
    const char *off = call->in[1], *on = off + bytes;
    for (int64_t o = fx_box_cut(p->outer, count, u0); o < end; o++) {
        char *y = (char *)call->out + o * each * bytes;
        fx_move(bytes, off, y, &(fx_lines){1, each, 0, 0, 0, 1});
        for (int64_t j = 0; j < p->inner; j++) {
            const int64_t index = index_at(call, o * p->inner + j), at = index < 0 ? index + p->depth : index;
            if (at >= 0 && at < p->depth)
                fx_move(bytes, on, y + (at * p->inner + j) * bytes, &(fx_lines){1, 1, 0, 0, 0, 0});
        }
    }
    return FX_OK;
}

FX_DRIVER(one_hot, .traits = 0, .element_bytes = element_bytes);
