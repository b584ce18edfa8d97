/* Numbers of any element type, for references: read and written one at a time, in the widest type of their kind. */
#ifndef FLEXNN_CHECK_TYPED_H
#define FLEXNN_CHECK_TYPED_H

#include "check.h"

static inline int check_is_float(int32_t dtype) {
    return dtype == FX_DTYPE_F16 || dtype == FX_DTYPE_F32 || dtype == FX_DTYPE_F64;
}

static inline int check_is_signed(int32_t dtype) {
    return dtype == FX_DTYPE_I8 || dtype == FX_DTYPE_I16 || dtype == FX_DTYPE_I32 || dtype == FX_DTYPE_I64;
}

/* Element `at` of integers (of u64 the same bits), and of f32 or f64. */
int64_t check_integer_at(const void *x, int32_t dtype, int64_t at);
double check_double_at(const void *x, int32_t dtype, int64_t at);

/* Sets element `at` (from out_lo on) of the expected bytes of an output: to the low bits of an integer, to a number. */
void check_set_integer(check_expected *e, int32_t dtype, int64_t at, uint64_t value);
void check_set_double(check_expected *e, int32_t dtype, int64_t at, double value);

/* Fills with small numbers, so that equals occur, and now and then with the ends of the type or any of its numbers;
 * floats with multiples of 1/2, and with NaN and infinities where is_wild. */
void check_fill_typed(check_case *c, void *data, int64_t bytes, int32_t dtype, int is_wild);

#endif
