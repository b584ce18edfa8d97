/* What pointwise computes of neighbours, by kind and type. */
#ifndef FLEXNN_OPS_POINTWISE_H
#define FLEXNN_OPS_POINTWISE_H

#include "flexnn/params.h"

/* y[i] = kind(a[i], b[i], c[i]) for i < n, of elements of dtype (c: bool); what the kind does not take is not read. y
 * may be a or b. */
void fx_pointwise(int32_t kind, int32_t dtype, const void *a, const void *b, const void *c, void *y, int64_t n);

#endif
