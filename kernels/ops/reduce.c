/* Reduction of the middle of [outer, n, inner]. */
#include "reduce_types.h"
#include "units.h"

#define AXIS_MAX (INT32_MAX - 1024) /* micro kernels count in steps of some vectors */

static fx_window full_window(const fx_params *u) {
    const fx_reduce_params *p = &u->reduce;
    return (fx_window){0, p->outer, 0, p->inner};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_reduce_params *p = &u->reduce;
    if (kernel != 0 || p->kind < 0 || p->kind >= FX_REDUCE_COUNT || p->dtype < 0 || p->dtype >= FX_DTYPE_COUNT ||
        (p->dtype != FX_DTYPE_F32 && !fx_reduces(p->kind, p->dtype)) || p->outer < 1 || p->n < 1 || p->n > AXIS_MAX ||
        p->inner < 1)
        return FX_ERR_PARAMS;
    return (int64_t)p->outer * p->n <= FX_ELEMENTS_MAX / p->inner ? FX_OK : FX_ERR_PARAMS;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_reduce_params *p = &u->reduce;
    *lo = 0;
    *hi = (int64_t)p->outer * (operand == 0 ? p->n : 1) * p->inner * fx_dtype_bytes(p->dtype);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_contiguous_bytes(extent, u);
}

static int64_t element_bytes(const fx_params *u, int operand) {
    (void)operand;
    return fx_dtype_bytes(u->reduce.dtype);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    return fx_column_units(w, u->reduce.n, threads);
}

#define SHORT 16 /* numbers of a row that takes less time as a column */

/* Rows [row, end) of few neighbouring numbers, turned so that vectors hold rows. */
static void reduce_short(const fx_call *call, int64_t row, int64_t end) {
    const fx_reduce_params *p = &call->params->reduce;
    float turned[SHORT * FX_COLUMNS];
    for (int64_t rows; row < end; row += rows) {
        rows = fx_min64(FX_COLUMNS, end - row);
        const float *x = (const float *)call->in[0] + row * p->n;
        for (int64_t i = 0; i < rows; i++)
            for (int32_t q = 0; q < p->n; q++)
                turned[q * FX_COLUMNS + i] = *x++;
        call->kernels->reduce_f32(
            &(fx_reduce){turned, (float *)call->out + row, FX_COLUMNS, p->kind, p->n, (int32_t)rows});
    }
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_reduce_params *p = &call->params->reduce;
    const fx_window *w = &call->window;
    const int64_t each = fx_column_blocks(*w), items = (w->y1 - w->y0) * each;
    const int64_t pieces = units(call->kernels, call->kernel, call->params, *w, threads);
    const int64_t bytes = fx_dtype_bytes(p->dtype);
    if (p->dtype == FX_DTYPE_F32 && p->inner == 1 && p->n <= SHORT) {
        reduce_short(call, w->y0 + fx_cut_at(items, pieces, u0), w->y0 + fx_cut_at(items, pieces, u1));
        return FX_OK;
    }
    for (int64_t i = fx_cut_at(items, pieces, u0); i < fx_cut_at(items, pieces, u1); i++) {
        const int64_t outer = w->y0 + i / each, column = w->c0 + i % each * FX_COLUMNS;
        const char *x = (const char *)call->in[0] + (outer * p->n * p->inner + column) * bytes;
        char *y = (char *)call->out + (outer * p->inner + column) * bytes;
        const int32_t columns = (int32_t)fx_min64(FX_COLUMNS, w->c1 - column);
        if (p->dtype == FX_DTYPE_F32)
            call->kernels->reduce_f32(&(fx_reduce){(const float *)x, (float *)y, p->inner, p->kind, p->n, columns});
        else
            fx_reduce_typed(p->kind, p->dtype, &(fx_columns){x, y, p->n, p->inner, columns});
    }
    return FX_OK;
}

FX_DRIVER(reduce, .traits = FX_TRAIT_ROWS | FX_TRAIT_CHANNELS, .element_bytes = element_bytes);
