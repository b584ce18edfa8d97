/* The arena keeps its contents when it grows, memory that it returned reads as zeros, and during a run it refuses to
 * change, also from inside a run of the engine.
 * usage: flexnn-arena */
#include "arena.h"
#include "chain.h"
#include "require.h"
#include "state.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int is_all(const char *bytes, int64_t count, char value) {
    for (int64_t i = 0; i < count; i++)
        if (bytes[i] != value)
            return 0;
    return 1;
}

static void sizes(void) {
    const int64_t page = sysconf(_SC_PAGESIZE);
    CHECK(fx_arena_size(0) == page && fx_arena_size(1) == page && fx_arena_size(page) == page);
    CHECK(fx_arena_size(page + 1) == 2 * page);
}

/* Several times, as an arena that has moved before consists of several mappings. */
static void grows(void) {
    static const int64_t bytes[] = {0, 100, 5000, 100000, 3 << 20, 9 << 20, 33 << 20};
    fx_arena a = {0};
    int64_t before = 0;
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        CHECK(fx_arena_grow(&a, bytes[i]) == FX_OK && a.bytes == bytes[i] && a.memory);
        CHECK((uintptr_t)a.memory % (size_t)(bytes[i] < 2 << 20 ? sysconf(_SC_PAGESIZE) : 2 << 20) == 0);
        CHECK(is_all(a.memory, before, 'x') && is_all(a.memory + before, bytes[i] - before, 0));
        memset(a.memory, 'x', (size_t)bytes[i]);
        before = bytes[i];
    }
    const char *memory = a.memory;
    CHECK(fx_arena_grow(&a, 1000) == FX_OK && a.memory == memory && a.bytes == before); /* it is big enough */
    CHECK(fx_arena_grow(&a, INT64_MAX / 2) == FX_ERR_MEMORY && a.memory == memory && a.bytes == before);
    CHECK(!fx_arena_is_lost(&a) && is_all(a.memory, before, 'x'));
    fx_arena_free(&a);
    CHECK(!a.memory && !a.bytes && !fx_arena_is_lost(&a));
}

/* With room it stays where it is, and what it has not touched takes no memory; it moves where the room ends. */
static void has_room(void) {
    static const int64_t bytes[] = {100, 5000, 3 << 20, 4 << 20};
    const int64_t page = sysconf(_SC_PAGESIZE);
    fx_arena a = {.is_roomy = 1};
    int64_t before = 0;
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++) {
        const char *memory = a.memory;
        CHECK(fx_arena_grow(&a, bytes[i]) == FX_OK && a.bytes == bytes[i] && (!memory || a.memory == memory));
        CHECK(a.room >= 2 * page && a.room > fx_arena_size(bytes[i]));
        CHECK(is_all(a.memory, before, 'x') && is_all(a.memory + before, bytes[i] - before, 0));
        memset(a.memory, 'x', (size_t)bytes[i]);
        before = bytes[i];
    }
    unsigned char in_memory;
    CHECK(mincore(a.memory, 1, &in_memory) == 0 && in_memory & 1);
    /* qemu does not tell of pages that may not be touched. */
    CHECK(mincore(a.memory + fx_arena_size(before), 1, &in_memory) != 0 || !(in_memory & 1));
    const char *memory = a.memory;
    const int64_t room = a.room;
    CHECK(fx_arena_grow(&a, room + 1) == FX_OK && a.memory != memory && a.room > room + 1);
    CHECK(is_all(a.memory, before, 'x') && is_all(a.memory + before, room + 1 - before, 0));
    CHECK(fx_arena_cut(&a, before) == FX_OK && a.room == before && is_all(a.memory, before, 'x'));
    CHECK(fx_arena_grow(&a, before + 1) == FX_OK && is_all(a.memory, before, 'x') && !a.memory[before]);
    fx_arena_free(&a);
    CHECK(!a.memory && !a.bytes && !a.room);
}

static void shrinks(void) {
    const int64_t page = sysconf(_SC_PAGESIZE);
    fx_arena a = {0};
    CHECK(fx_arena_cut(&a, 0) == FX_OK);
    CHECK(fx_arena_grow(&a, 10 * page) == FX_OK);
    memset(a.memory, 'x', (size_t)(10 * page));
    CHECK(fx_arena_cut(&a, 11 * page) == FX_OK && a.bytes == 10 * page);
    CHECK(fx_arena_cut(&a, 10 * page - 1) == FX_OK && a.bytes == 10 * page - 1); /* no whole page */
    CHECK(fx_arena_grow(&a, 10 * page) == FX_OK && is_all(a.memory, 10 * page - 1, 'x'));
    CHECK(fx_arena_cut(&a, 3 * page + 1) == FX_OK && a.bytes == 3 * page + 1);
    CHECK(fx_arena_grow(&a, 10 * page) == FX_OK && is_all(a.memory, 3 * page, 'x'));
    CHECK(is_all(a.memory + 4 * page, 6 * page, 0)); /* the page that was cut in two keeps its bytes */
    memset(a.memory, 'x', (size_t)(10 * page));
    fx_arena_forget(a.memory + 1, 4 * page - 2); /* whole pages only: the second and the third */
    CHECK(is_all(a.memory, page, 'x') && is_all(a.memory + page, 2 * page, 0) &&
          is_all(a.memory + 3 * page, page, 'x'));
    fx_arena_forget(a.memory + 1, page);
    CHECK(is_all(a.memory, page, 'x'));
    fx_arena_free(&a);
}

