/* Rows of a tensor, picked by indices that are known at run time; the tensor may be a table that is not in memory. */
#include "box.h"
#include "move.h"

static fx_window full_window(const fx_params *u) {
    return (fx_window){0, u->gather.outer, 0, u->gather.inner};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_gather_params *p = &u->gather;
    if (kernel != 0 || !fx_is_element(p->elem_bytes) || (p->index_bytes != 4 && p->index_bytes != 8) || p->outer < 1 ||
        p->axis < 1 || p->inner < 1 || p->count < 1)
        return FX_ERR_PARAMS;
    const int64_t rows = (int64_t)p->outer * p->inner;
    if (rows > FX_ELEMENTS_MAX / p->axis || rows > FX_ELEMENTS_MAX / p->count)
        return FX_ERR_PARAMS;
    return FX_OK;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_gather_params *p = &u->gather;
    const int64_t rows = (int64_t)p->outer * p->inner * p->elem_bytes;
    *lo = 0;
    *hi = operand == 1 ? (int64_t)p->count * p->index_bytes : operand == FX_OUTPUT ? rows * p->count : rows * p->axis;
}

static int64_t output_bytes(const fx_params *u) {
    return fx_contiguous_bytes(extent, u);
}

static int64_t element_bytes(const fx_params *u, int operand) {
    return operand == 1 ? u->gather.index_bytes : u->gather.elem_bytes;
}

/* Rows of `inner` elements in the output. */
static int64_t rows_of(const fx_gather_params *p) {
    return (int64_t)p->outer * p->count;
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    if (w.y0 >= w.y1 || w.c0 >= w.c1)
        return 0;
    const int64_t rows = rows_of(&u->gather);
    const uint32_t units = fx_box_units(rows * u->gather.inner * 2 * u->gather.elem_bytes, threads);
    return rows < units ? (uint32_t)rows : units;
}

static int64_t index_at(const fx_call *call, int64_t i) {
    return call->params->gather.index_bytes == 4 ? ((const int32_t *)call->in[1])[i]
                                                 : ((const int64_t *)call->in[1])[i];
}

/* The chunk of a table that a thread read last. */
typedef struct cursor {
    int64_t number;
    const char *data;
} cursor;

/* Row `index` of a table that is not in memory. */
static fx_status row_of_table(const fx_call *call, int64_t index, int64_t bytes, cursor *c, const char **row) {
    const int64_t rows = call->table->chunk_bytes / bytes, number = index / rows;
    if (number != c->number) {
        c->number = number;
        const fx_status status = call->table->read(call->table, number, call->workspace, &c->data);
        if (status != FX_OK)
            return status;
    }
    *row = c->data + index % rows * bytes;
    return FX_OK;
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_gather_params *p = &call->params->gather;
    const uint32_t count = units(call->kernels, 0, call->params, call->window, threads);
    const int64_t bytes = p->inner * (int64_t)p->elem_bytes, end = fx_box_cut(rows_of(p), count, u1);
    cursor c = {.number = -1};
    for (int64_t row = fx_box_cut(rows_of(p), count, u0); row < end; row++) {
        int64_t index = index_at(call, row % p->count);
        if (index < -(int64_t)p->axis || index >= p->axis)
            return FX_ERR_INDEX;
        index += index < 0 ? p->axis : 0;
        const char *from;
        if (call->table) {
            const fx_status status = row_of_table(call, index, bytes, &c, &from);
            if (status != FX_OK)
                return status;
        } else
            from = (const char *)call->in[0] + (row / p->count * p->axis + index) * bytes;
        fx_move(p->elem_bytes, from, (char *)call->out + row * bytes, &(fx_lines){1, p->inner, 0, 1, 0, 1});
    }
    return FX_OK;
}

FX_DRIVER(gather, .traits = 0, .element_bytes = element_bytes);
