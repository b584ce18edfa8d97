/* Elements of any type. */
#include "numbers.h"

#include <math.h>

static void set(int32_t dtype, void *x, int64_t at, int32_t v, int is_nan, int is_negative) {
    const float sign = is_negative ? -1.0f : 1.0f;
    switch (dtype) {
    case FX_DTYPE_F32:
        ((float *)x)[at] = is_nan ? NAN : sign * (float)v;
        break;
    case FX_DTYPE_F64:
        ((double *)x)[at] = is_nan ? (double)NAN : (double)sign * v;
        break;
    case FX_DTYPE_F16: /* bits: 0, its negative, or another number */
        ((uint16_t *)x)[at] = (uint16_t)((is_nan ? 0x7e00 : v ? 0x3c00 + v : 0) | (is_negative ? 0x8000 : 0));
        break;
    case FX_DTYPE_I64:
        ((int64_t *)x)[at] = is_negative ? -(int64_t)v * (INT64_C(1) << 40) : v;
        break;
    case FX_DTYPE_I32:
        ((int32_t *)x)[at] = is_negative ? -v : v;
        break;
    case FX_DTYPE_I8:
        ((int8_t *)x)[at] = (int8_t)(is_negative ? -v : v);
        break;
    case FX_DTYPE_U16:
        ((uint16_t *)x)[at] = (uint16_t)(is_negative ? UINT16_MAX - v : v);
        break;
    case FX_DTYPE_I16:
        ((int16_t *)x)[at] = (int16_t)(is_negative ? -v : v);
        break;
    case FX_DTYPE_U32:
        ((uint32_t *)x)[at] = is_negative ? UINT32_MAX - (uint32_t)v : (uint32_t)v;
        break;
    case FX_DTYPE_U64:
        ((uint64_t *)x)[at] = is_negative ? (uint64_t)v << 60 : (uint64_t)v;
        break;
    case FX_DTYPE_BOOL:
        ((uint8_t *)x)[at] = v != 0;
        break;
    default:
        ((uint8_t *)x)[at] = (uint8_t)v;
    }
}

void check_fill_numbers(check_case *c, int32_t dtype, void *x, int64_t n, int zeros) {
    for (int64_t i = 0; i < n; i++)
        set(dtype, x, i, check_one_in(c, zeros) ? 0 : check_int(c, 1, 9), check_one_in(c, 12), check_one_in(c, 2));
}

static double ordered(double v) {
    return v != v ? INFINITY : v;
}

double check_number(int32_t dtype, const void *x, int64_t at) {
    switch (dtype) {
    case FX_DTYPE_F32:
        return ordered(((const float *)x)[at]);
    case FX_DTYPE_F64:
        return ordered(((const double *)x)[at]);
    case FX_DTYPE_F16:
        return ((const uint16_t *)x)[at] & 0x7fff;
    case FX_DTYPE_I64:
        return (double)((const int64_t *)x)[at];
    case FX_DTYPE_I32:
        return ((const int32_t *)x)[at];
    case FX_DTYPE_I8:
        return ((const int8_t *)x)[at];
    case FX_DTYPE_U16:
        return ((const uint16_t *)x)[at];
    case FX_DTYPE_I16:
        return ((const int16_t *)x)[at];
    case FX_DTYPE_U32:
        return ((const uint32_t *)x)[at];
    case FX_DTYPE_U64:
        return (double)((const uint64_t *)x)[at];
    default:
        return ((const uint8_t *)x)[at];
    }
}
