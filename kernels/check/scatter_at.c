/* Updates placed by indices, in their order; some cases hold an index out of range and must fail. */
#include "numbers.h"
#include "picks.h"

#include <string.h>

#define PICKS(c) CHECK_PICKS((check_case *)(c), scatter_at)

static void draw(check_case *c) {
    fx_scatter_at_params *p = &c->params.scatter_at;
    check_draw_picks(c, PICKS(c));
    p->kind = check_int(c, 0, FX_SCATTER_COUNT - 1);
    p->dtype = check_int(c, 0, FX_DTYPE_COUNT - 1);
    if (p->dtype == FX_DTYPE_BOOL || p->dtype == FX_DTYPE_F16)
        p->kind = FX_SCATTER_NONE;
    p->total = p->inner + check_int(c, 0, 9);
    for (int i = 0; i < FX_DIMS; i++)
        p->total += (PICKS(c).d[i] - 1) * PICKS(c).xs[i] + (PICKS(c).n[i] - 1) * PICKS(c).ns[i];
}

static int is_unsigned(int32_t dtype) {
    return dtype == FX_DTYPE_U64 || dtype == FX_DTYPE_U32 || dtype == FX_DTYPE_U16 || dtype == FX_DTYPE_U8 ||
           dtype == FX_DTYPE_BOOL;
}

/* Small whole numbers, so that sums and products are exact in doubles. */
static void fill_numbers(check_case *c, void *data, int64_t n) {
    const int32_t dtype = c->params.scatter_at.dtype, most = c->params.scatter_at.kind == FX_SCATTER_MUL ? 1 : 3;
    for (int64_t i = 0; i < n; i++) {
        const int32_t v = check_int(c, is_unsigned(dtype) ? 0 : -most, most);
        switch (dtype) {
        case FX_DTYPE_F32:
            ((float *)data)[i] = (float)v;
            break;
        case FX_DTYPE_F64:
            ((double *)data)[i] = v;
            break;
        default: /* the low bytes of an integer come first */
            memcpy((char *)data + i * fx_dtype_bytes(dtype), &(int64_t){v}, (size_t)fx_dtype_bytes(dtype));
        }
    }
}

static void fill(check_case *c) {
    const fx_scatter_at_params *p = &c->params.scatter_at;
    fill_numbers(c, c->in[0], p->total);
    fill_numbers(c, c->in[2], check_picks_rows(PICKS(c)) * p->inner);
    check_fill_picks(c, PICKS(c));
}

static fx_status status(const check_case *c) {
    return check_picks_status(c, PICKS(c));
}

static double combined(int32_t kind, double a, double b) {
    switch (kind) {
    case FX_SCATTER_ADD:
        return a + b;
    case FX_SCATTER_MUL:
        return a * b;
    case FX_SCATTER_MAX:
        return a > b ? a : b;
    case FX_SCATTER_MIN:
        return a < b ? a : b;
    default:
        return b;
    }
}

#define WRAPPED(type, v) (type)(uint64_t)(int64_t)(v)
#define COMBINE(type, write)                                                                                           \
    do {                                                                                                               \
        type a, b;                                                                                                     \
        memcpy(&a, y, sizeof a);                                                                                       \
        memcpy(&b, x, sizeof b);                                                                                       \
        a = write(type, combined(kind, (double)a, (double)b));                                                         \
        memcpy(y, &a, sizeof a);                                                                                       \
    } while (0)
#define PLAIN(type, v) (type)(v)

static void combine(int32_t dtype, int32_t kind, unsigned char *y, const unsigned char *x) {
    if (dtype == FX_DTYPE_F32)
        COMBINE(float, PLAIN);
    else if (dtype == FX_DTYPE_F64)
        COMBINE(double, PLAIN);
    else if (dtype == FX_DTYPE_I64)
        COMBINE(int64_t, WRAPPED);
    else if (dtype == FX_DTYPE_I32)
        COMBINE(int32_t, WRAPPED);
    else if (dtype == FX_DTYPE_F16)
        memcpy(y, x, 2);
    else if (dtype == FX_DTYPE_I8)
        COMBINE(int8_t, WRAPPED);
    else if (dtype == FX_DTYPE_I16)
        COMBINE(int16_t, WRAPPED);
    else if (dtype == FX_DTYPE_U16)
        COMBINE(uint16_t, WRAPPED);
    else if (dtype == FX_DTYPE_U32)
        COMBINE(uint32_t, WRAPPED);
    else if (dtype == FX_DTYPE_U64)
        COMBINE(uint64_t, WRAPPED);
    else
        COMBINE(uint8_t, WRAPPED);
}

static void expect(const check_case *c, check_expected *e) {
    const fx_scatter_at_params *p = &c->params.scatter_at;
    const int64_t bytes = fx_dtype_bytes(p->dtype);
    memcpy(e->bytes, c->in[0], (size_t)(p->total * bytes));
    memset(e->written, 1, (size_t)(p->total * bytes));
    for (int64_t row = 0; row < check_picks_rows(PICKS(c)); row++)
        for (int64_t i = 0; i < p->inner; i++)
            combine(p->dtype, p->kind, e->bytes + (check_picks_at(c, PICKS(c), row) + i) * bytes,
                    (const unsigned char *)c->in[2] + (row * p->inner + i) * bytes);
}

const check_op check_scatter_at = {.draw = draw, .fill = fill, .expect = expect, .is_exact = 1, .status = status};
