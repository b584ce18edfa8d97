/* Casts among all element types, bit for bit, with the edges of every type among the values. */
#include "typed.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void draw(check_case *c) {
    fx_cast_params *p = &c->params.cast;
    p->from = check_int(c, 0, FX_DTYPE_COUNT - 1);
    p->to = check_int(c, 0, FX_DTYPE_COUNT - 1);
    p->count = check_one_in(c, 4) ? check_int(c, 3000, 20000) : check_int(c, 1, 70);
}

/* ---- half precision, by its definition: sign, 5 bits of exponent, 10 of fraction ---- */

static double half_value(uint16_t h) {
    const int exponent = h >> 10 & 31, fraction = h & 1023;
    double v = exponent == 31  ? fraction ? NAN : INFINITY
               : exponent == 0 ? ldexp(fraction, -24)
                               : ldexp(1024 + fraction, exponent - 25);
    return h & 0x8000 ? -v : v;
}

/* The half nearest to v; of two, the one whose last bit is 0. */
static uint16_t half_nearest(double v) {
    const uint16_t sign = signbit(v) ? 0x8000 : 0;
    v = fabs(v);
    if (isnan(v))
        return sign | 0x7e00;
    if (v >= 65520) /* half way between the largest half and 65536 */
        return sign | 0x7c00;
    uint16_t lo = 0, hi = 0x7c00; /* half_value(lo) <= v < half_value(hi) */
    while (hi - lo > 1) {
        const uint16_t middle = (uint16_t)((lo + hi) / 2);
        *(half_value(middle) <= v ? &lo : &hi) = middle;
    }
    const double next = hi == 0x7c00 ? 65536 : half_value(hi), below = v - half_value(lo), above = next - v;
    return sign | (below < above || (below == above && !(lo & 1)) ? lo : hi);
}

/* ---- values ---- */

/* A number about as often near an edge of some type as anywhere. */
static double any_value(check_case *c) {
    static const double edges[] = {
        0,           0.5,     1,       127,     128,        255,           256,
        65504,       65520,   65536,   2048.5,  2147483647, 2147483648.0,  9223372036854775808.0,
        1e30,        1e300,   0x1p-14, 0x1p-24, 0x1p-25,    1.5 * 0x1p-24, 0x1.002p0,
        0x1.00201p0, 16777217};
    if (check_one_in(c, 12))
        return check_one_in(c, 2) ? NAN : check_one_in(c, 2) ? INFINITY : -INFINITY;
    double v = check_one_in(c, 2) ? edges[check_int(c, 0, (int32_t)(sizeof edges / sizeof *edges) - 1)]
                                  : ldexp(check_real(c), check_int(c, -30, 70));
    if (check_one_in(c, 3))
        v = nextafter(v, check_one_in(c, 2) ? INFINITY : -INFINITY);
    if (check_one_in(c, 3))
        v += check_real(c);
    return check_one_in(c, 2) ? -v : v;
}

static int64_t any_integer(check_case *c) {
    const int64_t bits = (int64_t)((uint64_t)(uint32_t)check_int(c, INT32_MIN, INT32_MAX) << 32 |
                                   (uint32_t)check_int(c, INT32_MIN, INT32_MAX));
    return bits >> check_int(c, 0, 63);
}

static void fill(check_case *c) {
    const fx_cast_params *p = &c->params.cast;
    for (int64_t i = 0; i < p->count; i++) {
        const double v = any_value(c);
        const float f = (float)v;
        const int64_t n = any_integer(c);
        const uint16_t h = check_one_in(c, 2) ? half_nearest(v) : (uint16_t)n;
        const uint8_t truth = (uint8_t)check_int(c, 0, 1);
        const void *from = p->from == FX_DTYPE_F64    ? (const void *)&v
                           : p->from == FX_DTYPE_F32  ? (const void *)&f
                           : p->from == FX_DTYPE_F16  ? (const void *)&h
                           : p->from == FX_DTYPE_BOOL ? (const void *)&truth
                                                      : (const void *)&n; /* low bytes first */
        const int64_t bytes = fx_dtype_bytes(p->from);
        memcpy((char *)c->in[0] + i * bytes, from, (size_t)bytes);
    }
}

