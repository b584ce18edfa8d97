/* Elements as keys that sort like them. */
#include "dtypes.h"

#include <string.h>

/* The bits of a float, turned so that they sort as an unsigned number does. */
static uint64_t key_of_f32(float v) {
    uint32_t bits;
    if (v != v)
        return UINT64_MAX;
    v = v == 0 ? 0 : v;
    memcpy(&bits, &v, sizeof bits);
    return bits >> 31 ? ~bits : bits | UINT32_C(1) << 31;
}

static uint64_t key_of_f64(double v) {
    uint64_t bits;
    if (v != v)
        return UINT64_MAX;
    v = v == 0 ? 0 : v;
    memcpy(&bits, &v, sizeof bits);
    return bits >> 63 ? ~bits : bits | UINT64_C(1) << 63;
}

static uint64_t key_of_integer(int64_t v) {
    return (uint64_t)v ^ UINT64_C(1) << 63;
}

#define KEYS(type, key)                                                                                                \
    for (int64_t i = 0; i < n; i++)                                                                                    \
    keys[i] = key(((const type *)x)[at + i * step])

void fx_dtype_keys(int32_t dtype, const void *x, int64_t at, int64_t step, int64_t n, uint64_t *keys) {
    switch (dtype) {
    case FX_DTYPE_F32:
        KEYS(float, key_of_f32);
        break;
    case FX_DTYPE_F64:
        KEYS(double, key_of_f64);
        break;
    case FX_DTYPE_I64:
        KEYS(int64_t, key_of_integer);
        break;
    case FX_DTYPE_I32:
        KEYS(int32_t, key_of_integer);
        break;
    case FX_DTYPE_I8:
        KEYS(int8_t, key_of_integer);
        break;
    default:
        KEYS(uint8_t, key_of_integer);
    }
}
