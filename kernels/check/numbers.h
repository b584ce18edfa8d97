/* Elements of any type: drawn so that many are equal, and read back as keys that sort like them. */
#ifndef FLEXNN_CHECK_NUMBERS_H
#define FLEXNN_CHECK_NUMBERS_H

#include "check.h"

/* Fills n elements with small whole numbers, 0 in one of `zeros`; some floats are NaN, or -0. */
void check_fill_numbers(check_case *c, int32_t dtype, void *x, int64_t n, int zeros);

/* Element `at`; a NaN is infinite, so that it is the largest. */
double check_number(int32_t dtype, const void *x, int64_t at);

/* Sets element `at` of an int64 output. */
static inline void check_set_index(check_expected *e, int64_t at, int64_t value) {
    for (int b = 0; b < 8; b++) {
        e->bytes[8 * at + b] = (unsigned char)((uint64_t)value >> 8 * b);
        e->written[8 * at + b] = 1;
    }
}

#endif
