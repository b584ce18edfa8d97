/* What the operators over state share: [2][groups][capacity] rows of d halves or floats, or in bytes (rows.h), keys
 * first. */
#ifndef FLEXNN_OPS_STATE_H
#define FLEXNN_OPS_STATE_H

#include "impl.h"

#include "flexnn/rows.h"

static inline int64_t fx_state_row(int32_t dtype, int32_t d) {
    return dtype == FX_DTYPE_I8 ? fx_state_row_bytes(d) : d * (int64_t)fx_dtype_bytes(dtype);
}

static inline int fx_state_fits(int32_t dtype, int32_t groups, int32_t capacity, int32_t d) {
    return (dtype == FX_DTYPE_F16 || dtype == FX_DTYPE_F32 || dtype == FX_DTYPE_I8) && groups >= 1 && capacity >= 1 &&
           d >= 1 && (int64_t)groups * capacity <= INT32_MAX / 2 / (dtype == FX_DTYPE_I8 ? fx_state_row(dtype, d) : d);
}

static inline int64_t fx_state_bytes(int32_t dtype, int32_t groups, int32_t capacity, int32_t d) {
    return 2 * (int64_t)groups * capacity * fx_state_row(dtype, d);
}

/* Whether the length that a run was given has room for m more rows. */
static inline int fx_state_length(const void *given, int32_t m, int32_t capacity, int32_t *length) {
    const int64_t value = *(const int64_t *)given;
    *length = (int32_t)value;
    return value >= 0 && value <= capacity - m;
}

#endif
