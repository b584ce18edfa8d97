/* Element types, and elements as keys that sort like them. */
#ifndef FLEXNN_OPS_DTYPES_H
#define FLEXNN_OPS_DTYPES_H

#include "flexnn/ops.h"

/* 1 if a number is an fx_dtype. */
static inline int fx_is_dtype(int32_t dtype) {
    return dtype >= 0 && dtype < FX_DTYPE_COUNT;
}

static inline int fx_dtype_is_float(int32_t dtype) {
    return dtype == FX_DTYPE_F32 || dtype == FX_DTYPE_F16 || dtype == FX_DTYPE_F64;
}

/* 1 if elements of the type have keys: all but F16. */
static inline int fx_dtype_has_keys(int32_t dtype) {
    return fx_is_dtype(dtype) && dtype != FX_DTYPE_F16;
}

/* Keys of n elements from element `at` on, `step` apart. The larger of two elements has the larger key, and equal ones
 * have equal keys. -0 equals 0. NaNs equal each other and are larger than every number. */
void fx_dtype_keys(int32_t dtype, const void *x, int64_t at, int64_t step, int64_t n, uint64_t *keys);

#endif
