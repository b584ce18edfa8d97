/* The n-th call of the system fails, or all from the n-th on, for n = 1 to the end, in the life of an engine: opened,
 * programs bound, run, unbound, the arena grown and cut. Each time what fails says so, and what does not is right; once
 * the fault is over the same engine does all of it; nothing is lost. Then reads by themselves.
 * usage: flexnn-faults */
#include "failing.h"

#include "chain.h"
#include "read.h"
#include "require.h"
#include "state.h"

#include <string.h>
#include <unistd.h>

enum { VALUES = SIDE * SIDE * CHANNELS, KINDS = 3 };

static struct {
    chain chains[2];
    fx_node nodes[NODES];
    fx_program programs[KINDS]; /* a chain, the same with its maps exchanged, and another behind both */
    float x[VALUES], y[VALUES], expected[KINDS][VALUES];
    fx_engine *engine;
    fx_bound *bound[KINDS];
    int may_fail; /* a fault is armed */
} s;

/* What each kind of fault may end in. */
static const fx_status answers[FAULTS][3] = {
    [FAIL_MEMORY] = {FX_ERR_MEMORY},       [FAIL_MAP] = {FX_ERR_MEMORY},  [FAIL_MOVE] = {FX_ERR_MEMORY},
    [FAIL_THREAD] = {FX_ERR_THREAD},       [FAIL_LOCK] = {FX_ERR_THREAD}, [FAIL_CONDITION] = {FX_ERR_THREAD},
    [FAIL_READ] = {FX_ERR_IO, FX_ERR_EOF},
};

static void refused(const fx_error *error) {
    const fx_status *allowed = answers[atomic_load(&failing.kind)];
    CHECK(s.may_fail && (error->status == allowed[0] || error->status == allowed[1]) && error->status != FX_OK);
}

/* Runs without the page cache have readers of their own, or their caller would read. */
static int opens(int trace) {
    fx_error error;
    const fx_options options = {.threads = 2,
                                .isa = NULL,
                                .fresh = !trace,
                                .read_bytes_per_second = atomic_load(&failing.is_cold) ? (int64_t)1 << 40 : 0,
                                .trace = trace};
    s.engine = fx_engine_open(&options, &error);
    if (!s.engine)
        refused(&error);
    return s.engine != NULL;
}

static int binds(int kind) {
    fx_bind_stats stats;
    fx_error error;
    s.bound[kind] = fx_bind(s.engine, &s.programs[kind], NULL, &stats, &error);
    if (!s.bound[kind])
        refused(&error);
    return s.bound[kind] != NULL;
}

static void unbinds(int kind) {
    if (s.bound[kind])
        CHECK(fx_unbind(s.bound[kind]) == FX_OK);
    s.bound[kind] = NULL;
}

static int runs(int kind) {
    fx_run_stats stats;
    fx_error error;
    if (!s.bound[kind])
        return 0;
    memset(s.y, 0xff, sizeof s.y);
    if (fx_run(s.bound[kind], (void *[]){s.x, s.y}, &s.bound[kind], 1, NULL, &stats, &error) == FX_OK)
        CHECK(!memcmp(s.y, s.expected[kind], sizeof s.y));
    else if (error.status == FX_ERR_MEMORY)
        CHECK(fx_arena_is_lost(&s.engine->arena));
    else
        refused(&error);
    return 1;
}

/* All that an engine does; what a fault prevents is left out. */
static void lives(void) {
    for (int kind = 0; kind < KINDS; kind++)
        if (binds(kind))
            runs(kind);
    runs(0);
    runs(1);
    unbinds(0);
    unbinds(2);
    CHECK(fx_engine_trim(s.engine, 0) == FX_OK);
    runs(1);
    if (binds(2))
        runs(2);
    runs(1);
    unbinds(1);
    unbinds(2);
    CHECK(fx_engine_trim(s.engine, 1) == FX_OK); /* pinned weights stay */
    if (binds(0))
        runs(0);
    CHECK(fx_engine_bytes(s.engine) > 0 && fx_engine_threads(s.engine) <= 2);
}

