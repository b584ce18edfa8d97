/* What the engine refuses: programs that break one rule each, calls during a run, in a child of fork, with programs of
 * another engine or a lost arena, and callers that cancel while the device does not answer. Each answer is the one that
 * engine.h states, and afterwards the engine computes as before.
 * usage: flexnn-refusals */
#include "failing.h"

#include "chain.h"
#include "flexnn/crc32c.h"
#include "flexnn/quota.h"
#include "protocol.h"
#include "refused.h"
#include "require.h"
#include "state.h"

#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECKED_PROGRAM &s.program
#define CHECKED_THREADS s.threads

enum { VALUES = SIDE * SIDE * CHANNELS, TOO_MANY = (1 << 24) + 1 };
#define TOO_FAR (((int64_t)1 << 48) + 1)

static struct {
    chain c;
    fx_node nodes[NODES];
    fx_step steps[STEPS];
    fx_load loads[SLICES], tables[1];
    int64_t io_bytes[2];
    uint32_t groups[STEPS];
    fx_program program; /* of these arrays, which a case may change */
    float x[VALUES], y[VALUES], expected[VALUES];
    int threads;
} s;

static void fresh(void) {
    memcpy(s.nodes, s.c.nodes, sizeof s.nodes);
    memcpy(s.steps, s.c.steps, sizeof s.steps);
    memcpy(s.loads, s.c.loads, sizeof s.loads);
    memcpy(s.io_bytes, s.c.io_bytes, sizeof s.io_bytes);
    s.program = s.c.program;
    s.program.nodes = s.nodes;
    s.program.steps = s.steps;
    s.program.loads = s.loads;
    s.program.io_bytes = s.io_bytes;
    s.tables[0] = (fx_load){.bytes = 64, .check_bytes = 64, .chunk_bytes = 64};
    for (int i = 0; i < STEPS; i++)
        s.groups[i] = 1;
    s.threads = 1;
}

static void counts_and_arrays(void) {
    fx_program *p = &s.program;
    REFUSED((void)0, FX_OK);
    REFUSED(s.threads = 0, FX_ERR_PARAMS);
    REFUSED(s.threads = FX_MAX_THREADS + 1, FX_ERR_PARAMS);
    REFUSED(p->node_count = TOO_MANY, FX_ERR_PARAMS);
    REFUSED(p->step_count = TOO_MANY, FX_ERR_PARAMS);
    REFUSED(p->load_count = TOO_MANY, FX_ERR_PARAMS);
    REFUSED(p->pinned_count = TOO_MANY, FX_ERR_PARAMS);
    REFUSED(p->table_count = TOO_MANY, FX_ERR_PARAMS);
    REFUSED(p->crc_count = 8u * TOO_MANY, FX_ERR_PARAMS);
    REFUSED(p->input_count = TOO_MANY, FX_ERR_PARAMS);
    REFUSED(p->output_count = TOO_MANY, FX_ERR_PARAMS);
    REFUSED(p->group_count = STEPS + 1, FX_ERR_PARAMS);
    REFUSED(p->nodes = NULL, FX_ERR_PARAMS);
    REFUSED(p->steps = NULL, FX_ERR_PARAMS);
    REFUSED(p->loads = NULL, FX_ERR_PARAMS);
    REFUSED(p->pinned = NULL, FX_ERR_PARAMS);
    REFUSED(p->crcs = NULL, FX_ERR_PARAMS);
    REFUSED(p->io_bytes = NULL, FX_ERR_PARAMS);
    REFUSED(p->table_count = 1; p->tables = NULL, FX_ERR_PARAMS);
    REFUSED(p->group_count = 1; p->groups = NULL, FX_ERR_PARAMS);
    REFUSED(p->group_count = STEPS; p->groups = s.groups, FX_OK);
    REFUSED(p->group_count = STEPS - 1; p->groups = s.groups, FX_ERR_PARAMS); /* a step is in none */
    REFUSED(p->group_count = STEPS; p->groups = s.groups; s.groups[3] = 0, FX_ERR_PARAMS);
}

