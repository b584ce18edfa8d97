/* Cases of convolutions that add up halves. */
#ifndef FLEXNN_CHECK_HALF_SUMS_H
#define FLEXNN_CHECK_HALF_SUMS_H

#include "check.h"

/* Whether the case's kernel does at its level. */
int check_adds_halves(const check_case *c);

/* As check_op.expect, before what is stored as halves is rounded. */
void check_half_sums(const check_case *c, check_expected *e);

#endif
