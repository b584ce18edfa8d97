/* Casts among all element types, bit for bit, with the edges of every type among the values. */
#include "check.h"

#include <math.h>
#include <string.h>

static int element_bytes(int32_t dtype) {
    switch (dtype) {
    case FX_DTYPE_I64:
    case FX_DTYPE_F64:
        return 8;
    case FX_DTYPE_F32:
    case FX_DTYPE_I32:
        return 4;
    case FX_DTYPE_F16:
        return 2;
    default:
        return 1;
    }
}

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
        const int bytes = element_bytes(p->from);
        memcpy((char *)c->in[0] + i * bytes, from, (size_t)bytes);
    }
}

/* ---- what must come out ---- */

static int is_float(int32_t dtype) {
    return dtype == FX_DTYPE_F16 || dtype == FX_DTYPE_F32 || dtype == FX_DTYPE_F64;
}

/* An integer of `bits` bits nearest to v, rounded toward zero. */
static int64_t saturated(double v, int bits, int is_signed) {
    const double end = ldexp(1, bits - is_signed), start = is_signed ? -end : 0;
    if (isnan(v))
        return 0;
    if (v >= end)
        return is_signed ? (int64_t)((UINT64_C(1) << (bits - 1)) - 1) : (int64_t)((UINT64_C(1) << bits) - 1);
    return v <= start ? (int64_t)start : (int64_t)v;
}

static void expect(const check_case *c, check_expected *e) {
    const fx_cast_params *p = &c->params.cast;
    const int from_bytes = element_bytes(p->from), to_bytes = element_bytes(p->to);
    for (int64_t i = 0; i < p->count; i++) {
        const char *x = (const char *)c->in[0] + i * from_bytes;
        int64_t n = 0, out = 0;
        double v = 0;
        float f;
        uint16_t h;
        memcpy(&n, x, (size_t)from_bytes); /* low bytes first */
        if (p->from == FX_DTYPE_F64)
            memcpy(&v, x, 8);
        else if (p->from == FX_DTYPE_F32)
            memcpy(&f, x, 4), v = f;
        else if (p->from == FX_DTYPE_F16)
            memcpy(&h, x, 2), v = half_value(h);
        if (p->from == FX_DTYPE_I32)
            n = (int32_t)n;
        else if (p->from == FX_DTYPE_I8)
            n = (int8_t)n;
        const int real = is_float(p->from);
        const double as_double = real ? v : (double)n;
        const float as_float = real ? (float)v : (float)n;
        switch (p->to) {
        case FX_DTYPE_F64:
            memcpy(&out, &as_double, 8);
            break;
        case FX_DTYPE_F32:
            memcpy(&out, &as_float, 4);
            break;
        case FX_DTYPE_F16:
            out = half_nearest(as_double);
            break;
        case FX_DTYPE_BOOL:
            out = real ? v != 0 : n != 0;
            break;
        case FX_DTYPE_I64:
            out = real ? saturated(v, 64, 1) : n;
            break;
        case FX_DTYPE_I32:
            out = real ? saturated(v, 32, 1) : n;
            break;
        case FX_DTYPE_I8:
            out = real ? saturated(v, 8, 1) : n;
            break;
        default:
            out = real ? saturated(v, 8, 0) : n;
        }
        memcpy(e->bytes + i * to_bytes, &out, (size_t)to_bytes);
        memset(e->written + i * to_bytes, 1, (size_t)to_bytes);
    }
}

const check_op check_cast = {.draw = draw, .fill = fill, .expect = expect, .is_exact = 1};
