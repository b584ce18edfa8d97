/* Comparisons, bits, integers and choices, element by element, in wider arithmetic. */
#include "boxes.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int size_of(int32_t dtype) {
    return dtype == FX_DTYPE_I64 || dtype == FX_DTYPE_F64   ? 8
           : dtype == FX_DTYPE_F32 || dtype == FX_DTYPE_I32 ? 4
           : dtype == FX_DTYPE_F16                          ? 2
                                                            : 1;
}

static int compares(int32_t kind) {
    return kind == FX_POINTWISE_EQUAL || kind == FX_POINTWISE_LESS || kind == FX_POINTWISE_LESS_EQUAL;
}

static void draw(check_case *c) {
    fx_pointwise_params *p = &c->params.pointwise;
    p->kind = check_int(c, 0, FX_POINTWISE_COUNT - 1);
    const int integer = CHECK_PICK(c, FX_DTYPE_I64, FX_DTYPE_I32, FX_DTYPE_BOOL, FX_DTYPE_U8, FX_DTYPE_I8);
    p->dtype = p->kind == FX_POINTWISE_WHERE ? check_int(c, 0, FX_DTYPE_COUNT - 1)
               : compares(p->kind)           ? CHECK_PICK(c, integer, FX_DTYPE_F32, FX_DTYPE_F64)
                                             : integer;
    check_draw_box(c, BOX(c, pointwise, d), BOX(c, pointwise, ys));
    check_draw_strides(c, BOX(c, pointwise, d), BOX(c, pointwise, as));
    check_draw_strides(c, BOX(c, pointwise, d), BOX(c, pointwise, bs));
    check_draw_strides(c, BOX(c, pointwise, d), BOX(c, pointwise, cs));
}

/* Small numbers, so that equals occur, and now and then any bits; floats are numbers, infinite or not. */
static void fill(check_case *c) {
    const int32_t dtype = c->params.pointwise.dtype;
    for (int o = 0; o < 3; o++) {
        const int size = o == 2 ? 1 : size_of(dtype);
        char *x = (char *)c->in[o] + c->in_lo[o];
        for (int64_t at = 0; at < c->in_hi[o] - c->in_lo[o]; at += size) {
            const int64_t any = (int64_t)((uint64_t)(uint32_t)check_int(c, INT32_MIN, INT32_MAX) << 32) +
                                check_int(c, INT32_MIN, INT32_MAX);
            const int64_t v = o == 2 || dtype == FX_DTYPE_BOOL ? check_int(c, 0, 1)
                              : check_one_in(c, 8)             ? CHECK_PICK(c, INT32_MIN, -1, 0, INT32_MAX)
                              : check_one_in(c, 4)             ? any
                                                               : check_int(c, -3, 3);
            const float f = check_one_in(c, 9) ? (check_one_in(c, 2) ? NAN : INFINITY) : (float)check_int(c, -3, 3);
            const double d = f;
            memcpy(x + at,
                   o < 2 && dtype == FX_DTYPE_F32   ? (const void *)&f
                   : o < 2 && dtype == FX_DTYPE_F64 ? (const void *)&d
                                                    : (const void *)&v,
                   (size_t)size);
        }
    }
}

static int64_t integer_at(const void *x, int32_t dtype, int64_t at) {
    switch (dtype) {
    case FX_DTYPE_I64:
        return ((const int64_t *)x)[at];
    case FX_DTYPE_I32:
        return ((const int32_t *)x)[at];
    case FX_DTYPE_I8:
        return ((const int8_t *)x)[at];
    default:
        return ((const uint8_t *)x)[at];
    }
}