static void sizes(void) {
    fx_program *p = &s.program;
    REFUSED(p->arena_bytes = -1, FX_ERR_BOUNDS);
    REFUSED(p->arena_bytes = TOO_FAR, FX_ERR_BOUNDS);
    REFUSED(p->zeros_count = -1, FX_ERR_BOUNDS);
    REFUSED(p->zeros_count = TOO_FAR / 4 + 1, FX_ERR_BOUNDS);
    REFUSED(p->zeros_offset += 2, FX_ERR_BOUNDS);
    REFUSED(p->zeros_offset = p->arena_bytes, FX_ERR_BOUNDS);
    REFUSED(p->zeros_count = 0, FX_ERR_BOUNDS); /* which its nodes read */
    REFUSED(s.io_bytes[1] = -1, FX_ERR_BOUNDS);
    REFUSED(s.io_bytes[1] = TOO_FAR, FX_ERR_BOUNDS);
    REFUSED(s.io_bytes[0]--, FX_ERR_BOUNDS);
    REFUSED(p->table_count = 1; p->tables = s.tables, FX_OK);
    REFUSED(p->table_count = 1; p->tables = s.tables; s.tables[0].check_lead = 4, FX_ERR_PARAMS);
    REFUSED(p->table_count = 1; p->tables = s.tables; s.tables[0].check_bytes = 60, FX_ERR_PARAMS);
    REFUSED(p->table_count = 1; p->tables = s.tables; s.tables[0].bytes = 0, FX_ERR_PARAMS);
    REFUSED(p->table_count = 1; p->tables = s.tables; s.tables[0].crc_first = SLICES, FX_ERR_BOUNDS);
    REFUSED(s.loads[1].file_offset = -1, FX_ERR_PARAMS);
    REFUSED(s.loads[1].file_offset = TOO_FAR, FX_ERR_PARAMS);
    REFUSED(s.loads[1].bytes = TOO_FAR, FX_ERR_PARAMS);
    REFUSED(s.loads[1].check_lead = -1, FX_ERR_PARAMS);
    REFUSED(s.loads[1].chunk_bytes = 0, FX_ERR_PARAMS);
    REFUSED(s.loads[1].wait_steps = STEPS, FX_ERR_PARAMS);
    REFUSED(s.loads[1].wait_steps = -STEPS - 1, FX_ERR_PARAMS);
    REFUSED(s.loads[1].address = p->arena_bytes, FX_ERR_BOUNDS);
}

static void operands(void) {
    REFUSED(s.nodes[0].op = FX_OP_COUNT, FX_ERR_PARAMS);
    REFUSED(s.nodes[0].params.conv.group = 0, FX_ERR_PARAMS);
    REFUSED(s.nodes[0].out.base = -1, FX_ERR_BOUNDS);
    REFUSED(s.nodes[0].in[0].base = -1, FX_ERR_BOUNDS);
    REFUSED(s.nodes[0].in[0].base = -3, FX_ERR_BOUNDS);
    REFUSED(s.nodes[0].in[0].base = 7, FX_ERR_BOUNDS);
    REFUSED(s.nodes[0].in[0].base = FX_BASE_FILE, FX_ERR_BOUNDS);
    REFUSED(s.nodes[1].in[1] = (fx_place){.base = FX_BASE_FILE}, FX_ERR_BOUNDS);
    REFUSED(s.nodes[0].in[0].offset = -4, FX_ERR_BOUNDS);
    REFUSED(s.nodes[0].in[0].offset = s.io_bytes[0] + 4, FX_ERR_BOUNDS);
    REFUSED(s.nodes[1].in[0].offset += 2, FX_ERR_BOUNDS);
    REFUSED(s.nodes[NODES - 1].out.base = 1, FX_ERR_BOUNDS);             /* an input */
    REFUSED(s.nodes[NODES - 1].out.base = FX_BASE_SPILL, FX_ERR_BOUNDS); /* where copies alone go */
    REFUSED(s.nodes[0].workspace_bytes = -64, FX_ERR_BOUNDS);
    REFUSED(s.nodes[0].workspace_bytes = TOO_FAR / 4, FX_ERR_BOUNDS);
    REFUSED(s.nodes[0].workspace_bytes = 96, FX_ERR_BOUNDS);
    REFUSED(s.nodes[0].workspace_bytes += 64; s.nodes[0].workspace_offset += 4, FX_ERR_BOUNDS);
}

