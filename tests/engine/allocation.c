/* A run allocates nothing, not even the first: calls of every function that takes memory are counted during it, on all
 * threads (the linker inserts the counters: --wrap).
 * usage: flexnn-allocation */
#include "allocations.h"
#include "chain.h"
#include "require.h"

#include <string.h>

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
    const fx_options options = {.threads = threads, .isa = fx_kernels_level(k), .trace = trace};
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
    CHECK(fx_engine_close(engine, NULL) == FX_OK);
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