static int compare(const check_case *c, int64_t a, int64_t b) {
    const fx_pointwise_params *p = &c->params.pointwise;
    if (p->dtype == FX_DTYPE_F32 || p->dtype == FX_DTYPE_F64) {
        const int single = p->dtype == FX_DTYPE_F32;
        const double v = single ? ((const float *)c->in[0])[a] : ((const double *)c->in[0])[a];
        const double w = single ? ((const float *)c->in[1])[b] : ((const double *)c->in[1])[b];
        return p->kind == FX_POINTWISE_EQUAL ? v == w : p->kind == FX_POINTWISE_LESS ? v < w : v <= w;
    }
    const int64_t v = integer_at(c->in[0], p->dtype, a), w = integer_at(c->in[1], p->dtype, b);
    return p->kind == FX_POINTWISE_EQUAL ? v == w : p->kind == FX_POINTWISE_LESS ? v < w : v <= w;
}

/* The low bits are the result, whatever the type. */
static uint64_t compute(int32_t kind, int64_t a, int64_t b) {
    switch (kind) {
    case FX_POINTWISE_AND:
        return (uint64_t)(a & b);
    case FX_POINTWISE_OR:
        return (uint64_t)(a | b);
    case FX_POINTWISE_XOR:
        return (uint64_t)(a ^ b);
    case FX_POINTWISE_ADD:
        return (uint64_t)a + (uint64_t)b;
    case FX_POINTWISE_SUB:
        return (uint64_t)a - (uint64_t)b;
    case FX_POINTWISE_MUL:
        return (uint64_t)a * (uint64_t)b;
    case FX_POINTWISE_DIV:
        return b == 0 ? 0 : b == -1 ? 0 - (uint64_t)a : (uint64_t)(a / b);
    case FX_POINTWISE_MAX:
        return (uint64_t)(a > b ? a : b);
    default:
        return (uint64_t)(a < b ? a : b);
    }
}

static void expect(const check_case *c, check_expected *e) {
    const fx_pointwise_params *p = &c->params.pointwise;
    const int size = compares(p->kind) ? 1 : size_of(p->dtype);
    check_walk w = {0};
    do {
        const int64_t a = check_at(&w, BOX(c, pointwise, as)), b = check_at(&w, BOX(c, pointwise, bs));
        const int64_t at = check_at(&w, BOX(c, pointwise, ys)) * size - c->out_lo;
        if (p->kind == FX_POINTWISE_WHERE) {
            const int is_first = ((const uint8_t *)c->in[2])[check_at(&w, BOX(c, pointwise, cs))] != 0;
            memcpy(e->bytes + at, (const char *)c->in[is_first ? 0 : 1] + (is_first ? a : b) * size, (size_t)size);
        } else {
            const uint64_t v = compares(p->kind) ? (uint64_t)compare(c, a, b)
                                                 : compute(p->kind, integer_at(c->in[0], p->dtype, a),
                                                           integer_at(c->in[1], p->dtype, b));
            memcpy(e->bytes + at, &v, (size_t)size); /* little-endian, as everything here */
        }
        memset(e->written + at, 1, (size_t)size);
    } while (check_step(&w, BOX(c, pointwise, d)));
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const struct {
        const char *name;
        int32_t kind, dtype, rows, n;
    } shapes[] = {{"where", FX_POINTWISE_WHERE, FX_DTYPE_F32, 768, 64},
                  {"equal", FX_POINTWISE_EQUAL, FX_DTYPE_I64, 64, 64}};
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    fx_pointwise_params *p = &c->params.pointwise;
    *p = (fx_pointwise_params){.kind = shapes[i].kind, .dtype = shapes[i].dtype, .d0 = 1, .d1 = 1, .d2 = 1, .d3 = 1};
    p->d4 = shapes[i].rows, p->d5 = shapes[i].n;
    p->as4 = p->bs4 = p->cs4 = p->ys4 = p->d5, p->as5 = p->bs5 = p->cs5 = p->ys5 = 1;
    *flops = 0;
    *bytes = 3.0 * p->d4 * p->d5 * size_of(p->dtype);
    snprintf(name, 64, "%s, %dx%d", shapes[i].name, p->d4, p->d5);
    return 1;
}

const check_op check_pointwise = {.draw = draw, .fill = fill, .expect = expect, .is_exact = 1, .bench = bench};
