/* What the checks of resize and resample share. */
#ifndef FLEXNN_CHECK_RESIZE_H
#define FLEXNN_CHECK_RESIZE_H

#include "check.h"

/* Input coordinate of output i, by the formulas of the operator's documentation. Scales that are out / in are used as
 * that fraction, so that the neighbours of a tie do not depend on how a float rounds. */
double check_resize_source(int coord, int i, int in, int out, float given);

/* A scale as a model gives it (the output is its floor), or sizes. */
void check_resize_scale(check_case *c, int32_t in, int32_t *out, float *scale);

/* Some rows of the output of resize, or of resize_u8, and those of the input that they may need. */
void check_resize_part(check_case *c);

#endif
