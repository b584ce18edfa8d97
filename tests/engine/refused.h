/* Programs that are refused. The file that includes this has fresh(), which makes a program, and CHECKED_PROGRAM and
 * CHECKED_THREADS: which one is checked, for how many threads. */
#ifndef FLEXNN_TESTS_REFUSED_H
#define FLEXNN_TESTS_REFUSED_H

#include "flexnn/engine.h"
#include "flexnn/kernels.h"
#include "require.h"

static inline fx_status status_of(const fx_program *p, int threads) {
    fx_error error;
    const fx_status status = fx_program_check(p, threads, fx_kernels_for(NULL), &error);
    CHECK(error.status == status);
    return status;
}

/* Does something to the program, which then is refused as said. */
#define REFUSED(what, answer)                                                                                          \
    do {                                                                                                               \
        fresh();                                                                                                       \
        what;                                                                                                          \
        CHECK(status_of(CHECKED_PROGRAM, CHECKED_THREADS) == (answer));                                                \
    } while (0)

#endif
