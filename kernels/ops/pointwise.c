/* Element by element over any type: comparisons, bits, integer arithmetic, choices; operands broadcast by strides of 0.
 * Integers wrap around; a division by zero gives 0. */
#include "box.h"

enum { A, B, C, Y };

static const int8_t element_bytes[FX_DTYPE_COUNT] = {[FX_DTYPE_F32] = 4,  [FX_DTYPE_I64] = 8, [FX_DTYPE_I32] = 4,
                                                     [FX_DTYPE_BOOL] = 1, [FX_DTYPE_U8] = 1,  [FX_DTYPE_I8] = 1,
                                                     [FX_DTYPE_F16] = 2,  [FX_DTYPE_F64] = 8};

static int is_comparison(int32_t kind) {
    return kind >= FX_POINTWISE_EQUAL && kind <= FX_POINTWISE_LESS_EQUAL;
}

static int is_choice(int32_t kind) {
    return kind == FX_POINTWISE_WHERE;
}

static int is_integer(int32_t dtype) {
    return dtype != FX_DTYPE_F32 && dtype != FX_DTYPE_F16 && dtype != FX_DTYPE_F64;
}

/* Bytes of an element; 0: the operand is not there. */
static int64_t bytes_of(const fx_pointwise_params *p, int operand) {
    if (operand == C)
        return is_choice(p->kind) ? 1 : 0;
    return operand == Y && is_comparison(p->kind) ? 1 : element_bytes[p->dtype];
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
    if (kernel != 0 || p->kind < 0 || p->kind >= FX_POINTWISE_COUNT || p->dtype < 0 || p->dtype >= FX_DTYPE_COUNT)
        return FX_ERR_PARAMS;
    /* What is neither a choice nor a comparison computes integers; halves are compared by nobody. */
    if (!is_choice(p->kind) && !is_integer(p->dtype) && (!is_comparison(p->kind) || p->dtype == FX_DTYPE_F16))
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
    const int32_t *const s[] = {strides_of(u, A), strides_of(u, B), strides_of(u, C), strides_of(u, Y)};
    return fx_box_window(FX_SIX(u, pointwise, d), s, 4, w.y0, w.y1);
}

static uint32_t units_of(const fx_params *u, const fx_box *b, int threads) {
    return fx_box_units(fx_box_elements(b) * 3 * element_bytes[u->pointwise.dtype], threads);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    if (w.y0 >= w.y1 || w.c0 >= w.c1)
        return 0;
    const fx_box b = box_of(u, w);
    return units_of(u, &b, threads);
}

/* n neighbours of a run; steps in elements. */
typedef struct row {
    const char *a, *b, *c;
    char *y;
    int64_t n, as, bs, cs, ys;
} row;

#define WALK(expression, in, out)                                                                                      \
    for (int64_t i = 0; i < r->n; i++) {                                                                               \
        const in a = ((const in *)r->a)[i * r->as], b = ((const in *)r->b)[i * r->bs];                                 \
        ((out *)r->y)[i * r->ys] = (out)(expression);                                                                  \
    }                                                                                                                  \
    break

#define COMPARISONS(in)                                                                                                \
    case FX_POINTWISE_EQUAL:                                                                                           \
        WALK(a == b, in, uint8_t);                                                                                     \
    case FX_POINTWISE_LESS:                                                                                            \
        WALK(a < b, in, uint8_t);                                                                                      \
    case FX_POINTWISE_LESS_EQUAL:                                                                                      \
        WALK(a <= b, in, uint8_t)

/* Sums and products of the unsigned type of the same size: they wrap. Towards zero; the smallest by -1 wraps too. */
#define INTEGERS(in, wide)                                                                                             \
    COMPARISONS(in);                                                                                                   \
    case FX_POINTWISE_AND:                                                                                             \
        WALK(a &b, in, in);                                                                                            \
    case FX_POINTWISE_OR:                                                                                              \
        WALK(a | b, in, in);                                                                                           \
    case FX_POINTWISE_XOR:                                                                                             \
        WALK(a ^ b, in, in);                                                                                           \
    case FX_POINTWISE_ADD:                                                                                             \
        WALK((wide)a + (wide)b, in, in);                                                                               \
    case FX_POINTWISE_SUB:                                                                                             \
        WALK((wide)a - (wide)b, in, in);                                                                               \
    case FX_POINTWISE_MUL:                                                                                             \
        WALK((wide)a *(wide)b, in, in);                                                                                \
    case FX_POINTWISE_DIV:                                                                                             \
        WALK(b == 0 ? 0 : b == (in) - 1 ? (wide)0 - (wide)a : (wide)(a / b), in, in);                                  \
    case FX_POINTWISE_MAX:                                                                                             \
        WALK(a > b ? a : b, in, in);                                                                                   \
    case FX_POINTWISE_MIN:                                                                                             \
        WALK(a < b ? a : b, in, in);                                                                                   \
    default:                                                                                                           \
        break