static void rests(void) {
    for (int kind = 0; kind < KINDS; kind++)
        unbinds(kind);
    CHECK(fx_engine_trim(s.engine, 0) == FX_OK && !s.engine->bound && !s.engine->unbound);
}

static void closes(void) {
    CHECK(fx_engine_close(s.engine, NULL) == FX_OK);
    memset(s.bound, 0, sizeof s.bound);
}

/* One fault. Returns whether there was such a call. */
static int faulty(int kind, long number, int is_sticky, int error) {
    const long held = atomic_load(&failing.held);
    s.may_fail = 1;
    atomic_store(&failing.is_cold, kind == FAIL_READ || kind == FAIL_USAGE);
    arm(kind, number, is_sticky, error);
    const int is_open = opens((int)number % 3);
    if (is_open)
        lives();
    const long calls = disarm();
    s.may_fail = 0;
    atomic_store(&failing.is_cold, 0);
    if (is_open) {
        rests();
        for (int i = 0; i < KINDS; i++)
            CHECK(binds(i) && runs(i));
        closes();
    }
    CHECK(atomic_load(&failing.held) == held);
    return calls >= number;
}

static void make_programs(void) {
    const fx_kernels *k = fx_kernels_for(NULL);
    uint32_t seed = 3;
    for (int i = 0; i < 2; i++)
        chain_make(&s.chains[i], k, 2, 1, 2 * i, &seed);
    chain *other = &s.chains[1];
    memcpy(other->weights, s.chains[0].weights, (size_t)(SLICES * other->panel_bytes));
    memcpy(other->crcs, s.chains[0].crcs, sizeof other->crcs);
    other->program.file = s.chains[0].program.file;
    memcpy(s.nodes, s.chains[0].nodes, sizeof s.nodes);
    chain_exchange_maps(&s.chains[0], s.nodes);
    for (int i = 0; i < KINDS; i++) {
        s.programs[i] = s.chains[i / 2].program;
        if (i == 1)
            s.programs[i].nodes = s.nodes;
    }
    for (int i = 0; i < VALUES; i++)
        s.x[i] = (float)(random_u32(&seed) % 100) / 50 - 1;
    for (int i = 0; i < KINDS; i++)
        chain_reference(&s.chains[i / 2], k, s.x, s.expected[i]);
}

/* Every call of every kind: those of reads and of the clock of waits are many, so some are left out. */
static void sweep(void) {
    static const struct {
        int kind, error, every;
    } faults[] = {
        {FAIL_MEMORY, ENOMEM, 1}, {FAIL_MAP, ENOMEM, 1},     {FAIL_MOVE, ENOMEM, 1}, {FAIL_MOVE, EFAULT, 1},
        {FAIL_THREAD, EAGAIN, 1}, {FAIL_LOCK, ENOMEM, 1},    {FAIL_CPUS, EINVAL, 1}, {FAIL_CONDITION, ENOMEM, 1},
        {FAIL_READ, EIO, 9},      {FAIL_READ, EINTR, 31},    {FAIL_READ, 0, 19},     {FAIL_READ, -1, 31},
        {FAIL_USAGE, EINVAL, 40}, {FAIL_CACHED, EAGAIN, 11},
    };
    long injected = 0;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        for (int is_sticky = 0; is_sticky < 2; is_sticky++) {
            if (is_sticky && faults[i].error == EINTR)
                continue; /* a read that is always interrupted never ends */
            for (long number = 1; faulty(faults[i].kind, number, is_sticky, faults[i].error);
                 number += faults[i].every + is_sticky)
                injected++;
        }
    CHECK(injected > 100);
    printf("faults: %ld\n", injected);
}

/* An arena that consists of several mappings, on a system that moves one at a time: the pages move in parts, and the
 * arena is whole, as it was, or lost. */
