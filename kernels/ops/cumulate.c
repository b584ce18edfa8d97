/* Running sums and products along the middle of [outer, n, inner]. */
#include "units.h"

static fx_window full_window(const fx_params *u) {
    return (fx_window){0, u->cumulate.outer, 0, u->cumulate.inner};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_cumulate_params *p = &u->cumulate;
    if (kernel != 0 || p->dtype < 0 || p->dtype >= FX_DTYPE_COUNT || p->dtype == FX_DTYPE_F16 ||
        p->dtype == FX_DTYPE_BOOL || p->outer < 1 || p->n < 1 || p->inner < 1 || p->is_product < 0 ||
        p->is_product > 1 || p->is_exclusive < 0 || p->is_exclusive > 1 || p->is_reverse < 0 || p->is_reverse > 1)
        return FX_ERR_PARAMS;
    return (int64_t)p->outer * p->n <= FX_ELEMENTS_MAX / p->inner ? FX_OK : FX_ERR_PARAMS;
}

static int64_t element_bytes(const fx_params *u, int operand) {
    (void)operand;
    return fx_dtype_bytes(u->cumulate.dtype);
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_cumulate_params *p = &u->cumulate;
    *lo = 0;
    *hi = (int64_t)p->outer * p->n * p->inner * element_bytes(u, operand);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_contiguous_bytes(extent, u);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    return fx_column_units(w, u->cumulate.n, threads);
}

/* Columns from element `first` on; a step is a row of them, back where is_reverse. Integers, of unsigned types: the
 * same bits. */
#define RUN(type, wide)                                                                                                \
    static void run_##type(const fx_cumulate_params *p, const void *from, void *to, int64_t first, int64_t columns) {  \
        const int64_t step = p->is_reverse ? -(int64_t)p->inner : p->inner;                                            \
        wide sums[FX_COLUMNS];                                                                                         \
        int64_t at = first + (p->is_reverse ? (int64_t)(p->n - 1) * p->inner : 0);                                     \
        for (int64_t j = 0; j < columns; j++)                                                                          \
            sums[j] = (wide)p->is_product;                                                                             \
        for (int64_t q = 0; q < p->n; q++, at += step) {                                                               \
            const type *x = (const type *)from + at;                                                                   \
            type *y = (type *)to + at;                                                                                 \
            for (int64_t j = 0; j < columns; j++) {                                                                    \
                const wide before = sums[j];                                                                           \
                sums[j] = p->is_product ? before * x[j] : before + x[j];                                               \
                y[j] = (type)(p->is_exclusive ? before : sums[j]);                                                     \
            }                                                                                                          \
        }                                                                                                              \
    }
RUN(float, float)
RUN(double, double)
RUN(uint8_t, uint32_t)
RUN(uint16_t, uint32_t)
RUN(uint32_t, uint32_t)
RUN(uint64_t, uint64_t)

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    typedef void (*runner)(const fx_cumulate_params *, const void *, void *, int64_t, int64_t);
    static const runner runners[FX_DTYPE_COUNT] = {[FX_DTYPE_F32] = run_float,    [FX_DTYPE_F64] = run_double,
                                                   [FX_DTYPE_I64] = run_uint64_t, [FX_DTYPE_U64] = run_uint64_t,
                                                   [FX_DTYPE_I32] = run_uint32_t, [FX_DTYPE_U32] = run_uint32_t,
                                                   [FX_DTYPE_I16] = run_uint16_t, [FX_DTYPE_U16] = run_uint16_t,
                                                   [FX_DTYPE_I8] = run_uint8_t,   [FX_DTYPE_U8] = run_uint8_t};
    const fx_cumulate_params *p = &call->params->cumulate;
    const fx_window *w = &call->window;
    const int64_t each = fx_column_blocks(*w), items = (w->y1 - w->y0) * each;
    const int64_t pieces = units(call->kernels, call->kernel, call->params, *w, threads);
    for (int64_t i = fx_cut_at(items, pieces, u0); i < fx_cut_at(items, pieces, u1); i++) {
        const int64_t outer = w->y0 + i / each, column = w->c0 + i % each * FX_COLUMNS;
        runners[p->dtype](p, call->in[0], call->out, outer * p->n * p->inner + column,
                          fx_min64(FX_COLUMNS, w->c1 - column));
    }
    return FX_OK;
}

FX_DRIVER(cumulate, .traits = FX_TRAIT_ROWS, .element_bytes = element_bytes);
