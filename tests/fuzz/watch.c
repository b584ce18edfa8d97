/* Ends a libFuzzer target whose input takes too much CPU; libFuzzer itself only looks at the clock (the linker inserts
 * this: --wrap). A timer for each input would cost as much as the input: one ticks, and two ticks in one input end it,
 * so an input has 10 to 20 s. */
#include "watch.h"
#include "input.h"

#include <signal.h>
#include <stdlib.h>

int __real_LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int __wrap_LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile sig_atomic_t ticks = -1;

static void tick(int signal_number) {
    (void)signal_number;
    if (++ticks > 1)
        abort(); /* libFuzzer writes the input to a file */
    watch_cpu(CPU_SECONDS_MAX);
}

int __wrap_LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (ticks < 0) {
        signal(SIGPROF, tick);
        watch_cpu(CPU_SECONDS_MAX);
    }
    ticks = 0;
    return __real_LLVMFuzzerTestOneInput(data, size);
}
