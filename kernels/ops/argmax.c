/* Where the largest or smallest number of each column is: the middle of [outer, n, inner]. */
#include "units.h"

static fx_window full_window(const fx_params *u) {
    return (fx_window){0, u->argmax.outer, 0, u->argmax.inner};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_argmax_params *p = &u->argmax;
    if (kernel != 0 || p->dtype < 0 || p->dtype >= FX_DTYPE_COUNT || p->dtype == FX_DTYPE_F16 || p->outer < 1 ||
        p->n < 1 || p->inner < 1 || p->is_min < 0 || p->is_min > 1 || p->is_last < 0 || p->is_last > 1)
        return FX_ERR_PARAMS;
    return (int64_t)p->outer * p->n <= FX_ELEMENTS_MAX / p->inner ? FX_OK : FX_ERR_PARAMS;
}

static int64_t element_bytes(const fx_params *u, int operand) {
    return operand == FX_OUTPUT ? (int64_t)sizeof(int64_t) : fx_dtype_bytes(u->argmax.dtype);
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_argmax_params *p = &u->argmax;
    *lo = 0;
    *hi = (int64_t)p->outer * (operand == FX_OUTPUT ? 1 : p->n) * p->inner * element_bytes(u, operand);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_contiguous_bytes(extent, u);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    return fx_column_units(w, u->argmax.n, threads);
}

/* Whether v, which comes later, takes the place of best (without branches); a NaN is beaten by later NaNs only. */
#define BEATS(v, is_before, best)                                                                                      \
    (((v)is_before(best)) | (((v) != (v)) & (((best) == (best)) | is_last)) | (((v) == (best)) & is_last))

/* A single column of neighbours: hardly any takes the place of the best, so blocks are asked first whether any does. */
#define BLOCK 64
#define SEARCH_ROW(type, is_before)                                                                                    \
    type best = *x;                                                                                                    \
    for (int64_t q = 1; q < n; q += BLOCK) {                                                                           \
        const int64_t count = fx_min64(BLOCK, n - q);                                                                  \
        int any = 0;                                                                                                   \
        for (int64_t i = 0; i < count; i++)                                                                            \
            any |= BEATS(x[q + i], is_before, best);                                                                   \
        for (int64_t i = 0; any && i < count; i++)                                                                     \
            if (BEATS(x[q + i], is_before, best))                                                                      \
                best = x[q + i], *y = q + i;                                                                           \
    }

#define SEARCH_COLUMNS(type, is_before)                                                                                \
    type best[FX_COLUMNS];                                                                                             \
    int32_t at[FX_COLUMNS] = {0};                                                                                      \
    for (int64_t j = 0; j < columns; j++)                                                                              \
        best[j] = x[j];                                                                                                \
    for (int32_t q = 1; q < n; q++) {                                                                                  \
        x += p->inner;                                                                                                 \
        for (int64_t j = 0; j < columns; j++) {                                                                        \
            const type v = x[j], before = best[j];                                                                     \
            const int32_t wins = BEATS(v, is_before, before);                                                          \
            best[j] = wins ? v : before;                                                                               \
            at[j] = wins ? q : at[j];                                                                                  \
        }                                                                                                              \
    }                                                                                                                  \
    for (int64_t j = 0; j < columns; j++)                                                                              \
        y[j] = at[j];

#define FIND(type)                                                                                                     \
    static void find_##type(const fx_argmax_params *p, const void *from, int64_t *y, int64_t columns) {                \
        const type *x = from;                                                                                          \
        const int64_t n = p->n;                                                                                        \
        const int is_last = p->is_last;                                                                                \
        *y = 0;                                                                                                        \
        if (p->inner == 1 && p->is_min) {                                                                              \
            SEARCH_ROW(type, <)                                                                                        \
        } else if (p->inner == 1) {                                                                                    \
            SEARCH_ROW(type, >)                                                                                        \
        } else if (p->is_min) {                                                                                        \
            SEARCH_COLUMNS(type, <)                                                                                    \
        } else {                                                                                                       \
            SEARCH_COLUMNS(type, >)                                                                                    \
        }                                                                                                              \
    }
FIND(float)
FIND(double)
FIND(int64_t)
FIND(uint64_t)
FIND(int32_t)
FIND(uint32_t)
FIND(int16_t)
FIND(uint16_t)
FIND(int8_t)
FIND(uint8_t)

#define SHORT 64 /* numbers of a row that takes less time as a column */
#define ROWS 16  /* rows that are turned at once */

/* Rows [row, end) of few neighbouring numbers, turned so that vectors hold rows. */
static void find_short(const fx_call *call, int64_t row, int64_t end) {
    fx_argmax_params p = call->params->argmax;
    float turned[SHORT * ROWS];
    p.inner = ROWS;
    for (int64_t rows; row < end; row += rows) {
        rows = fx_min64(ROWS, end - row);
        const float *x = (const float *)call->in[0] + row * p.n;
        for (int64_t i = 0; i < rows; i++)
            for (int32_t q = 0; q < p.n; q++)
                turned[q * ROWS + i] = *x++;
        find_float(&p, turned, (int64_t *)call->out + row, rows);
    }
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    typedef void (*finder)(const fx_argmax_params *, const void *, int64_t *, int64_t);
    static const finder finders[FX_DTYPE_COUNT] = {
        [FX_DTYPE_F32] = find_float,    [FX_DTYPE_F64] = find_double,   [FX_DTYPE_I64] = find_int64_t,
        [FX_DTYPE_U64] = find_uint64_t, [FX_DTYPE_I32] = find_int32_t,  [FX_DTYPE_U32] = find_uint32_t,
        [FX_DTYPE_I16] = find_int16_t,  [FX_DTYPE_U16] = find_uint16_t, [FX_DTYPE_I8] = find_int8_t,
        [FX_DTYPE_U8] = find_uint8_t,   [FX_DTYPE_BOOL] = find_uint8_t};
    const fx_argmax_params *p = &call->params->argmax;
    const fx_window *w = &call->window;
    const int64_t each = fx_column_blocks(*w), items = (w->y1 - w->y0) * each, bytes = fx_dtype_bytes(p->dtype);
    const int64_t pieces = units(call->kernels, call->kernel, call->params, *w, threads);
    if (p->dtype == FX_DTYPE_F32 && p->inner == 1 && p->n <= SHORT) {
        find_short(call, w->y0 + fx_cut_at(items, pieces, u0), w->y0 + fx_cut_at(items, pieces, u1));
        return FX_OK;
    }
    for (int64_t i = fx_cut_at(items, pieces, u0); i < fx_cut_at(items, pieces, u1); i++) {
        const int64_t outer = w->y0 + i / each, column = w->c0 + i % each * FX_COLUMNS;
        finders[p->dtype](p, (const char *)call->in[0] + (outer * p->n * p->inner + column) * bytes,
                          (int64_t *)call->out + outer * p->inner + column, fx_min64(FX_COLUMNS, w->c1 - column));
    }
    return FX_OK;
}

FX_DRIVER(argmax, .traits = FX_TRAIT_ROWS | FX_TRAIT_CHANNELS, .element_bytes = element_bytes);
