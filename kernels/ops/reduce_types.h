/* Reduction of types other than f32. */
#ifndef FLEXNN_OPS_REDUCE_TYPES_H
#define FLEXNN_OPS_REDUCE_TYPES_H

#include "flexnn/params.h"

/* At most FX_COLUMNS (units.h) neighbouring columns, each of n numbers that are `step` elements apart. */
typedef struct fx_columns {
    const void *x;
    void *y; /* a number for each column */
    int64_t n, step;
    int32_t columns;
} fx_columns;

/* 1 if a reduction of this kind computes dtype: f64 all kinds; integers those without roots and logarithms; bool MAX
 * and MIN. */
int fx_reduces(int32_t kind, int32_t dtype);

/* Sums and products of integers wrap; their mean is that of the exact sum, towards zero. */
void fx_reduce_typed(int32_t kind, int32_t dtype, const fx_columns *c);

#endif
