/* Rows picked by indices of their own: GatherElements, where each index is of one element's axis, and GatherND. */
#include "box.h"
#include "move.h"
#include "picks.h"

static fx_picks picks_of(const fx_params *u, const void *indices) {
    const fx_gather_at_params *p = &u->gather_at;
    return (fx_picks){FX_SIX(u, gather_at, d),
                      FX_SIX(u, gather_at, xs),
                      FX_SIX(u, gather_at, n),
                      FX_SIX(u, gather_at, ns),
                      p->index_bytes,
                      p->depth,
                      p->inner,
                      indices};
}

static fx_window full_window(const fx_params *u) {
    return (fx_window){0, u->gather_at.d0, 0, u->gather_at.inner};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_picks picks = picks_of(u, NULL);
    return kernel == 0 && fx_is_element(u->gather_at.elem_bytes) && fx_picks_fit(&picks) ? FX_OK : FX_ERR_PARAMS;
}

static int64_t element_bytes(const fx_params *u, int operand) {
    return operand == 1 ? u->gather_at.index_bytes : u->gather_at.elem_bytes;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_picks p = picks_of(u, NULL);
    const int64_t rows = fx_picks_rows(&p);
    *lo = 0;
    *hi = element_bytes(u, operand) * (operand == 0   ? fx_picks_reach(&p)
                                       : operand == 1 ? rows * p.depth
                                                      : rows * p.inner);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_contiguous_bytes(extent, u);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    if (w.y0 >= w.y1 || w.c0 >= w.c1)
        return 0;
    const fx_picks p = picks_of(u, NULL);
    const int64_t rows = fx_picks_rows(&p);
    const uint32_t units = fx_box_units(rows * (2 * (int64_t)p.inner * u->gather_at.elem_bytes + 8), threads);
    return rows < units ? (uint32_t)rows : units;
}

/* Single elements, one for each index of type `number`. 0 if an index is out of range. */
#define ELEMENTS(type, number)                                                                                         \
    static int elements_##type##_##number(const fx_picks *p, const fx_picks_run *r, const type *x, type *y) {          \
        const int64_t step = p->xs[FX_DIMS - 1], n = p->n[0], stride = p->ns[0];                                       \
        const number *indices = (const number *)p->indices + r->first;                                                 \
        for (int64_t i = 0; i < r->rows; i++) {                                                                        \
            const int64_t index = indices[i], place = index < 0 ? index + n : index;                                   \
            if (place < 0 || place >= n)                                                                               \
                return 0;                                                                                              \
            y[r->first + i] = x[r->at + i * step + place * stride];                                                    \
        }                                                                                                              \
        return 1;                                                                                                      \
    }
/* The same by tuples of indices. */
#define TUPLES(type)                                                                                                   \
    static int tuples_##type(const fx_picks *p, const fx_picks_run *r, const type *x, type *y) {                       \
        for (int64_t i = 0; i < r->rows; i++) {                                                                        \
            const int64_t offset = fx_picks_offset(p, r->first + i);                                                   \
            if (offset < 0)                                                                                            \
                return 0;                                                                                              \
            y[r->first + i] = x[r->at + i * p->xs[FX_DIMS - 1] + offset];                                              \
        }                                                                                                              \
        return 1;                                                                                                      \
    }
#define ALL(type) ELEMENTS(type, int32_t) ELEMENTS(type, int64_t) TUPLES(type)
ALL(uint8_t)
ALL(uint16_t)
ALL(uint32_t)
ALL(uint64_t)

#define PICK(type)                                                                                                     \
    (p->depth > 1          ? tuples_##type(p, r, x, y)                                                                 \
     : p->index_bytes == 4 ? elements_##type##_int32_t(p, r, x, y)                                                     \
                           : elements_##type##_int64_t(p, r, x, y))

static int rows_of(const fx_picks *p, const fx_picks_run *r, int64_t bytes, const char *x, char *y) {
    for (int64_t i = 0; i < r->rows; i++) {
        const int64_t offset = fx_picks_offset(p, r->first + i);
        if (offset < 0)
            return 0;
        const int64_t at = r->at + i * p->xs[FX_DIMS - 1] + offset;
        fx_move(bytes, x + at * bytes, y + (r->first + i) * p->inner * bytes, &(fx_lines){1, p->inner, 0, 1, 0, 1});
    }
    return 1;
}

static int run_of(const fx_picks *p, const fx_picks_run *r, int64_t bytes, const void *x, void *y) {
    if (p->inner > 1)
        return rows_of(p, r, bytes, x, y);
    switch (bytes) {
    case 1:
        return PICK(uint8_t);
    case 2:
        return PICK(uint16_t);
    case 4:
        return PICK(uint32_t);
    default:
        return PICK(uint64_t);
    }
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_picks p = picks_of(call->params, call->in[1]);
    const uint32_t count = units(call->kernels, 0, call->params, call->window, threads);
    const int64_t rows = fx_picks_rows(&p), end = fx_box_cut(rows, count, u1);
    fx_picks_run r;
    for (int64_t row = fx_box_cut(rows, count, u0); row < end; row += r.rows) {
        r = fx_picks_next(&p, row, end);
        if (!run_of(&p, &r, call->params->gather_at.elem_bytes, call->in[0], call->out))
            return FX_ERR_INDEX;
    }
    return FX_OK;
}

FX_DRIVER(gather_at, .traits = 0, .element_bytes = element_bytes);
