/* Element by element over any type: comparisons, bits, arithmetic, functions, choices; operands broadcast by strides of
 * 0. Loops (pointwise_loops.c) take neighbours only: what lies apart is brought together, some elements at a time. */
#include "pointwise.h"
#include "box.h"
#include "move.h"

#define HELD 256 /* elements that are brought together */

enum { A, B, C, Y, OPERANDS };

static int is_truth(int32_t kind) {
    return kind >= FX_POINTWISE_EQUAL && kind <= FX_POINTWISE_IS_INF_BELOW;
}

static int is_bits(int32_t kind) {
    return kind >= FX_POINTWISE_AND && kind <= FX_POINTWISE_NOT;
}

static int is_float(int32_t dtype) {
    return dtype == FX_DTYPE_F32 || dtype == FX_DTYPE_F64;
}

static int takes(int32_t kind, int32_t dtype) {
    if (kind == FX_POINTWISE_WHERE)
        return 1;
    if (dtype == FX_DTYPE_F16)
        return 0;
    if (kind >= FX_POINTWISE_FLOOR || (kind >= FX_POINTWISE_IS_NAN && kind <= FX_POINTWISE_IS_INF_BELOW))
        return is_float(dtype);
    return !is_bits(kind) || !is_float(dtype);
}

static int inputs_of(int32_t kind) {
    if (kind == FX_POINTWISE_WHERE)
        return 3;
    return kind >= FX_POINTWISE_NEG || kind == FX_POINTWISE_NOT ||
                   (kind >= FX_POINTWISE_IS_NAN && kind <= FX_POINTWISE_IS_INF_BELOW)
               ? 1
               : 2;
}

/* Bytes of an element; 0: the operand is not there. */
static int64_t bytes_of(const fx_pointwise_params *p, int operand) {
    if (operand != Y && operand >= inputs_of(p->kind))
        return 0;
    return operand == C || (operand == Y && is_truth(p->kind)) ? 1 : fx_dtype_bytes(p->dtype);
}

static int64_t element_bytes(const fx_params *u, int operand) {
    const int64_t bytes = bytes_of(&u->pointwise, operand == FX_OUTPUT ? Y : operand);
    return bytes ? bytes : 1;
}

static const int32_t *strides_of(const fx_params *u, int operand) {
    return operand == A   ? FX_SIX(u, pointwise, as)
           : operand == B ? FX_SIX(u, pointwise, bs)
           : operand == C ? FX_SIX(u, pointwise, cs)
                          : FX_SIX(u, pointwise, ys);
}

static fx_window full_window(const fx_params *u) {
    return (fx_window){0, u->pointwise.d0, 0, u->pointwise.d5};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_pointwise_params *p = &u->pointwise;
    if (kernel != 0 || p->kind < 0 || p->kind >= FX_POINTWISE_COUNT || p->dtype < 0 || p->dtype >= FX_DTYPE_COUNT ||
        !takes(p->kind, p->dtype))
        return FX_ERR_PARAMS;
    for (int o = A; o <= Y; o++)
        if (!fx_box_fits(FX_SIX(u, pointwise, d), strides_of(u, o)))
            return FX_ERR_PARAMS;
    return fx_box_is_injective(FX_SIX(u, pointwise, d), FX_SIX(u, pointwise, ys)) ? FX_OK : FX_ERR_PARAMS;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const int o = operand == FX_OUTPUT ? Y : operand;
    fx_box_extent(FX_DIMS, FX_SIX(u, pointwise, d), strides_of(u, o), bytes_of(&u->pointwise, o), lo, hi);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_six_bytes(FX_SIX(u, pointwise, d), bytes_of(&u->pointwise, Y));
}

static fx_box box_of(const fx_params *u, fx_window w) {
    const int32_t *s[OPERANDS];
    for (int o = A; o < OPERANDS; o++) /* an operand that is not there keeps no dimensions apart */
        s[o] = strides_of(u, bytes_of(&u->pointwise, o) ? o : A);
    return fx_box_window(FX_SIX(u, pointwise, d), s, OPERANDS, w.y0, w.y1);
}

