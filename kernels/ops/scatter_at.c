/* A tensor of which rows that indices name are replaced by updates, or combined with them: ScatterElements, ScatterND.
 *
 * Each unit makes a range of the output: it copies the range, then walks all indices in order and takes from each row
 * of updates what falls into it. So rows that are named twice are combined in the order of the indices, whatever the
 * number of threads. */
#include "dtypes.h"
#include "picks.h"
#include "units.h"

#include <string.h>

static fx_picks picks_of(const fx_params *u, const void *indices) {
    const fx_scatter_at_params *p = &u->scatter_at;
    return (fx_picks){FX_SIX(u, scatter_at, d),
                      FX_SIX(u, scatter_at, xs),
                      FX_SIX(u, scatter_at, n),
                      FX_SIX(u, scatter_at, ns),
                      p->index_bytes,
                      p->depth,
                      p->inner,
                      indices};
}

static fx_window full_window(const fx_params *u) {
    return (fx_window){0, u->scatter_at.total, 0, 1};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_scatter_at_params *p = &u->scatter_at;
    const fx_picks picks = picks_of(u, NULL);
    if (kernel != 0 || p->kind < 0 || p->kind >= FX_SCATTER_COUNT || !fx_dtype_bytes(p->dtype) || p->total < 1 ||
        !fx_picks_fit(&picks) || fx_picks_reach(&picks) > p->total)
        return FX_ERR_PARAMS;
    const int combines = p->dtype != FX_DTYPE_BOOL && p->dtype != FX_DTYPE_F16;
    return p->kind == FX_SCATTER_NONE || combines ? FX_OK : FX_ERR_PARAMS;
}

static int64_t element_bytes(const fx_params *u, int operand) {
    return operand == 1 ? u->scatter_at.index_bytes : fx_dtype_bytes(u->scatter_at.dtype);
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_picks p = picks_of(u, NULL);
    const int64_t rows = fx_picks_rows(&p);
    *lo = 0;
    *hi = element_bytes(u, operand) * (operand == 1   ? rows * p.depth
                                       : operand == 2 ? rows * p.inner
                                                      : (int64_t)u->scatter_at.total);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_contiguous_bytes(extent, u);
}

/* One for each thread at most, as each walks all indices. */
static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    if (w.y0 >= w.y1 || w.c0 >= w.c1)
        return 0;
    const fx_picks p = picks_of(u, NULL);
    const int64_t bytes = fx_dtype_bytes(u->scatter_at.dtype) * (u->scatter_at.total + fx_picks_rows(&p) * p.inner);
    return (uint32_t)fx_max64(1, fx_min64(threads, bytes / FX_UNIT_BYTES));
}

/* y[i] (op) x[i] for i < n. A NaN stays one. */
#define COMBINE(name, type, wide, worse)                                                                               \
    static void combine_##name(int32_t kind, type *y, const type *x, int64_t n) {                                      \
        for (int64_t i = 0; i < n; i++)                                                                                \
            switch (kind) {                                                                                            \
            case FX_SCATTER_ADD:                                                                                       \
                y[i] = (type)((wide)y[i] + (wide)x[i]);                                                                \
                break;                                                                                                 \
            case FX_SCATTER_MUL:                                                                                       \
                y[i] = (type)((wide)y[i] * (wide)x[i]);                                                                \
                break;                                                                                                 \
            case FX_SCATTER_MAX:                                                                                       \
                y[i] = y[i] < x[i] || worse(x[i]) ? x[i] : y[i];                                                       \
                break;                                                                                                 \
            default:                                                                                                   \
                y[i] = x[i] < y[i] || worse(x[i]) ? x[i] : y[i];                                                       \
            }                                                                                                          \
    }
#define IS_NAN(v) ((v) != (v))
#define NEVER(v) 0
COMBINE(f32, float, float, IS_NAN)
COMBINE(f64, double, double, IS_NAN)
COMBINE(i64, int64_t, uint64_t, NEVER)
COMBINE(i32, int32_t, uint32_t, NEVER)
COMBINE(u8, uint8_t, uint32_t, NEVER)
COMBINE(i8, int8_t, uint32_t, NEVER)

static void combine(const fx_scatter_at_params *p, void *y, const void *x, int64_t n) {
    if (p->kind == FX_SCATTER_NONE) {
        memcpy(y, x, (size_t)(n * fx_dtype_bytes(p->dtype)));
        return;
    }
    switch (p->dtype) {
    case FX_DTYPE_F32:
        combine_f32(p->kind, y, x, n);
        break;
    case FX_DTYPE_F64:
        combine_f64(p->kind, y, x, n);
        break;
    case FX_DTYPE_I64:
        combine_i64(p->kind, y, x, n);
        break;
    case FX_DTYPE_I32:
        combine_i32(p->kind, y, x, n);
        break;
    case FX_DTYPE_U8:
        combine_u8(p->kind, y, x, n);
        break;
    default:
        combine_i8(p->kind, y, x, n);
    }
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_scatter_at_params *p = &call->params->scatter_at;
    const fx_picks picks = picks_of(call->params, call->in[1]);
    const uint32_t count = units(call->kernels, 0, call->params, call->window, threads);
    const int64_t bytes = fx_dtype_bytes(p->dtype), rows = fx_picks_rows(&picks);
    const int64_t lo = fx_box_cut(p->total, count, u0), hi = fx_box_cut(p->total, count, u1);
    char *y = call->out;
    if (call->in[0] != call->out)
        memcpy(y + lo * bytes, (const char *)call->in[0] + lo * bytes, (size_t)((hi - lo) * bytes));
    fx_picks_run r;
    for (int64_t row = 0; row < rows; row += r.rows) {
        r = fx_picks_next(&picks, row, rows);
        for (int64_t i = 0; i < r.rows; i++) {
            const int64_t offset = fx_picks_offset(&picks, row + i);
            if (offset < 0)
                return FX_ERR_INDEX;
            const int64_t to = r.at + i * picks.xs[FX_DIMS - 1] + offset;
            const int64_t from = fx_max64(lo, to), end = fx_min64(hi, to + picks.inner);
            if (from < end)
                combine(p, y + from * bytes, (const char *)call->in[2] + ((row + i) * picks.inner + from - to) * bytes,
                        end - from);
        }
    }
    return FX_OK;
}

FX_DRIVER(scatter_at, .traits = 0, .element_bytes = element_bytes);
