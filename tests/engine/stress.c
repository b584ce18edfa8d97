/* Runs the engine without Python: chains of convolutions whose weights stream through a few slots, several of them in
 * one arena, with pauses of random length and poisoned memory, at 1 to 4 threads, steps one by one and in groups; every
 * output must equal, to the bit, what the operators give one by one. Programs follow each other as announced, and not;
 * they come and go; then a damaged file, a short one and a cancelled run, each followed by a good run. One more program
 * stores what it computes in a spill file and reads it back, between runs of the others. For the sanitizers, and for
 * targets that only an emulator runs here.   usage: flexnn-stress [runs] [seed] [threads] */
#include "chain.h"
#include "require.h"
#include "spilled.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint32_t random_state = 1;

static float random_float(void) {
    return (float)(random_u32(&random_state) % 2001) / 1000.0f - 1.0f;
}

static int cancel_now(void *calls) {
    return ++*(int *)calls >= 1;
}

/* Programs in an engine, and what their runs need. */
typedef struct bench {
    const fx_kernels *k;
    chain f[PROGRAMS];
    fx_engine *engine;
    fx_bound *bound[PROGRAMS];
    float *x, *y, *expected;
    fx_run_stats stats;
    fx_error error;
} bench;

static fx_status run(bench *b, int number, fx_bound *const *next, uint32_t count) {
    return fx_run(b->bound[number], (void *[]){b->x, b->y}, next, count, NULL, &b->stats, &b->error);
}

/* One run with new inputs, compared. */
static void good_run(bench *b, int number, fx_bound *const *next, uint32_t count) {
    const chain *f = &b->f[number];
    int64_t streamed = 0;
    for (int64_t i = 0; i < f->map_bytes / 4; i++)
        b->x[i] = random_float();
    memset(b->y, 0xff, (size_t)f->map_bytes);
    chain_reference(f, b->k, b->x, b->expected);
    CHECK(run(b, number, next, count) == FX_OK);
    CHECK(!memcmp(b->y, b->expected, (size_t)f->map_bytes));
    for (uint32_t i = 0; i < f->program.load_count; i++)
        streamed += f->program.loads[i].bytes;
    CHECK(b->stats.bytes_read == streamed && b->stats.stall_ns <= b->stats.run_ns);
}

static void bind(bench *b, int number, int64_t read_max) {
    fx_bind_stats stats;
    b->bound[number] = fx_bind(b->engine, &b->f[number].program, NULL, &stats, &b->error);
    CHECK(b->bound[number] && stats.read <= read_max);
}

static void open_engine(bench *b, int threads, uint32_t seed, int64_t read_bytes_per_second) {
    fx_options options = {.threads = threads,
                          .isa = fx_kernels_level(b->k),
                          .poison = 1,
                          .jitter_seed = seed,
                          .trace = 1,
                          .read_bytes_per_second = read_bytes_per_second};
    b->engine = fx_engine_open(&options, &b->error);
    CHECK(b->engine && fx_engine_threads(b->engine) == threads);
}

/* One program again and again. */
static void one(bench *b, int group, int runs) {
    const chain *f = &b->f[0];
    bind(b, 0, INT64_MAX);
    CHECK(fx_engine_bytes(b->engine) >= f->program.arena_bytes);
    for (int i = 0; i < runs; i++)
        good_run(b, 0, b->bound, 1);
    const fx_span *spans = fx_trace(b->bound[0]);
    for (int i = group; i < STEPS; i++)
        CHECK(spans[i].start_ns >= spans[i / group * group - 1].end_ns && spans[i].end_ns >= spans[i].start_ns);
}

/* Runs several programs in turns. Up to three are announced; mostly they run as announced, sometimes another runs,
 * sometimes none is announced. At times a program is unbound and bound again without reading its pinned weights. */
