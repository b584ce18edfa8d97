/* Recordings of three programs that stream their weights through one arena: branches that alternate, a loop, values
 * that change places, rows that pile up. What comes is what the operators give one by one, a run takes no memory, and a
 * recording that finds none is refused.
 * usage: flexnn-recordings */
#include "allocations.h"
#include "chain.h"
#include "flexnn/recording.h"
#include "require.h"

#include <string.h>
#include <unistd.h>

enum { VALUES = SIDE * SIDE * CHANNELS, VALUE_BYTES = VALUES * 4, TURNS = 6, RUNS = 20 };

/* Slots. */
enum { GIVEN, WAYS, STACK, NOW, NEXT, WAY, ROW, SLOTS_COUNT };

/* Each turn runs program 1 or 2, as a byte of WAYS says, stacks the value, and goes on with it; program 0 runs last. */
static const fx_entry entries[] = {
    {.kind = FX_ENTRY_COPY, .a = NOW, .b = GIVEN, .n = VALUE_BYTES},
    {.kind = FX_ENTRY_BEGIN},
    {.kind = FX_ENTRY_TURN, .b = 12, .c = -1, .d = -1, .n = TURNS},
    {.kind = FX_ENTRY_ROW, .a = WAY, .b = WAYS, .n = 1},
    {.kind = FX_ENTRY_ROW, .a = ROW, .b = STACK, .n = VALUE_BYTES},
    {.kind = FX_ENTRY_BRANCH, .a = WAY, .b = 8},
    {.kind = FX_ENTRY_RUN, .a = 1},
    {.kind = FX_ENTRY_JUMP, .b = 9},
    {.kind = FX_ENTRY_RUN, .a = 2},
    {.kind = FX_ENTRY_COPY, .a = ROW, .b = NEXT, .n = VALUE_BYTES},
    {.kind = FX_ENTRY_SWAP, .a = NOW, .b = NEXT},
    {.kind = FX_ENTRY_NEXT, .b = 2},
    {.kind = FX_ENTRY_RUN, .a = 0},
    {.kind = FX_ENTRY_COPY, .a = GIVEN, .b = NEXT, .n = VALUE_BYTES},
};

static chain chains[PROGRAMS];
static fx_bound *programs[PROGRAMS];
static float stack[TURNS][VALUES], value[VALUES];
static uint8_t ways[TURNS];

static fx_tape tape_of(fx_slot *slots, const uint32_t *operands) {
    const int64_t at = SHARED_BYTES + PROGRAMS * (int64_t)PINNED_BYTES;
    const fx_slot all[SLOTS_COUNT] = {
        [GIVEN] = {.base = 2, .bytes = VALUE_BYTES},
        [WAYS] = {.base = 1, .bytes = TURNS},
        [STACK] = {.base = 3},
        [NOW] = {.offset = at, .bytes = VALUE_BYTES},
        [NEXT] = {.offset = at + VALUE_BYTES, .bytes = VALUE_BYTES},
        [WAY] = {.base = FX_BASE_ROW, .bytes = 1},
        [ROW] = {.base = FX_BASE_ROW, .bytes = VALUE_BYTES},
    };
    memcpy(slots, all, sizeof all);
    return (fx_tape){.programs = programs,
                     .program_count = PROGRAMS,
                     .entries = entries,
                     .entry_count = sizeof entries / sizeof *entries,
                     .slots = slots,
                     .slot_count = SLOTS_COUNT,
                     .operands = operands,
                     .operand_count = 2,
                     .buffer_count = 3,
                     .input_count = 1,
                     .counter_count = 1,
                     .looks_ahead = 1};
}

