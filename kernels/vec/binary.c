/* binary_f32 for all instruction sets. */
#include "math.h"

#include <math.h>

FX_INLINE fx_v power(fx_v a, fx_v b) {
    for (int i = 0; i < FX_WIDTH; i++)
        a[i] = powf(a[i], b[i]);
    return a;
}

/* Not formatted by clang-format: it takes these products for pointers. */
/* clang-format off */
/* X(KIND, a op b). A NaN on either side of MAX and MIN stays. */
#define KINDS(X)                                                                                                       \
    X(ADD, a + b)                                                                                                      \
    X(SUB, a - b)                                                                                                      \
    X(MUL, a * b)                                                                                                      \
    X(DIV, a / b)                                                                                                      \
    X(MAX, fx_select(a != a, a, fx_max(a, b)))                                                                         \
    X(MIN, fx_select(a != a, a, fx_min(a, b)))                                                                         \
    X(POW, power(a, b))                                                                                                \
    X(PRELU, fx_if_negative(a, a * b, a))
/* clang-format on */

/* n neighbouring floats of y; an operand is n neighbours too, or one number (A, B: 1 or 0). */
#define ROW(KIND, f, A, B)                                                                                             \
    static void row_##KIND##_##A##B(const float *pa, const float *pb, float *y, int64_t n, float lo, float hi) {       \
        const fx_v low = fx_splat(lo), high = fx_splat(hi), one_a = fx_splat(*pa), one_b = fx_splat(*pb);              \
        (void)one_a, (void)one_b;                                                                                      \
        for (; n >= FX_WIDTH; n -= FX_WIDTH, y += FX_WIDTH, pa += A * FX_WIDTH, pb += B * FX_WIDTH) {                  \
            const fx_v a = A ? fx_load(pa) : one_a, b = B ? fx_load(pb) : one_b;                                       \
            fx_store(y, fx_min(high, fx_max(low, f)));                                                                 \
        }                                                                                                              \
        if (n) {                                                                                                       \
            const fx_v a = A ? fx_load_part(pa, (int)n) : one_a, b = B ? fx_load_part(pb, (int)n) : one_b;             \
            fx_store_part(y, fx_min(high, fx_max(low, f)), (int)n);                                                    \
        }                                                                                                              \
    }
#define ROWS(KIND, f) ROW(KIND, f, 0, 0) ROW(KIND, f, 0, 1) ROW(KIND, f, 1, 0) ROW(KIND, f, 1, 1)
KINDS(ROWS)

typedef void (*row_function)(const float *, const float *, float *, int64_t, float, float);

static row_function row_of(int32_t kind, int a_is_row, int b_is_row) {
#define ENTRY(KIND, f) [FX_BINARY_##KIND] = {{row_##KIND##_00, row_##KIND##_01}, {row_##KIND##_10, row_##KIND##_11}},
    static const row_function rows[FX_BINARY_COUNT][2][2] = {KINDS(ENTRY)};
    return rows[kind][a_is_row][b_is_row];
}

/* Floats that a row with steps is packed into at a time. */
#define PACK 256

/* Packs n floats that are neither neighbours nor one number; returns where they are now. */
static const float *pack(const float *from, int64_t step, int64_t n, float *packed) {
    if (step == 1 || step == 0)
        return from;
    for (int64_t i = 0; i < n; i++)
        packed[i] = from[i * step];
    return packed;
}

static void strided_row(const fx_binary *p, row_function row, const float *a, const float *b, float *y) {
    float packed_a[PACK], packed_b[PACK], result[PACK];
    for (int64_t i0 = 0; i0 < p->n; i0 += PACK) {
        const int64_t n = p->n - i0 < PACK ? p->n - i0 : PACK;
        row(pack(a + i0 * p->a_step, p->a_step, n, packed_a), pack(b + i0 * p->b_step, p->b_step, n, packed_b), result,
            n, p->lo, p->hi);
        for (int64_t i = 0; i < n; i++)
            y[(i0 + i) * p->y_step] = result[i];
    }
}

void FX_SYMBOL(binary_f32)(const fx_binary *p) {
    const row_function row = row_of(p->kind, p->a_step != 0, p->b_step != 0);
    const int is_plain = (p->a_step == 1 || p->a_step == 0) && (p->b_step == 1 || p->b_step == 0) && p->y_step == 1;
    for (int64_t r = 0; r < p->rows; r++) {
        const float *a = p->a + r * p->a_row, *b = p->b + r * p->b_row;
        float *y = p->y + r * p->y_row;
        if (p->kind == FX_BINARY_POW && p->b_step == 0 && *b == 2 && is_plain)
            row_of(FX_BINARY_MUL, p->a_step != 0, p->a_step != 0)(a, a, y, p->n, p->lo, p->hi);
        else if (is_plain)
            row(a, b, y, p->n, p->lo, p->hi);
        else
            strided_row(p, row, a, b, y);
    }
}