static void several(bench *b, int runs) {
    int path[4] = {0}, early = 0; /* the one that runs, and what is expected after it */
    uint32_t known = 0;
    for (int i = 1; i < PROGRAMS; i++)
        bind(b, i, 0); /* the first program has the same weights */
    for (int i = 0; i < runs; i++) {
        fx_bound *next[3];
        const uint32_t wanted = random_u32(&random_state) % 8 ? random_u32(&random_state) % 4 : known;
        for (; known < wanted; known++)
            path[known + 1] = (int)(random_u32(&random_state) % PROGRAMS);
        for (uint32_t k = 0; k < known; k++)
            next[k] = b->bound[path[k + 1]];
        good_run(b, path[0], next, random_u32(&random_state) % 8 ? known : 0);
        early += fx_trace(b->bound[path[0]])[STEPS].start_ns < 0;
        if (known && random_u32(&random_state) % 6) {
            known--;
            memmove(path, path + 1, (known + 1) * sizeof *path);
        } else {
            known = 0;
            path[0] = (int)(random_u32(&random_state) % PROGRAMS);
        }
        if (random_u32(&random_state) % 16 == 0) {
            int gone = (int)(random_u32(&random_state) % PROGRAMS);
            fx_unbind(b->bound[gone]);
            if (random_u32(&random_state) % 2)
                fx_engine_trim(b->engine, 0);
            bind(b, gone, 0);
        }
    }
    CHECK(runs < 20 || early);
    for (int i = 1; i < PROGRAMS; i++)
        fx_unbind(b->bound[i]);
    const int64_t bytes = fx_engine_bytes(b->engine);
    fx_engine_trim(b->engine, 0);
    CHECK(bytes - fx_engine_bytes(b->engine) >= PINNED_BYTES);
}

/* A program whose pinned weights lie over another's slots or pinned weights is refused, and both are as they were. */
static void clash(bench *b) {
    fx_bind_stats stats;
    fx_load *pinned = &b->f[1].pinned[0];
    const int64_t address = pinned->address;
    pinned->address = chain_start(0);
    CHECK(!fx_bind(b->engine, &b->f[1].program, NULL, &stats, &b->error) && b->error.status == FX_ERR_OVERLAP);
    pinned->address = b->f[0].pinned[0].address;
    CHECK(!fx_bind(b->engine, &b->f[1].program, NULL, &stats, &b->error) && b->error.status == FX_ERR_OVERLAP);
    pinned->address = address;
    good_run(b, 0, b->bound, 1);
}

/* The loader may have read ahead before the file changed, so the second run at the latest fails. */
static fx_status two_runs(bench *b) {
    fx_status status = run(b, 0, b->bound, 1);
    return status == FX_OK ? run(b, 0, b->bound, 1) : status;
}

static void faults(bench *b) {
    const chain *f = &b->f[0];
    const fx_load *victim = &f->program.loads[f->program.load_count / 2];
    void *good = (char *)f->weights + victim->file_offset;
    CHECK(pwrite(f->fd, "damaged", 7, victim->file_offset + 100) == 7);
    CHECK(two_runs(b) == FX_ERR_CHECKSUM);
    CHECK(b->error.is_load && !b->error.is_pinned && b->error.index == f->program.load_count / 2);
    CHECK(pwrite(f->fd, good, (size_t)victim->bytes, victim->file_offset) == victim->bytes);
    for (int i = 0; i < 3; i++)
        good_run(b, 0, b->bound, 1);

    CHECK(!ftruncate(f->fd, victim->file_offset + 9));
    CHECK(two_runs(b) == FX_ERR_EOF && b->error.file_offset == victim->file_offset + 9);
    CHECK(pwrite(f->fd, f->weights, (size_t)(SLICES * f->panel_bytes), 0) == SLICES * f->panel_bytes);
    for (int i = 0; i < 3; i++)
        good_run(b, 0, b->bound, 1);
}

/* Cancels runs; the loader is so slow that it happens while waiting. */
static void cancelled(bench *b) {
    int calls = 0;
    bind(b, 0, INT64_MAX);
    bind(b, 2, INT64_MAX);
    for (int i = 0; i < 2; i++) {
        fx_status status = fx_run(b->bound[0], (void *[]){b->x, b->y}, &b->bound[i * 2], 1,
                                  &(fx_interrupt){cancel_now, &calls}, &b->stats, &b->error);
        CHECK(status == FX_ERR_CANCELLED);
        good_run(b, 0, &b->bound[2], 1);
    }
}

/* One run of the program that spills, with a new input. */
static void spilled_run(bench *b, fx_bound *bound, fx_bound *next) {
    static float x[SPILLED_VALUES], zeros[SPILLED_VALUES], y[2][SPILLED_VALUES];
    for (int i = 0; i < SPILLED_VALUES; i++)
        x[i] = random_float();
    memset(y, 0xff, sizeof y);
    CHECK(fx_run(bound, (void *[]){x, zeros, y[0], y[1]}, &next, next != NULL, NULL, &b->stats, &b->error) == FX_OK);
    CHECK(!memcmp(x, y[0], sizeof x) && !memcmp(x, y[1], sizeof x));
    CHECK(b->stats.bytes_written == 2 * SPILLED_MAP_BYTES && b->stats.bytes_read == 2 * SPILLED_MAP_BYTES);
}