/* A run whose stack grows row by row; nothing else takes memory. */
static void run_once(fx_recording *r, uint32_t *seed, const fx_kernels *k) {
    static float wanted[TURNS + 1][VALUES], last[VALUES];
    fx_recording_stats stats;
    fx_error error;
    for (int i = 0; i < VALUES; i++)
        value[i] = (float)(random_u32(seed) % 100) / 50 - 1;
    const float *before = value;
    for (int i = 0; i < TURNS; i++) {
        ways[i] = random_u32(seed) % 2;
        chain_reference(&chains[ways[i] ? 1 : 2], k, before, wanted[i]);
        before = wanted[i];
    }
    chain_reference(&chains[0], k, before, last);
    int rows = (int)(random_u32(seed) % 3), goes_on = 0;
    for (;; goes_on = 1, rows++) {
        int64_t sizes[] = {TURNS, VALUE_BYTES, rows * (int64_t)VALUE_BYTES};
        atomic_store(&is_counting, 1);
        const fx_status status =
            fx_recording_run(r, (void *[]){ways, value, stack}, sizes, goes_on, NULL, &stats, &error);
        CHECK(!atomic_exchange(&allocations, 0));
        atomic_store(&is_counting, 0);
        CHECK(status == FX_OK);
        if (stats.stopped < 0)
            break;
        CHECK(rows < TURNS && stats.stopped == 4 && fx_recording_entry(r) == 4 && fx_recording_counter(r, 0) == rows);
    }
    CHECK(fx_recording_counter(r, 0) == TURNS);
    CHECK(!memcmp(stack, wanted, sizeof stack) && !memcmp(value, last, sizeof last));
}

static void refused(fx_engine *e, const fx_tape *good, const uint32_t *operands) {
    fx_slot slots[SLOTS_COUNT];
    fx_error error;
    memcpy(slots, good->slots, sizeof slots);
    fx_tape tape = *good;
    tape.slots = slots;
    atomic_store(&is_failing, 1);
    CHECK(!fx_recording_make(e, good, &error) && error.status == FX_ERR_MEMORY);
    atomic_store(&is_failing, 0);
    slots[NOW].offset = 0; /* where programs work */
    CHECK(!fx_recording_make(e, &tape, &error) && error.status == FX_ERR_OVERLAP);
    slots[NOW].offset = (int64_t)1 << 47;
    CHECK(!fx_recording_make(e, &tape, &error) && error.status == FX_ERR_MEMORY);
    slots[NOW].offset = good->slots[NOW].offset;
    tape.operand_count = 1;
    CHECK(!fx_recording_make(e, &tape, &error) && error.status == FX_ERR_PARAMS);
    tape.operand_count = 2;
    tape.input_count = 2; /* but GIVEN is written */
    CHECK(!fx_recording_make(e, &tape, &error) && error.status == FX_ERR_PARAMS && error.index == 13);
    tape.input_count = 1;
    tape.operands = operands;
    fx_recording *r = fx_recording_make(e, &tape, &error);
    CHECK(r && fx_recording_free(r) == FX_OK);
}

static void check(const fx_kernels *k, int threads, uint32_t jitter_seed) {
    static const uint32_t operands[] = {NOW, NEXT};
    uint32_t seed = 1 + jitter_seed;
    fx_slot slots[SLOTS_COUNT];
    fx_bind_stats bind_stats;
    fx_recording_stats stats;
    fx_error error;
    for (int i = 0; i < PROGRAMS; i++)
        chain_make(&chains[i], k, threads, 1, i, &seed);
    const fx_options options = {
        .threads = threads, .isa = fx_kernels_level(k), .poison = 1, .jitter_seed = jitter_seed};
    fx_engine *engine = fx_engine_open(&options, &error);
    CHECK(engine);
    for (int i = 0; i < PROGRAMS; i++) {
        programs[i] = fx_bind(engine, &chains[i].program, NULL, &bind_stats, &error);
        CHECK(programs[i]);
    }
    const fx_tape tape = tape_of(slots, operands);
    refused(engine, &tape, operands);
    fx_recording *r = fx_recording_make(engine, &tape, &error);
    CHECK(r && fx_recording_bytes(r) > 0);
    for (int i = 0; i < RUNS; i++)
        run_once(r, &seed, k);
    CHECK(fx_unbind(programs[1]) == FX_OK); /* breaks it */
    CHECK(fx_recording_run(r, NULL, NULL, 0, NULL, &stats, &error) == FX_ERR_PARAMS);
    CHECK(fx_engine_close(engine, NULL) == FX_OK); /* frees it */
    for (int i = 0; i < PROGRAMS; i++)
        chain_free(&chains[i]);
}

int main(void) {
    const fx_kernels *k = fx_kernels_for(NULL);
    for (int threads = 1; threads <= 3; threads++)
        for (uint32_t jitter_seed = 0; jitter_seed < 3; jitter_seed++)
            check(k, threads, jitter_seed);
    puts("recordings: good");
    return 0;
}