static void windows(void) {
    fx_step *step = &s.steps[2];
    REFUSED(step->node = NODES, FX_ERR_PARAMS);
    REFUSED(step->wait_loads = SLICES + 1, FX_ERR_PARAMS);
    REFUSED(step->window.y0 = -1, FX_ERR_PARAMS);
    REFUSED(step->window.y0 = step->window.y1 + 1, FX_ERR_PARAMS);
    REFUSED(step->window.y1 = SIDE + 1, FX_ERR_PARAMS);
    REFUSED(step->window.c0 = -FX_NR, FX_ERR_PARAMS);
    REFUSED(step->window.c0 = step->window.c1 + FX_NR, FX_ERR_PARAMS);
    REFUSED(step->window.c1 = CHANNELS + FX_NR, FX_ERR_PARAMS);
    REFUSED(step->window.c0++, FX_ERR_PARAMS);
    REFUSED(step->window.c1--, FX_ERR_PARAMS);
    REFUSED(step->panel_offset += 2, FX_ERR_BOUNDS);
    REFUSED(step->panel_offset = s.program.arena_bytes, FX_ERR_BOUNDS);
    REFUSED(s.loads[0].wait_steps = STEPS - 1; s.steps[0].wait_loads = 1, FX_ERR_PARAMS); /* both wait for ever */
}

static fx_engine *opened(int threads, int64_t rate) {
    fx_error error;
    const fx_options options = {.threads = threads, .read_bytes_per_second = rate};
    fx_engine *e = fx_engine_open(&options, &error);
    CHECK(e);
    return e;
}

static void closed(fx_engine *e) {
    CHECK(fx_engine_close(e, NULL) == FX_OK);
}

static fx_bound *bound(fx_engine *e, const fx_program *p) {
    fx_bind_stats stats;
    fx_error error;
    fx_bound *b = fx_bind(e, p, NULL, &stats, &error);
    CHECK(b);
    return b;
}

static fx_status run(fx_bound *b, fx_bound *next, const fx_interrupt *interrupt) {
    fx_run_stats stats;
    fx_error error;
    memset(s.y, 0xff, sizeof s.y);
    const fx_status status = fx_run(b, (void *[]){s.x, s.y}, &next, next != NULL, interrupt, &stats, &error);
    CHECK(status == FX_OK ? !memcmp(s.y, s.expected, sizeof s.y) : error.status == status);
    return status;
}

static void options(void) {
    const fx_options good = {.threads = 1};
    fx_options bad[] = {good, good, good, good};
    bad[0].threads = 0;
    bad[1].threads = FX_MAX_THREADS + 1;
    bad[2].read_bytes_per_second = -1;
    bad[3].isa = "none";
    for (int i = 0; i < 4; i++) {
        fx_error error;
        CHECK(!fx_engine_open(&bad[i], &error) && error.status == FX_ERR_PARAMS);
    }
    fx_leaving leaving = {.is_abandoned = 1};
    CHECK(fx_engine_close(NULL, NULL) == FX_OK && fx_engine_close(NULL, &leaving) == FX_OK && !leaving.is_abandoned);
}