/* Whether madvise does what it says: an emulator of processes may take any advice, and do nothing. */
static int advice_counts(void *page) {
    return madvise(page, 1, 9999) != 0;
}

static void is_backed(void) {
    const int64_t page = sysconf(_SC_PAGESIZE);
    unsigned char in_memory[10] = {0};
    fx_arena a = {0};
    CHECK(!fx_arena_back(&a, 0, page)); /* there is none */
    CHECK(fx_arena_grow(&a, 9 * page + 1) == FX_OK);
    memset(a.memory, 'x', (size_t)page);
    const int is_able = fx_arena_back(&a, 0, 4 * page); /* from Linux 5.14 on */
    CHECK(fx_arena_back(&a, 4 * page, 100 * page) == is_able && !fx_arena_back(&a, 10 * page, page));
    CHECK(mincore(a.memory, (size_t)(10 * page), in_memory) == 0);
    for (int i = 0; i < 10; i++)
        CHECK(!is_able || !advice_counts(a.memory) || in_memory[i] & 1);
    CHECK(is_all(a.memory, page, 'x') && is_all(a.memory + page, 8 * page + 1, 0));
    fx_arena_free(&a);
}

static void states(void) {
    fx_arena a = {0};
    CHECK(fx_arena_begin(&a) == FX_ERR_RUNNING); /* nothing is bound */
    CHECK(fx_arena_grow(&a, 10000) == FX_OK && fx_arena_bind(&a, 1) == FX_OK && fx_arena_grow(&a, 20000) == FX_OK);
    CHECK(fx_arena_begin(&a) == FX_OK && fx_arena_is_running(&a));
    CHECK(fx_arena_begin(&a) == FX_ERR_RUNNING && fx_arena_bind(&a, 0) == FX_ERR_RUNNING);
    CHECK(fx_arena_grow(&a, 30000) == FX_ERR_RUNNING && fx_arena_grow(&a, 1) == FX_ERR_RUNNING);
    CHECK(fx_arena_cut(&a, 1) == FX_ERR_RUNNING && a.bytes == 20000);
    fx_arena_end(&a);
    CHECK(fx_arena_cut(&a, 10000) == FX_OK && fx_arena_bind(&a, 0) == FX_OK && fx_arena_begin(&a) == FX_ERR_RUNNING);
    fx_arena_free(&a);
    fx_arena lost = {.bytes = 1};
    CHECK(fx_arena_is_lost(&lost) && fx_arena_grow(&lost, 2) == FX_ERR_MEMORY);
}

typedef struct attempt {
    fx_engine *engine;
    fx_bound *bound;
    const fx_program *program;
    int count;
} attempt;

/* Called by a run as its poll: tries everything that would change the arena. */
static int try_all(void *arg) {
    attempt *a = arg;
    fx_bind_stats bind_stats;
    fx_run_stats run_stats;
    fx_error error;
    const int64_t bytes = a->engine->arena.bytes;
    CHECK(fx_arena_grow(&a->engine->arena, 2 * bytes) == FX_ERR_RUNNING && a->engine->arena.bytes == bytes);
    CHECK(!fx_bind(a->engine, a->program, NULL, &bind_stats, &error) && error.status == FX_ERR_RUNNING);
    CHECK(fx_run(a->bound, NULL, NULL, 0, NULL, &run_stats, &error) == FX_ERR_RUNNING);
    CHECK(fx_unbind(a->bound) == FX_ERR_RUNNING && fx_engine_trim(a->engine, 0) == FX_ERR_RUNNING);
    CHECK(fx_engine_rest(a->engine, NULL) == FX_ERR_RUNNING && fx_engine_close(a->engine, NULL) == FX_ERR_RUNNING);
    CHECK(!fx_recording_make(a->engine, &(fx_tape){.counter_count = 0}, &error) && error.status == FX_ERR_RUNNING);
    a->count++;
    return 0;
}

static void running(void) {
    static chain c;
    static float x[SIDE * SIDE * CHANNELS], y[SIDE * SIDE * CHANNELS], expected[SIDE * SIDE * CHANNELS];
    const fx_kernels *k = fx_kernels_for("scalar");
    uint32_t seed = 1;
    fx_bind_stats bind_stats;
    fx_run_stats run_stats;
    fx_error error;
    chain_make(&c, k, 1, 1, 0, &seed);
    for (int i = 0; i < SIDE * SIDE * CHANNELS; i++)
        x[i] = (float)(random_u32(&seed) % 100) / 50 - 1;
    chain_reference(&c, k, x, expected);
    /* So slow that the poll, which is called every 20 ms, is called often. */
    const fx_options options = {
        .threads = 1, .isa = "scalar", .read_bytes_per_second = c.panel_bytes * c.program.load_count * 5};
    fx_engine *engine = fx_engine_open(&options, &error);
    CHECK(engine);
    fx_bound *bound = fx_bind(engine, &c.program, NULL, &bind_stats, &error);
    CHECK(bound);
    attempt a = {engine, bound, &c.program, 0};
    CHECK(fx_run(bound, (void *[]){x, y}, &bound, 1, &(fx_interrupt){try_all, &a}, &run_stats, &error) == FX_OK);
    CHECK(a.count > 1 && !memcmp(y, expected, sizeof y));
    CHECK(fx_unbind(bound) == FX_OK && fx_engine_trim(engine, 0) == FX_OK && fx_engine_close(engine, NULL) == FX_OK);
    chain_free(&c);
}

int main(void) {
    sizes();
    grows();
    has_room();
    shrinks();
    is_backed();
    states();
    running();
    puts("arena: good");
    return 0;
}
