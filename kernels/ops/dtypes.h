/* Sizes of element types, and elements as keys that sort like them. */
#ifndef FLEXNN_OPS_DTYPES_H
#define FLEXNN_OPS_DTYPES_H

#include "flexnn/params.h"

/* Bytes of one element; 0 for a number that is no fx_dtype. */
static inline int64_t fx_dtype_bytes(int32_t dtype) {
    switch (dtype) {
    case FX_DTYPE_F32:
    case FX_DTYPE_I32:
        return 4;
    case FX_DTYPE_I64:
    case FX_DTYPE_F64:
        return 8;
    case FX_DTYPE_F16:
        return 2;
    case FX_DTYPE_BOOL:
    case FX_DTYPE_U8:
    case FX_DTYPE_I8:
        return 1;
    default:
        return 0;
    }
}

static inline int fx_dtype_is_float(int32_t dtype) {
    return dtype == FX_DTYPE_F32 || dtype == FX_DTYPE_F16 || dtype == FX_DTYPE_F64;
}

/* 1 if elements of the type have keys: all but F16. */
static inline int fx_dtype_has_keys(int32_t dtype) {
    return fx_dtype_bytes(dtype) && dtype != FX_DTYPE_F16;
}

/* Keys of n elements from element `at` on, `step` apart. The larger of two elements has the larger key, and equal ones
 * have equal keys. -0 equals 0. NaNs equal each other and are larger than every number. */
void fx_dtype_keys(int32_t dtype, const void *x, int64_t at, int64_t step, int64_t n, uint64_t *keys);

#endif