/* Programs that differ in more than words have arrays of their own. */
static void unlike(void) {
    fx_engine *e = opened(1, 0);
    fx_bound *first = bound(e, &s.c.program);
    for (int i = 0; i < 8; i++) {
        fresh();
        fx_program *p = &s.program;
        switch (i) {
        case 0:
            p->node_count--; /* the last writes the output */
            p->step_count -= PANELS * WINDOWS;
            break;
        case 1:
            p->groups = s.groups;
            p->group_count = STEPS;
            break;
        case 2:
            p->crc_count--;
            break;
        case 3:
            p->table_count = 1;
            p->tables = s.tables;
            break;
        case 4:
            p->output_count++;
            break;
        case 5:
            s.loads[0].wait_steps++;
            break;
        case 6:
            p->pinned_count--;
            break;
        case 7:
            p->io_bytes = s.io_bytes; /* nothing differs */
            break;
        }
        if (i == 2)
            p->crcs = s.c.crcs;
        int64_t io_bytes[] = {s.io_bytes[0], s.io_bytes[1], 64};
        p->io_bytes = io_bytes;
        fx_bind_stats stats;
        fx_error error;
        fx_bound *b = fx_bind(e, p, NULL, &stats, &error);
        CHECK(b ? (b->owner == NULL) == (i < 7) : i == 2 || i == 5 || i == 6);
        if (b && i != 0 && i != 6)
            CHECK(run(b, NULL, NULL) == FX_OK);
        if (b)
            CHECK(fx_unbind(b) == FX_OK);
        CHECK(run(first, first, NULL) == FX_OK);
    }
    closed(e);
}

static int wanted(void *calls) {
    ++*(int *)calls;
    return 1;
}

/* All that a child of fork tries. Its exit is 0 if each answer is right. */
static void child(fx_engine *e, fx_bound *b, fx_recording *r) {
    fx_bind_stats stats;
    fx_recording_stats recording_stats;
    fx_error error;
    const fx_tape tape = {.counter_count = 0};
    int is_good = run(b, NULL, NULL) == FX_ERR_FORK;
    is_good &= !fx_bind(e, &s.c.program, NULL, &stats, &error) && error.status == FX_ERR_FORK;
    is_good &= !fx_recording_make(e, &tape, &error) && error.status == FX_ERR_FORK;
    is_good &= fx_recording_run(r, NULL, NULL, 0, NULL, &recording_stats, &error) == FX_ERR_FORK;
    is_good &= fx_engine_rest(e, NULL) == FX_OK && fx_engine_trim(e, 0) == FX_OK;
    is_good &= fx_recording_free(r) == FX_OK && fx_unbind(b) == FX_OK && fx_engine_close(e, NULL) == FX_OK;
    exit(!is_good);
}

static void forked(void) {
    fx_engine *e = opened(2, 0);
    fx_bound *b = bound(e, &s.c.program);
    fx_error error;
    const fx_tape tape = {.counter_count = 0};
    fx_recording *r = fx_recording_make(e, &tape, &error);
    CHECK(r && run(b, b, NULL) == FX_OK);
    const pid_t pid = fork();
    if (!pid)
        child(e, b, r);
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status));
    CHECK(run(b, NULL, NULL) == FX_OK);
    closed(e);
}

static void foreign(void) {
    fx_engine *e = opened(1, 0), *other = opened(1, 0);
    fx_bound *b = bound(e, &s.c.program), *stranger = bound(other, &s.c.program);
    CHECK(run(b, stranger, NULL) == FX_ERR_PARAMS && run(b, b, NULL) == FX_OK && run(stranger, NULL, NULL) == FX_OK);
    closed(e);
    closed(other);
}

/* A program that needs more memory than there is room for where the arena lies, and a system that moves half of it. */
static void lost(void) {
    static const int errors[] = {EFAULT, 0, ENOMEM};
    fx_engine *e = opened(1, 0);
    fx_bound *b = bound(e, &s.c.program);
    fx_bind_stats stats;
    fx_recording_stats recording_stats;
    fx_error error;
    const fx_tape tape = {.counter_count = 0};
    fx_recording *r = fx_recording_make(e, &tape, &error);
    CHECK(r);
    fresh();
    s.program.arena_bytes += 8 << 20;
    arm_all(FAIL_MOVE, errors, 3);
    CHECK(!fx_bind(e, &s.program, NULL, &stats, &error) && error.status == FX_ERR_MEMORY);
    disarm();
    CHECK(fx_arena_is_lost(&e->arena) && run(b, NULL, NULL) == FX_ERR_MEMORY);
    CHECK(!fx_bind(e, &s.program, NULL, &stats, &error) && error.status == FX_ERR_MEMORY);
    CHECK(!fx_recording_make(e, &tape, &error) && error.status == FX_ERR_MEMORY);
    CHECK(fx_recording_run(r, NULL, NULL, 0, NULL, &recording_stats, &error) == FX_ERR_MEMORY);
    CHECK(fx_engine_trim(e, 0) == FX_OK && fx_arena_is_lost(&e->arena));
    CHECK(fx_unbind(b) == FX_OK && fx_engine_trim(e, 0) == FX_OK && fx_arena_is_lost(&e->arena));
    CHECK(fx_recording_free(r) == FX_OK && fx_engine_trim(e, 0) == FX_OK && !fx_arena_is_lost(&e->arena));
    CHECK(run(bound(e, &s.program), NULL, NULL) == FX_OK);
    closed(e);
}