static uint32_t units_of(const fx_params *u, const fx_box *b, int threads) {
    return fx_box_units(fx_box_elements(b) * 3 * fx_dtype_bytes(u->pointwise.dtype), threads);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    if (w.y0 >= w.y1 || w.c0 >= w.c1)
        return 0;
    const fx_box b = box_of(u, w);
    return units_of(u, &b, threads);
}

/* One operand of a walk: its strides, and elements of it that were brought together. */
typedef struct lane {
    char *base;
    int64_t bytes, row, step;
    const char *from; /* of what `held` holds; NULL: nothing */
    int64_t columns, count;
    _Alignas(64) char held[HELD * 8];
} lane;

static int is_dense(const lane *l, int64_t rows, int64_t columns) {
    return l->step == 1 && (rows == 1 || l->row == columns);
}

/* rows x columns elements from element `at` on as neighbours; for the output, a place for them. */
static char *together(lane *l, int64_t at, int64_t rows, int64_t columns, int is_output) {
    if (!l->bytes)
        return NULL;
    char *from = l->base + at * l->bytes;
    if (is_dense(l, rows, columns))
        return from;
    if (is_output)
        return l->held;
    /* Rows that are repeated, or one number, may be there already. */
    const int same = l->from == from && rows * columns <= l->count && (l->row == 0 || rows == 1) &&
                     (l->columns == columns || l->step == 0);
    if (!same) {
        fx_move(l->bytes, from, l->held, &(fx_lines){rows, columns, l->row, l->step, columns, 1});
        l->from = from, l->columns = columns, l->count = rows * columns;
    }
    return l->held;
}

static void block(const fx_pointwise_params *p, lane *lanes, const int64_t *at, int64_t rows, int64_t columns) {
    char *x[OPERANDS];
    for (int o = A; o < OPERANDS; o++)
        x[o] = together(&lanes[o], at[o], rows, columns, o == Y);
    fx_pointwise(p->kind, p->dtype, x[A], x[B], x[C], x[Y], rows * columns);
    const lane *y = &lanes[Y];
    if (!is_dense(y, rows, columns))
        fx_move(y->bytes, x[Y], y->base + at[Y] * y->bytes, &(fx_lines){rows, columns, columns, 1, y->row, y->step});
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_pointwise_params *p = &call->params->pointwise;
    const fx_box b = box_of(call->params, call->window);
    const uint32_t count = units_of(call->params, &b, threads);
    const int64_t total = fx_box_elements(&b), end = fx_box_cut(total, count, u1);
    lane lanes[OPERANDS];
    for (int o = A; o < OPERANDS; o++) {
        lanes[o].base = o == Y ? call->out : (char *)(uintptr_t)call->in[o];
        lanes[o].bytes = bytes_of(p, o);
        lanes[o].row = b.s[o][FX_DIMS - 2], lanes[o].step = b.s[o][FX_DIMS - 1];
        lanes[o].from = NULL;
    }
    fx_box_run r;
    for (int64_t e = fx_box_cut(total, count, u0); e < end; e += r.rows * r.n) {
        r = fx_box_next(&b, e, end, end - e);
        int are_dense = 1;
        for (int o = A; o < OPERANDS; o++)
            are_dense = are_dense && (!lanes[o].bytes || is_dense(&lanes[o], r.rows, r.n));
        const int64_t columns = are_dense || r.n < HELD ? r.n : HELD;
        const int64_t rows = are_dense ? r.rows : columns < HELD ? HELD / columns : 1;
        for (int64_t i = 0; i < r.rows; i += rows)
            for (int64_t j = 0; j < r.n; j += columns) {
                int64_t at[OPERANDS];
                for (int o = A; o < OPERANDS; o++)
                    at[o] = r.at[o] + i * lanes[o].row + j * lanes[o].step;
                block(p, lanes, at, rows < r.rows - i ? rows : r.rows - i, columns < r.n - j ? columns : r.n - j);
            }
    }
    return FX_OK;
}

FX_DRIVER(pointwise, .traits = FX_TRAIT_ROWS, .element_bytes = element_bytes);
