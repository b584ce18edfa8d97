/* What the operators over state share: [2][groups][capacity][d] of halves or floats, keys first. */
#ifndef FLEXNN_OPS_STATE_H
#define FLEXNN_OPS_STATE_H

#include "impl.h"

static inline int fx_state_fits(int32_t dtype, int32_t groups, int32_t capacity, int32_t d) {
    return (dtype == FX_DTYPE_F16 || dtype == FX_DTYPE_F32) && groups >= 1 && capacity >= 1 && d >= 1 &&
           (int64_t)groups * capacity <= INT32_MAX / 2 / d;
}

static inline int64_t fx_state_bytes(int32_t dtype, int32_t groups, int32_t capacity, int32_t d) {
    return 2 * (int64_t)groups * capacity * d * fx_dtype_bytes(dtype);
}

/* Whether the length that a run was given has room for m more rows. */
static inline int fx_state_length(const void *given, int32_t m, int32_t capacity, int32_t *length) {
    const int64_t value = *(const int64_t *)given;
    *length = (int32_t)value;
    return value >= 0 && value <= capacity - m;
}

#endif