/* A program that spills, in turns with another, announced and not. Sometimes a run of it is cancelled. */
static void spills(bench *b, int runs) {
    spilled s;
    char name[] = "/tmp/flexnn-stress-XXXXXX";
    const int fd = mkstemp(name);
    CHECK(fd >= 0 && !unlink(name));
    spilled_make(&s, fd);
    fx_bind_stats stats;
    fx_bound *own = fx_bind(b->engine, &s.program, NULL, &stats, &b->error);
    CHECK(own && !stats.read);
    for (int i = 0; i < runs; i++) {
        fx_bound *next[] = {own, b->bound[0], NULL};
        spilled_run(b, own, next[random_u32(&random_state) % 3]);
        if (random_u32(&random_state) % 2)
            good_run(b, 0, next, 1);
        if (random_u32(&random_state) % 8 == 0) {
            int calls = 0;
            static float x[SPILLED_VALUES], y[2][SPILLED_VALUES];
            const fx_status status = fx_run(own, (void *[]){x, x, y[0], y[1]}, next, 1,
                                            &(fx_interrupt){cancel_now, &calls}, &b->stats, &b->error);
            CHECK(status == FX_OK || status == FX_ERR_CANCELLED);
        }
    }
    CHECK(fx_unbind(own) == FX_OK);
    close(fd);
}

/* group: steps that run at the same time. A slow loader is waited for, whatever the kernels: at the best level. */
static void stress(const fx_kernels *k, int threads, int group, int runs, uint32_t seed) {
    bench b = {.k = k};
    for (int i = 0; i < PROGRAMS; i++) {
        chain_make(&b.f[i], k, threads, group, i, &random_state);
        if (i) { /* of the same file */
            memcpy(b.f[i].weights, b.f[0].weights, (size_t)(SLICES * b.f[0].panel_bytes));
            memcpy(b.f[i].crcs, b.f[0].crcs, sizeof b.f[0].crcs);
            close(b.f[i].fd);
            b.f[i].fd = dup(b.f[0].fd);
            b.f[i].program.file = b.f[0].program.file;
        }
    }
    const size_t bytes = (size_t)b.f[0].map_bytes;
    b.x = malloc(bytes);
    b.y = malloc(bytes);
    b.expected = malloc(bytes);
    CHECK(b.x && b.y && b.expected);
    open_engine(&b, threads, seed, 0);
    one(&b, group, runs);
    several(&b, runs);
    spills(&b, runs);
    clash(&b);
    faults(&b);
    fx_engine_close(b.engine, NULL);

    if (k == fx_kernels_for(NULL)) {
        open_engine(&b, threads, 0, b.f[0].panel_bytes * 40);
        cancelled(&b);
        spills(&b, 2);
        fx_engine_close(b.engine, NULL);
    }

    for (int i = 0; i < PROGRAMS; i++)
        chain_free(&b.f[i]);
    free(b.x);
    free(b.y);
    free(b.expected);
}

int main(int argc, char **argv) {
    static const char *const levels[] = {
#define LEVEL(level) #level,
        FX_LEVELS(LEVEL)
#undef LEVEL
    };
    const int runs = argc > 1 ? atoi(argv[1]) : 200;
    const uint32_t seed = argc > 2 ? (uint32_t)atoi(argv[2]) : 1;
    const int most = argc > 3 ? atoi(argv[3]) : 4;
    if (runs < 2 || most < 1) {
        fprintf(stderr, "usage: flexnn-stress [runs [seed [threads]]]: 2 runs or more\n");
        return 2;
    }
    random_state = seed;
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        const fx_kernels *k = fx_kernels_for(levels[i]);
        if (!k)
            continue;
        for (int threads = 1; threads <= most; threads++) {
            stress(k, threads, 1, runs, seed + (uint32_t)threads);
            stress(k, threads, WINDOWS, runs / 2, seed + (uint32_t)threads);
            stress(k, threads, WINDOWS * PANELS, runs / 2, seed + (uint32_t)threads);
        }
        printf("%s: %d runs at 1 to %d threads, and faults: good\n", levels[i], runs, most);
    }
    return 0;
}
