/* Numbers of any element type. */
#include "typed.h"

#include <math.h>
#include <string.h>

int64_t check_integer_at(const void *x, int32_t dtype, int64_t at) {
    const int64_t bytes = fx_dtype_bytes(dtype);
    uint64_t bits = 0;
    memcpy(&bits, (const char *)x + at * bytes, (size_t)bytes); /* little-endian, as everything here */
    const int unused = 64 - 8 * (int)bytes;
    return check_is_signed(dtype) ? (int64_t)(bits << unused) >> unused : (int64_t)bits;
}

double check_double_at(const void *x, int32_t dtype, int64_t at) {
    return dtype == FX_DTYPE_F32 ? (double)((const float *)x)[at] : ((const double *)x)[at];
}

static void set(check_expected *e, int64_t bytes, int64_t at, const void *value) {
    memcpy(e->bytes + at * bytes, value, (size_t)bytes);
    memset(e->written + at * bytes, 1, (size_t)bytes);
}

void check_set_integer(check_expected *e, int32_t dtype, int64_t at, uint64_t value) {
    set(e, fx_dtype_bytes(dtype), at, &value);
}

void check_set_double(check_expected *e, int32_t dtype, int64_t at, double value) {
    const float narrow = (float)value;
    set(e, fx_dtype_bytes(dtype), at, dtype == FX_DTYPE_F32 ? (const void *)&narrow : (const void *)&value);
}

static double any_double(check_case *c, int is_wild) {
    if (is_wild && check_one_in(c, 9))
        return check_one_in(c, 2) ? NAN : check_one_in(c, 2) ? INFINITY : -INFINITY;
    return check_int(c, -6, 6) * 0.5;
}

static int64_t any_integer(check_case *c, int32_t dtype) {
    const int bits = 8 * (int)fx_dtype_bytes(dtype);
    const int64_t any =
        (int64_t)((uint64_t)(uint32_t)check_int(c, INT32_MIN, INT32_MAX) << 32) + check_int(c, INT32_MIN, INT32_MAX);
    if (dtype == FX_DTYPE_BOOL)
        return check_int(c, 0, 1);
    if (check_one_in(c, 8)) /* the ends of types with and without sign */
        return (int64_t)((UINT64_C(1) << (bits - 1)) - (uint64_t)check_int(c, 0, 1));
    return check_one_in(c, 5) ? any >> check_int(c, 0, 60) : check_int(c, -3, 3);
}

void check_fill_typed(check_case *c, void *data, int64_t bytes, int32_t dtype, int is_wild) {
    const int64_t size = fx_dtype_bytes(dtype);
    for (int64_t at = 0; at < bytes; at += size) {
        const double d = any_double(c, is_wild);
        const float f = (float)d;
        const int64_t i = any_integer(c, dtype);
        const void *value = dtype == FX_DTYPE_F64 ? (const void *)&d : dtype == FX_DTYPE_F32 ? (const void *)&f : &i;
        memcpy((char *)data + at, value, (size_t)size);
    }
}
