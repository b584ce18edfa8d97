/* A run allocates nothing, not even the first: calls of every function that takes memory are counted during it, on all
 * threads (the linker inserts the counters: --wrap).
 * usage: flexnn-allocation */
#include "chain.h"
#include "require.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

static atomic_int is_counting, allocations;

static void count(void) {
    if (atomic_load(&is_counting))
        atomic_fetch_add(&allocations, 1);
}

/* Declares each function, which counts the call and then calls the real one. */
#define WRAP(type, name, parameters, arguments)                                                                        \
    type __real_##name parameters;                                                                                     \
    type __wrap_##name parameters;                                                                                     \
    type __wrap_##name parameters {                                                                                    \
        count();                                                                                                       \
        return __real_##name arguments;                                                                                \
    }
WRAP(void *, malloc, (size_t bytes), (bytes))
WRAP(void *, calloc, (size_t number, size_t bytes), (number, bytes))
WRAP(void *, realloc, (void *memory, size_t bytes), (memory, bytes))
WRAP(void *, aligned_alloc, (size_t alignment, size_t bytes), (alignment, bytes))
WRAP(int, posix_memalign, (void **memory, size_t alignment, size_t bytes), (memory, alignment, bytes))
WRAP(void *, mmap, (void *at, size_t bytes, int access, int flags, int fd, off_t offset),
     (at, bytes, access, flags, fd, offset))
void __wrap_free(void *memory);
void __real_free(void *memory);
void __wrap_free(void *memory) {
    count();
    __real_free(memory);
}

static void runs_of(const fx_kernels *k, int threads, int group, int trace) {
    static chain c;
    static float x[SIDE * SIDE * CHANNELS], y[SIDE * SIDE * CHANNELS], expected[SIDE * SIDE * CHANNELS];
    uint32_t seed = 1;
    fx_bind_stats bind_stats;
    fx_run_stats run_stats;
    fx_error error;
    chain_make(&c, k, threads, group, 0, &seed);
    for (int i = 0; i < SIDE * SIDE * CHANNELS; i++)
        x[i] = (float)(random_u32(&seed) % 100) / 50 - 1;
    chain_reference(&c, k, x, expected);
    const fx_options options = {
        .fd = c.fd, .direct_fd = -1, .threads = threads, .isa = fx_kernels_level(k), .trace = trace};
    fx_engine *engine = fx_engine_open(&options, &error);
    CHECK(engine);
    fx_bound *bound = fx_bind(engine, &c.program, NULL, &bind_stats, &error);
    CHECK(bound);
    for (int i = 0; i < 5; i++) {
        atomic_store(&is_counting, 1);
        const fx_status status = fx_run(bound, (void *[]){x, y}, &bound, i % 2, NULL, &run_stats, &error);
        atomic_store(&is_counting, 0);
        CHECK(status == FX_OK && !memcmp(y, expected, sizeof y));
        CHECK(!atomic_load(&allocations));
    }
    CHECK(fx_engine_close(engine) == FX_OK);
    chain_free(&c);
}

int main(void) {
    const fx_kernels *k = fx_kernels_for(NULL);
    atomic_store(&is_counting, 1);
    void *volatile memory = malloc(1); /* volatile: not optimised away */
    free(memory);
    CHECK(atomic_exchange(&allocations, 0) == 2); /* they are counted */
    atomic_store(&is_counting, 0);
    for (int threads = 1; threads <= 4; threads++)
        for (int trace = 0; trace <= 2; trace++) {
            runs_of(k, threads, 1, trace);
            runs_of(k, threads, WINDOWS * PANELS, trace);
        }
    puts("allocation: none in a run");
    return 0;
}
