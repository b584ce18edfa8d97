/* Sums, means and extremes of numbers of 16 bits: some rows of a block of columns are widened at a time. */
#include "half.h"
#include "units.h"

#include <string.h>

#define ROOM 2048 /* floats that are widened at once */

static int is_known(int32_t kind) {
    return kind == FX_REDUCE_SUM || kind == FX_REDUCE_MEAN || kind == FX_REDUCE_MAX || kind == FX_REDUCE_MIN;
}

FX_HALF_DRIVER(reduce_f16, reduce, 1)

/* The input alone has 16 bits: results are few. */
static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_reduce_f16_params *p = &u->reduce_f16;
    return p->f16 == 1 && p->dtype == FX_DTYPE_F32 && is_known(p->kind) ? reduce_f16_check(kernel, u) : FX_ERR_PARAMS;
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    return fx_column_units(w, u->reduce_f16.n, threads);
}

/* Reduces n rows of `columns` numbers, x_row apart, to y. */
static void reduce_columns(const fx_call *call, const uint16_t *x, int64_t x_row, float *y, int32_t columns) {
    const fx_reduce_f16_params *p = &call->params->reduce_f16;
    const fx_kernels *k = call->kernels;
    const int is_sum = p->kind == FX_REDUCE_SUM || p->kind == FX_REDUCE_MEAN;
    float room[ROOM], part[2 * FX_COLUMNS];
    double sums[FX_COLUMNS] = {0};
    const int64_t step = ROOM / columns;
    for (int64_t q = 0; q < p->n; q += step) {
        const int64_t rows = fx_min64(step, p->n - q);
        k->widen_f16(&(fx_widening){x + q * x_row, room, rows, columns, x_row, columns});
        k->reduce_f32(&(fx_reduce){room, part, columns, is_sum ? FX_REDUCE_SUM : p->kind, (int32_t)rows, columns});
        for (int32_t j = 0; is_sum && j < columns; j++)
            sums[j] += part[j];
        if (is_sum)
            continue;
        memcpy(part + columns, q ? y : part, (size_t)columns * sizeof *y);
        k->reduce_f32(&(fx_reduce){part, y, columns, p->kind, 2, columns});
    }
    for (int32_t j = 0; is_sum && j < columns; j++)
        y[j] = (float)(p->kind == FX_REDUCE_MEAN ? sums[j] / p->n : sums[j]);
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_reduce_f16_params *p = &call->params->reduce_f16;
    const fx_window *w = &call->window;
    const int64_t each = fx_column_blocks(*w), items = (w->y1 - w->y0) * each;
    const int64_t pieces = units(call->kernels, call->kernel, call->params, *w, threads);
    for (int64_t i = fx_cut_at(items, pieces, u0); i < fx_cut_at(items, pieces, u1); i++) {
        const int64_t outer = w->y0 + i / each, column = w->c0 + i % each * FX_COLUMNS;
        reduce_columns(call, (const uint16_t *)call->in[0] + outer * p->n * p->inner + column, p->inner,
                       (float *)call->out + outer * p->inner + column, (int32_t)fx_min64(FX_COLUMNS, w->c1 - column));
    }
    return FX_OK;
}

const fx_op_impl fx_reduce_f16_impl = {.traits = FX_TRAIT_ROWS | FX_TRAIT_CHANNELS,
                                       FX_HALF_MEMBERS(reduce_f16),
                                       .check = check,
                                       .units = units,
                                       .run = run};
