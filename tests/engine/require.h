/* Helpers of the test programs. */
#ifndef FLEXNN_TESTS_REQUIRE_H
#define FLEXNN_TESTS_REQUIRE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);                                  \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* The same numbers on every machine; *state is the seed. */
static inline uint32_t random_u32(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

#endif
