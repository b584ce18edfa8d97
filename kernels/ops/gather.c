/* y[outer, count, inner] = data[outer, indices[count], inner]: copies of runs of `inner` elements. */
#include "units.h"

#include <string.h>

static fx_window full_window(const fx_params *u) {
    const fx_gather_params *p = &u->gather;
    return (fx_window){0, p->outer, 0, p->inner};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_gather_params *p = &u->gather;
    const int is_size = p->elem_bytes == 1 || p->elem_bytes == 2 || p->elem_bytes == 4 || p->elem_bytes == 8;
    if (kernel || !is_size || (p->index_bytes != 4 && p->index_bytes != 8) || p->outer < 1 || p->axis < 1 ||
        p->inner < 1 || p->count < 1)
        return FX_ERR_PARAMS;
    const int64_t rows = (int64_t)p->outer * fx_max64(p->axis, p->count);
    return rows <= FX_ELEMENTS_MAX / p->inner ? FX_OK : FX_ERR_PARAMS;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_gather_params *p = &u->gather;
    *lo = 0;
    if (operand == 0)
        *hi = (int64_t)p->outer * p->axis * p->inner * p->elem_bytes;
    else if (operand == 1)
        *hi = (int64_t)p->count * p->index_bytes;
    else if (operand == FX_OUTPUT)
        *hi = (int64_t)p->outer * p->count * p->inner * p->elem_bytes;
}

static int64_t items(const fx_gather_params *p, fx_window w) { return (int64_t)(w.y1 - w.y0) * p->count; }

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    const fx_gather_params *p = &u->gather;
    return fx_units_of(items(p, w), (int64_t)p->inner * p->elem_bytes, threads);
}

static int64_t index_at(const fx_gather_params *p, const void *indices, int64_t i) {
    if (p->index_bytes == 8)
        return ((const int64_t *)indices)[i];
    return ((const int32_t *)indices)[i];
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_gather_params *p = &call->params->gather;
    const int64_t total = items(p, call->window), bytes = (int64_t)p->inner * p->elem_bytes;
    const uint32_t all = units(call->kernels, call->kernel, call->params, call->window, threads);
    const int64_t end = fx_cut_at(total, all, u1);
    for (int64_t item = fx_cut_at(total, all, u0); item < end; item++) {
        const int64_t outer = call->window.y0 + item / p->count, i = item % p->count;
        int64_t index = index_at(p, call->in[1], i);
        if (index < -(int64_t)p->axis || index >= p->axis)
            return FX_ERR_INDEX;
        index += index < 0 ? p->axis : 0;
        memcpy((char *)call->out + (outer * p->count + i) * bytes,
               (const char *)call->in[0] + (outer * p->axis + index) * bytes, (size_t)bytes);
    }
    return FX_OK;
}

const fx_op_impl fx_gather_impl = {
    .traits = FX_TRAIT_ROWS,
    .full_window = full_window,
    .check = check,
    .extent = extent,
    .units = units,
    .run = run,
};
