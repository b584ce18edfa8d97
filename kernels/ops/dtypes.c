/* Elements as keys that sort like them. */
#include "dtypes.h"

#include <string.h>

/* The bits of a float, turned so that they sort as an unsigned number does. */
static uint64_t key_of_f32(float v) {
    const float sum = v + 0.0f; /* -0 becomes 0 */
    uint32_t bits;
    memcpy(&bits, &sum, sizeof bits);
    const uint32_t turned = bits ^ ((0u - (bits >> 31)) | UINT32_C(1) << 31);
    return v != v ? UINT64_MAX : turned;
}

static uint64_t key_of_f64(double v) {
    const double sum = v + 0.0;
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    return v != v ? UINT64_MAX : bits ^ ((UINT64_C(0) - (bits >> 63)) | UINT64_C(1) << 63);
}

static uint64_t key_of_u64(uint64_t v) {
    return v;
}

static uint64_t key_of_integer(int64_t v) {
    return (uint64_t)v ^ UINT64_C(1) << 63;
}

/* Loops without branches: compilers make vectors of the one over neighbours. */
#define KEYS(type, key)                                                                                                \
    do {                                                                                                               \
        const type *from = (const type *)x + at;                                                                       \
        if (step == 1)                                                                                                 \
            for (int64_t i = 0; i < n; i++)                                                                            \
                keys[i] = key(from[i]);                                                                                \
        else                                                                                                           \
            for (int64_t i = 0; i < n; i++)                                                                            \
                keys[i] = key(from[i * step]);                                                                         \
    } while (0)

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
    case FX_DTYPE_U16:
        KEYS(uint16_t, key_of_integer);
        break;
    case FX_DTYPE_I16:
        KEYS(int16_t, key_of_integer);
        break;
    case FX_DTYPE_U32:
        KEYS(uint32_t, key_of_integer);
        break;
    case FX_DTYPE_U64:
        KEYS(uint64_t, key_of_u64);
        break;
    default:
        KEYS(uint8_t, key_of_integer);
    }
}