/* ---- what must come out ---- */

/* The bits of v as x86-64 makes them of a signed integer that long: the smallest stands for what is not there. */
static uint64_t whole(double v, int bits) {
    const double end = ldexp(1, bits - 1), cut = trunc(v);
    return cut >= -end && cut < end ? (uint64_t)(int64_t)cut : UINT64_C(1) << (bits - 1);
}

/* An integer of dtype from a number, its low bits. */
static uint64_t of_double(double v, int32_t dtype) {
    switch (dtype) {
    case FX_DTYPE_U64:
        return v >= 0x1p63 ? whole(v - 0x1p63, 64) + (UINT64_C(1) << 63) : whole(v, 64);
    case FX_DTYPE_I64:
        return whole(v, 64);
    case FX_DTYPE_U32:
        return v >= 0x1p31 ? whole(v - 0x1p31, 32) + (UINT64_C(1) << 31) : whole(v, 32);
    case FX_DTYPE_BOOL:
        return v != 0;
    default:
        return whole(v, 32);
    }
}

static double as_double(const void *x, int32_t dtype, int64_t i) {
    return dtype == FX_DTYPE_F16 ? half_value(((const uint16_t *)x)[i]) : check_double_at(x, dtype, i);
}

static void expect(const check_case *c, check_expected *e) {
    const fx_cast_params *p = &c->params.cast;
    for (int64_t i = 0; i < p->count; i++) {
        const int real = check_is_float(p->from), is_u64 = p->from == FX_DTYPE_U64;
        const double v = real ? as_double(c->in[0], p->from, i) : 0;
        const int64_t n = real ? 0 : check_integer_at(c->in[0], p->from, i);
        const float narrow = real ? (float)v : is_u64 ? (float)(uint64_t)n : (float)n;
        const double wide = real ? v : is_u64 ? (double)(uint64_t)n : (double)n;
        if (p->to == FX_DTYPE_F32)
            check_set_double(e, p->to, i, narrow);
        else if (p->to == FX_DTYPE_F64)
            check_set_double(e, p->to, i, wide);
        else if (p->to == FX_DTYPE_F16)
            check_set_integer(e, p->to, i, half_nearest(wide));
        else if (real)
            check_set_integer(e, p->to, i, of_double(v, p->to));
        else
            check_set_integer(e, p->to, i, p->to == FX_DTYPE_BOOL ? n != 0 : (uint64_t)n);
    }
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const int32_t pairs[][2] = {{FX_DTYPE_F32, FX_DTYPE_I64}, {FX_DTYPE_I64, FX_DTYPE_F32},
                                       {FX_DTYPE_I64, FX_DTYPE_I32}, {FX_DTYPE_BOOL, FX_DTYPE_F32},
                                       {FX_DTYPE_F32, FX_DTYPE_U8},  {FX_DTYPE_F32, FX_DTYPE_I32}};
    if (i >= (int)(sizeof pairs / sizeof *pairs))
        return 0;
    fx_cast_params *p = &c->params.cast;
    *p = (fx_cast_params){.from = pairs[i][0], .to = pairs[i][1], .count = 50000};
    *flops = 0;
    *bytes = (double)p->count * (double)(fx_dtype_bytes(p->from) + fx_dtype_bytes(p->to));
    snprintf(name, 64, "%s to %s, %d", fx_enum_name("dtype", p->from), fx_enum_name("dtype", p->to), p->count);
    return 1;
}

const check_op check_cast = {.draw = draw, .fill = fill, .expect = expect, .is_exact = 1, .bench = bench};
