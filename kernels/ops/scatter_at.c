/* A tensor of which rows that indices name are replaced by updates, or combined with them: ScatterElements, ScatterND.
 *
 * Each unit makes a range of the output: it copies the range, then walks all indices in order and takes from each row
 * of updates what falls into it. So rows that are named twice are combined in the order of the indices, whatever the
 * number of threads. */
#include "dtypes.h"
#include "move.h"
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
    if (kernel != 0 || p->kind < 0 || p->kind >= FX_SCATTER_COUNT || !fx_is_dtype(p->dtype) || p->total < 1 ||
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

/* The part of the output that a unit makes: elements [lo, hi). */
typedef struct range {
    int64_t lo, hi;
} range;

/* Combines n elements y with as many x, which lie elsewhere: one loop for each kind, so that each runs over vectors. */
#define COMBINE(value)                                                                                                 \
    for (int64_t i = 0; i < n; i++)                                                                                    \
        y[i] = (value);                                                                                                \
    break

/* Combines what a run of rows names and the range holds. 0 if an index is out of range. A NaN stays one. */
#define PLACE(name, type, wide, worse)                                                                                 \
    static void combine_##name(int32_t kind, int64_t n, type *restrict y, const type *restrict x) {                    \
        switch (kind) {                                                                                                \
        case FX_SCATTER_ADD:                                                                                           \
            COMBINE((type)((wide)y[i] + (wide)x[i]));                                                                  \
        case FX_SCATTER_MUL:                                                                                           \
            COMBINE((type)((wide)y[i] * (wide)x[i]));                                                                  \
        case FX_SCATTER_MAX:                                                                                           \
            COMBINE(y[i] < x[i] || worse(x[i]) ? x[i] : y[i]);                                                         \
        default:                                                                                                       \
            COMBINE(x[i] < y[i] || worse(x[i]) ? x[i] : y[i]);                                                         \
        }                                                                                                              \
    }                                                                                                                  \
    static int place_##name(const fx_picks *p, const fx_picks_run *r, int32_t kind, range own, type *y,                \
                            const type *updates) {                                                                     \
        for (int64_t row = r->first, at = r->at; row < r->first + r->rows; row++, at += p->xs[FX_DIMS - 1]) {          \
            const int64_t offset = fx_picks_offset(p, row), to = at + offset;                                          \
            if (offset < 0)                                                                                            \
                return 0;                                                                                              \
            const int64_t from = to < own.lo ? own.lo : to, end = to + p->inner < own.hi ? to + p->inner : own.hi;     \
            if (from < end)                                                                                            \
                combine_##name(kind, end - from, y + from, updates + row * p->inner + from - to);                      \
        }                                                                                                              \
        return 1;                                                                                                      \
    }
#define IS_NAN(v) ((v) != (v))
#define NEVER(v) 0
PLACE(f32, float, float, IS_NAN)
PLACE(f64, double, double, IS_NAN)
PLACE(i64, int64_t, uint64_t, NEVER)
PLACE(i32, int32_t, uint32_t, NEVER)
PLACE(u64, uint64_t, uint64_t, NEVER)
PLACE(u32, uint32_t, uint32_t, NEVER)
PLACE(u16, uint16_t, uint32_t, NEVER)
PLACE(i16, int16_t, uint32_t, NEVER)
PLACE(u8, uint8_t, uint32_t, NEVER)
PLACE(i8, int8_t, uint32_t, NEVER)

/* Rows that replace what is there. */
static int replace(const fx_picks *p, const fx_picks_run *r, int64_t bytes, range own, char *y, const char *updates) {
    for (int64_t i = 0; i < r->rows; i++) {
        const int64_t offset = fx_picks_offset(p, r->first + i), to = r->at + i * p->xs[FX_DIMS - 1] + offset;
        if (offset < 0)
            return 0;
        const int64_t from = fx_max64(own.lo, to), end = fx_min64(own.hi, to + p->inner);
        if (from < end)
            fx_move(bytes, updates + ((r->first + i) * p->inner + from - to) * bytes, y + from * bytes,
                    &(fx_lines){1, end - from, 0, 1, 0, 1});
    }
    return 1;
}

static int place(const fx_picks *p, const fx_picks_run *r, const fx_scatter_at_params *s, range own, void *y,
                 const void *updates) {
    if (s->kind == FX_SCATTER_NONE)
        return replace(p, r, fx_dtype_bytes(s->dtype), own, y, updates);
    switch (s->dtype) {
    case FX_DTYPE_F32:
        return place_f32(p, r, s->kind, own, y, updates);
    case FX_DTYPE_F64:
        return place_f64(p, r, s->kind, own, y, updates);
    case FX_DTYPE_I64:
        return place_i64(p, r, s->kind, own, y, updates);
    case FX_DTYPE_I32:
        return place_i32(p, r, s->kind, own, y, updates);
    case FX_DTYPE_U64:
        return place_u64(p, r, s->kind, own, y, updates);
    case FX_DTYPE_U32:
        return place_u32(p, r, s->kind, own, y, updates);
    case FX_DTYPE_U16:
        return place_u16(p, r, s->kind, own, y, updates);
    case FX_DTYPE_I16:
        return place_i16(p, r, s->kind, own, y, updates);
    case FX_DTYPE_U8:
        return place_u8(p, r, s->kind, own, y, updates);
    default:
        return place_i8(p, r, s->kind, own, y, updates);
    }
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_scatter_at_params *p = &call->params->scatter_at;
    const fx_picks picks = picks_of(call->params, call->in[1]);
    const uint32_t count = units(call->kernels, 0, call->params, call->window, threads);
    const int64_t bytes = fx_dtype_bytes(p->dtype), rows = fx_picks_rows(&picks);
    const range own = {fx_box_cut(p->total, count, u0), fx_box_cut(p->total, count, u1)};
    if (call->in[0] != call->out)
        memcpy((char *)call->out + own.lo * bytes, (const char *)call->in[0] + own.lo * bytes,
               (size_t)((own.hi - own.lo) * bytes));
    fx_picks_run r;
    for (int64_t row = 0; row < rows; row += r.rows) {
        r = fx_picks_next(&picks, row, rows);
        if (!place(&picks, &r, p, own, call->out, call->in[2]))
            return FX_ERR_INDEX;
    }
    return FX_OK;
}

FX_DRIVER(scatter_at, .traits = 0, .element_bytes = element_bytes);