/* A close that may leave reads behind waits for those that end; the files stay the caller's. */
static void leaves_nothing(void) {
    atomic_store(&failing.is_patient, 1); /* readers that end may have to wait for a CPU */
    for (uint32_t files = 0; files < 2; files++)
        for (int reads = 0; reads < 2; reads++) {
            fx_engine *e = opened(1, 0);
            fx_leaving leaving = {.files = files ? &s.c.program.file : NULL, .file_count = files};
            if (reads)
                CHECK(run(bound(e, &s.c.program), NULL, NULL) == FX_OK);
            CHECK(fx_engine_close(e, &leaving) == FX_OK && !leaving.is_abandoned);
            CHECK(fcntl(s.c.fd, F_GETFD) >= 0);
        }
    atomic_store(&failing.is_patient, 0);
}

/* The device does not answer: whoever cancels comes back, and a close that may leaves the engine to its readers. */
static void blocked(void) {
    const long held = atomic_load(&failing.held);
    fx_engine *e = opened(1, (int64_t)1 << 40);
    fx_program own = s.c.program;
    own.file.fd = dup(s.c.fd);
    fx_bound *b = bound(e, &own);
    fx_bind_stats stats;
    fx_error error;
    int calls = 0;
    fx_leaving leaving = {.files = &own.file, .file_count = 1};
    const fx_interrupt cancel = {wanted, &calls};
    atomic_store(&failing.is_blocked, 1);
    CHECK(run(b, b, &cancel) == FX_ERR_CANCELLED && calls == 1);
    CHECK(run(b, b, &cancel) == FX_ERR_CANCELLED && calls == 2); /* while it waits for the loader's rest */
    CHECK(fx_engine_rest(e, &cancel) == FX_ERR_CANCELLED);
    fresh();
    s.program.file = own.file;
    s.program.arena_bytes += 4096;
    CHECK(!fx_bind(e, &s.program, &cancel, &stats, &error) && error.status == FX_ERR_CANCELLED && calls == 4);
    CHECK(fx_engine_close(e, &leaving) == FX_OK && leaving.is_abandoned);
    atomic_store(&failing.is_blocked, 0);
    while (atomic_load(&failing.held) > held) /* the last reader frees it, and closes the file */
        sched_yield();
    while (fcntl(own.file.fd, F_GETFD) >= 0)
        sched_yield();

    e = opened(1, (int64_t)1 << 40);
    b = bound(e, &s.c.program);
    CHECK(run(b, b, NULL) == FX_OK);
    fx_stop(e);
    while (!fx_has_gone(e))
        sched_yield();
    CHECK(!fx_loader_abandon(e, 0)); /* they have stopped meanwhile */
    e->has_loader = 0;
    closed(e);
}