#define LOOP(name, body)                                                                                               \
    static void name(int32_t kind, const row *r) {                                                                     \
        switch (kind) { body; }                                                                                        \
    }
LOOP(run_f32, COMPARISONS(float))
LOOP(run_f64, COMPARISONS(double))
LOOP(run_i64, INTEGERS(int64_t, uint64_t))
LOOP(run_i32, INTEGERS(int32_t, uint32_t))
LOOP(run_i8, INTEGERS(int8_t, uint32_t))

/* Division by 255 is no negation. */
static void run_u8(int32_t kind, const row *r) {
    if (kind == FX_POINTWISE_DIV) {
        for (int64_t i = 0; i < r->n; i++) {
            const uint8_t a = ((const uint8_t *)r->a)[i * r->as], b = ((const uint8_t *)r->b)[i * r->bs];
            ((uint8_t *)r->y)[i * r->ys] = b ? a / b : 0;
        }
        return;
    }
    switch (kind) { INTEGERS(uint8_t, uint32_t); }
}

#define CHOOSE(type)                                                                                                   \
    for (int64_t i = 0; i < r->n; i++)                                                                                 \
    ((type *)r->y)[i * r->ys] = r->c[i * r->cs] ? ((const type *)r->a)[i * r->as] : ((const type *)r->b)[i * r->bs]

static void choose(int64_t bytes, const row *r) {
    if (bytes == 8)
        CHOOSE(uint64_t);
    else if (bytes == 4)
        CHOOSE(uint32_t);
    else if (bytes == 2)
        CHOOSE(uint16_t);
    else
        CHOOSE(uint8_t);
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    typedef void (*loop)(int32_t, const row *);
    static const loop loops[FX_DTYPE_COUNT] = {
        [FX_DTYPE_F32] = run_f32, [FX_DTYPE_I64] = run_i64, [FX_DTYPE_I32] = run_i32, [FX_DTYPE_BOOL] = run_u8,
        [FX_DTYPE_U8] = run_u8,   [FX_DTYPE_I8] = run_i8,   [FX_DTYPE_F64] = run_f64};
    const fx_pointwise_params *p = &call->params->pointwise;
    const fx_box b = box_of(call->params, call->window);
    const uint32_t count = units_of(call->params, &b, threads);
    const int64_t total = fx_box_elements(&b), end = fx_box_cut(total, count, u1);
    const int last = FX_DIMS - 1, above = FX_DIMS - 2;
    row r = {.as = b.s[A][last], .bs = b.s[B][last], .cs = b.s[C][last], .ys = b.s[Y][last]};
    int64_t done = 0;
    for (int64_t e = fx_box_cut(total, count, u0); e < end; e += done) {
        const fx_box_run found = fx_box_next(&b, e, end, end - e);
        done = found.rows * found.n;
        r.n = found.n;
        for (int64_t i = 0; i < found.rows; i++) {
            const char *const from[] = {call->in[A], call->in[B], is_choice(p->kind) ? call->in[C] : call->in[A]};
            r.a = from[A] + (found.at[A] + i * b.s[A][above]) * bytes_of(p, A);
            r.b = from[B] + (found.at[B] + i * b.s[B][above]) * bytes_of(p, B);
            r.c = from[C] + (is_choice(p->kind) ? found.at[C] + i * b.s[C][above] : 0);
            r.y = (char *)call->out + (found.at[Y] + i * b.s[Y][above]) * bytes_of(p, Y);
            if (is_choice(p->kind))
                choose(element_bytes[p->dtype], &r);
            else
                loops[p->dtype](p->kind, &r);
        }
    }
    return FX_OK;
}

FX_DRIVER(pointwise, .traits = FX_TRAIT_ROWS);