static void moves(void) {
    enum { MOVED, KEPT, LOST };
    static const struct {
        int errors[4], outcome;
    } cases[] = {
        {{0}, MOVED},
        {{EFAULT}, MOVED},
        {{EFAULT, EFAULT, 0, 0}, MOVED},
        {{ENOMEM}, KEPT},
        {{EFAULT, ENOMEM}, KEPT},
        {{EFAULT, EFAULT, EFAULT, EFAULT}, KEPT}, /* down to half a page */
        {{EFAULT, 0, ENOMEM}, LOST},
        {{EFAULT, EFAULT, 0, ENOMEM}, LOST},
    };
    const int64_t page = sysconf(_SC_PAGESIZE), bytes = 8 * page;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fx_arena a = {0};
        CHECK(fx_arena_grow(&a, bytes) == FX_OK);
        memset(a.memory, 'x', (size_t)bytes);
        arm_all(FAIL_MOVE, cases[i].errors, 4);
        const fx_status status = fx_arena_grow(&a, 2 * bytes);
        disarm();
        CHECK(status == (cases[i].outcome == MOVED ? FX_OK : FX_ERR_MEMORY));
        CHECK(a.bytes == (cases[i].outcome == MOVED ? 2 : 1) * bytes);
        CHECK(fx_arena_is_lost(&a) == (cases[i].outcome == LOST));
        for (int64_t at = 0; a.memory && at < a.bytes; at++)
            CHECK(a.memory[at] == (at < bytes ? 'x' : 0));
        fx_arena_free(&a);
        CHECK(!fx_arena_is_lost(&a) && fx_arena_grow(&a, bytes) == FX_OK);
        fx_arena_free(&a);
    }
}

/* A read past the page cache that the file system does not take goes through it; one that is interrupted goes on. */
static void reads(void) {
    enum { BYTES = 3 * 4096 };
    static _Alignas(4096) char to[BYTES], wanted[BYTES];
    char name[] = "/tmp/flexnn-faults-XXXXXX";
    const int fd = mkstemp(name);
    for (int i = 0; i < BYTES; i++)
        wanted[i] = (char)(i * 7 + i / 256);
    CHECK(fd >= 0 && !unlink(name) && write(fd, wanted, BYTES) == BYTES);
    static const struct {
        int direct, errors[3], os_error;
        fx_status status;
        int64_t offset; /* where the read failed */
    } cases[] = {
        {0, {0}, 0, FX_OK, 0},
        {1, {0}, 0, FX_OK, 0},
        {0, {EINTR, EINTR, 0}, 0, FX_OK, 0},
        {0, {-1, -1, EINTR}, 0, FX_OK, 0}, /* half, and half of the rest */
        {1, {EINVAL, 0}, 0, FX_OK, 0},
        {1, {EINVAL, EINTR}, 0, FX_OK, 0},
        {1, {EIO}, EIO, FX_ERR_IO, 0},
        {0, {EINVAL}, EINVAL, FX_ERR_IO, 0},
        {1, {EINVAL, EINVAL}, EINVAL, FX_ERR_IO, 0},
        {0, {-1, EIO}, EIO, FX_ERR_IO, BYTES / 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const fx_file file = {.fd = fd, .direct_fd = cases[i].direct ? fd : -1};
        memset(to, 0, BYTES);
        arm_all(FAIL_READ, cases[i].errors, 3);
        const fx_error error = fx_read(&file, to, BYTES, 0);
        disarm();
        CHECK(error.status == cases[i].status && error.os_error == cases[i].os_error);
        CHECK(error.status == FX_OK ? !memcmp(to, wanted, BYTES) : error.file_offset == cases[i].offset);
    }
    const fx_file file = {.fd = fd, .direct_fd = -1};
    CHECK(fx_read(&file, to, BYTES, 1).status == FX_ERR_EOF && fx_read(&file, to, BYTES - 1, 1).status == FX_OK);
    CHECK(!memcmp(to, wanted + 1, BYTES - 1));
    const int is_known = fx_read_cached(&file, to, BYTES, 0);
    CHECK(!is_known || !memcmp(to, wanted, BYTES));
    CHECK(!fx_read_cached(&file, to, BYTES, 1)); /* not all of it */
    close(fd);
}

int main(void) {
    make_programs();
    reads();
    moves();
    sweep();
    for (int i = 0; i < 2; i++)
        chain_free(&s.chains[i]);
    return 0;
}