/* Readers and threads by the CPUs that a process may use, and on cores that are not alike. */
static void cpus(void) {
    static const struct {
        int cpus, threads, readers, is_shared;
    } cases[] = {{8, 1, FX_READERS, 0}, {3, 1, 2, 0}, {2, 1, 1, 0}, {1, 1, 1, 0}, {2, 2, 1, 1}, {1, 2, 1, 1}};
    if (fx_cpu_quota(FX_GROUPS_FILE, FX_GROUPS_ROOT) > 0)
        return; /* which may be less */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        atomic_store(&failing.cpus, cases[i].cpus);
        fx_engine *e = opened(cases[i].threads, 0);
        fx_bound *b = bound(e, &s.c.program);
        atomic_store(&failing.cpus, 0);
        CHECK(e->loading.threads == cases[i].readers && atomic_load(&e->loading.is_shared) == cases[i].is_shared);
        for (int j = 0; j < 3; j++)
            CHECK(run(b, b, NULL) == FX_OK);
        closed(e);
    }
    fx_engine *e = opened(1, 0);
    e->placement.is_set = 1;
    CHECK(!sched_getaffinity(0, sizeof e->placement.load, &e->placement.load));
    CHECK(run(bound(e, &s.c.program), NULL, NULL) == FX_OK);
    closed(e);
}

/* A pinned load of several requests: one that fails ends it, a caller may cancel it, and without a reader the caller
 * reads. */
static void long_loads(void) {
    enum { BYTES = 3 << 20, CHUNK = 1 << 16 };
    static char content[BYTES];
    static uint32_t crcs[BYTES / CHUNK];
    char name[] = "/tmp/flexnn-refusals-XXXXXX";
    for (int i = 0; i < BYTES; i++)
        content[i] = (char)(i * 31 + i / 4096);
    for (int i = 0; i < BYTES / CHUNK; i++)
        crcs[i] = fx_crc32c(0, content + i * CHUNK, CHUNK);
    const int fd = mkstemp(name);
    CHECK(fd >= 0 && !unlink(name) && write(fd, content, BYTES) == BYTES);
    const fx_load load = {.bytes = BYTES, .chunk_bytes = CHUNK, .check_bytes = BYTES};
    const fx_options options = {.threads = 1};
    const fx_program program = {.file = {.fd = fd, .direct_fd = -1}, .crcs = crcs, .crc_count = BYTES / CHUNK};
    fx_error error;
    fx_engine *e = fx_engine_open(&options, &error);
    CHECK(e && fx_engine_grow(e, BYTES, &error) == FX_OK);
    int calls = 0;
    const fx_interrupt cancel = {wanted, &calls};
    fx_poll patient = fx_poll_start(NULL), hasty = fx_poll_start(&cancel);
    hasty.next_ns = 0;
    CHECK(fx_loader_read(e, &program, &load, &hasty, &error) == FX_ERR_CANCELLED && calls == 1);
    atomic_store(&failing.is_cold, 1);
    arm(FAIL_THREAD, 1, 1, EAGAIN);
    CHECK(fx_loader_read(e, &program, &load, &patient, &error) == FX_OK && !e->has_loader);
    CHECK(!memcmp(e->arena.memory, content, BYTES));
    arm(FAIL_READ, 2, 0, EIO);
    CHECK(fx_loader_read(e, &program, &load, &patient, &error) == FX_ERR_IO && e->has_loader);
    CHECK(error.os_error == EIO && error.file_offset == fx_request_bytes(&load, 0) && disarm() == 2);
    content[0] ^= 1;
    CHECK(pwrite(fd, content, 1, 0) == 1);
    CHECK(fx_loader_read(e, &program, &load, &patient, &error) == FX_ERR_CHECKSUM && error.file_offset == CHUNK);
    atomic_store(&failing.is_cold, 0);
    CHECK(fx_engine_close(e, NULL) == FX_OK && close(fd) == 0);
}

int main(void) {
    uint32_t seed = 9;
    chain_make(&s.c, fx_kernels_for(NULL), FX_MAX_THREADS > 2 ? 2 : 1, 1, 0, &seed);
    for (int i = 0; i < VALUES; i++)
        s.x[i] = (float)(random_u32(&seed) % 100) / 50 - 1;
    chain_reference(&s.c, fx_kernels_for(NULL), s.x, s.expected);
    counts_and_arrays();
    sizes();
    operands();
    windows();
    options();
    unlike();
    forked();
    foreign();
    lost();
    leaves_nothing();
    blocked();
    cpus();
    long_loads();
    chain_free(&s.c);
    puts("refusals: good");
    return 0;
}
