/* What the tests of sweeps over random programs share: callocs that fail, and random numbers. */
#ifndef FLEXNN_TESTS_RANDOM_PROGRAMS_H
#define FLEXNN_TESTS_RANDOM_PROGRAMS_H

#include "require.h"

#include <stddef.h>
#include <stdint.h>

static uint32_t random_state = 7;
static int fails_at = -1; /* the calloc that fails, counted down */

void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);

void *__wrap_calloc(size_t count, size_t bytes) {
    return fails_at < 0 || fails_at-- ? __real_calloc(count, bytes) : NULL;
}

static int64_t below(int64_t n) {
    return (int64_t)(random_u32(&random_state) % (uint32_t)n);
}

#endif
