/* Runs the engine without Python: chains of convolutions whose weights stream through a few slots, several of them in
 * one arena, with pauses of random length and poisoned memory, at 1 to 4 threads, steps one by one and in groups; every
 * output must equal, to the bit, what the operators give one by one. Programs follow each other as announced, and not;
 * they come and go; then a damaged file, a short one and a cancelled run, each followed by a good run. For the
 * sanitizers, and for targets that only an emulator runs here.   usage: flexnn-engine-stress [runs] [seed] */
#include "flexnn/crc32c.h"
#include "flexnn/engine.h"
#include "flexnn/kernels.h"
#include "require.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LAYERS = 5,
    CHANNELS = 40, /* the last panel is not full */
    PANELS = 3,
    SIDE = 7,
    SLOTS = 3,
    SLICES = LAYERS * PANELS, /* one panel each */
    PINNED_EVERY = 4,
    WINDOWS = 2, /* in rows */
    STEPS = SLICES * WINDOWS,
    PROGRAMS = 3,
    REGION = 1 << 20, /* shared by the programs; what each pinned lies behind it */
    KEPT = 1 << 17,
};

/* Where in the region each program begins: the first two meet in part, the third is apart from them. */
static const int64_t region_at[PROGRAMS] = {0, 40 << 10, 512 << 10};

static uint32_t random_state = 1;

static float random_float(void) {
    return (float)(random_u32(&random_state) % 2001) / 1000.0f - 1.0f;
}

typedef struct fixture {
    fx_node nodes[LAYERS];
    fx_step steps[STEPS];
    fx_load pinned[SLICES], loads[SLICES];
    uint32_t crcs[SLICES], groups[STEPS];
    int64_t io_bytes[2];
    fx_program program;
    int64_t panel_bytes, map_bytes;
    float *weights;
    int fd;
} fixture;

static fx_params conv(void) {
    fx_params p;
    memset(&p, 0, sizeof p);
    p.conv = (fx_conv_params){.n = 1,
                              .h = SIDE,
                              .w = SIDE,
                              .cin = CHANNELS,
                              .oh = SIDE,
                              .ow = SIDE,
                              .cout = CHANNELS,
                              .kh = 3,
                              .kw = 3,
                              .sh = 1,
                              .sw = 1,
                              .dh = 1,
                              .dw = 1,
                              .pt = 1,
                              .pl = 1,
                              .group = 1,
                              .cin_panel = CHANNELS,
                              .cin_block = CHANNELS,
                              .nr = FX_NR,
                              .x_sn = SIDE * SIDE * CHANNELS,
                              .x_sh = SIDE * CHANNELS,
                              .x_sw = CHANNELS,
                              .y_sn = SIDE * SIDE * CHANNELS,
                              .y_sh = SIDE * CHANNELS,
                              .y_sw = CHANNELS,
                              .act = FX_ACT_RELU,
                              .tile_block = 1};
    return p;
}

static int64_t up(int64_t bytes) {
    return (bytes + 63) / 64 * 64;
}

/* Region: two maps, workspace, slots. Kept: zeros, pinned panels. */
static void build(fixture *f, const fx_kernels *k, int threads, int group, int number) {
    const fx_params params = conv();
    memset(f, 0, sizeof *f);
    f->panel_bytes = fx_op_panel_bytes(FX_OP_CONV, &params);
    f->map_bytes = SIDE * SIDE * CHANNELS * 4;
    const int64_t workspace_bytes = up(fx_op_workspace(k, FX_OP_CONV, FX_CONV_DIRECT, &params));
    const int64_t zeros_count = fx_op_zeros(FX_OP_CONV, &params);
    int64_t at = region_at[number], maps[2], zeros, workspace, slots[SLOTS];
    for (int i = 0; i < 2; i++) {
        maps[i] = at;
        at = up(at + f->map_bytes);
    }
    workspace = at;
    at += workspace_bytes * threads;
    for (int i = 0; i < SLOTS; i++) {
        slots[i] = at;
        at = up(at + f->panel_bytes);
    }
    CHECK(at <= REGION && (number < 2 ? at <= region_at[2] : 1));
    zeros = at = REGION + number * KEPT;
    at = up(at + zeros_count * 4);

    f->weights = malloc((size_t)(SLICES * f->panel_bytes));
    CHECK(f->weights);
    for (int64_t i = 0; i < SLICES * f->panel_bytes / 4; i++)
        f->weights[i] = random_float() * 0.2f;
    char name[] = "/tmp/flexnn-stress-XXXXXX";
    f->fd = mkstemp(name);
    CHECK(f->fd >= 0 && !unlink(name));
    CHECK(write(f->fd, f->weights, (size_t)(SLICES * f->panel_bytes)) == SLICES * f->panel_bytes);

    uint32_t pinned = 0, loads = 0;
    int last_step_of_slot[SLOTS], slices_of_slot[SLOTS];
    for (int i = 0; i < SLOTS; i++)
        last_step_of_slot[i] = slices_of_slot[i] = 0;
    for (int slice = 0; slice < SLICES; slice++) {
        const int layer = slice / PANELS, panel = slice % PANELS;
        fx_load load = {.file_offset = slice * f->panel_bytes,
                        .bytes = f->panel_bytes,
                        .chunk_bytes = f->panel_bytes,
                        .check_bytes = f->panel_bytes,
                        .crc_first = (uint32_t)slice};
        f->crcs[slice] = fx_crc32c(0, (char *)f->weights + load.file_offset, (size_t)f->panel_bytes);
        if (slice % PINNED_EVERY == 0) {
            load.address = at;
            at = up(at + f->panel_bytes);
            f->pinned[pinned++] = load;
        } else {
            int slot = (int)loads % SLOTS;
            load.address = slots[slot];
            load.wait_steps = slices_of_slot[slot]++ ? last_step_of_slot[slot] + 1 : INT32_MIN; /* mended below */
            last_step_of_slot[slot] = slice * WINDOWS + WINDOWS - 1;
            f->loads[loads++] = load;
        }
        for (int w = 0; w < WINDOWS; w++)
            f->steps[slice * WINDOWS + w] =
                (fx_step){.node = (uint32_t)layer,
                          .wait_loads = loads,
                          .panel_offset = load.address,
                          .window = {.y0 = w ? SIDE / 2 : 0,
                                     .y1 = w ? SIDE : SIDE / 2,
                                     .c0 = panel * FX_NR,
                                     .c1 = (panel + 1) * FX_NR < CHANNELS ? (panel + 1) * FX_NR : CHANNELS}};
    }
    for (uint32_t i = 0; i < loads && i < SLOTS; i++) /* waits for the slot's last use in the run before */
        f->loads[i].wait_steps = last_step_of_slot[i] + 1 - STEPS;
    CHECK(at <= REGION + (number + 1) * KEPT);
    for (int i = 0; i < LAYERS; i++)
        f->nodes[i] =
            (fx_node){.op = FX_OP_CONV,
                      .kernel = FX_CONV_DIRECT,
                      .in = {{.base = i ? 0 : 1, .offset = i ? maps[i % 2] : 0}, {.base = -1}, {.base = -1}},
                      .out = {.base = i < LAYERS - 1 ? 0 : 2, .offset = i < LAYERS - 1 ? maps[(i + 1) % 2] : 0},
                      .workspace_offset = workspace,
                      .workspace_bytes = workspace_bytes,
                      .params = params};
    for (int i = 0; i < STEPS / group; i++)
        f->groups[i] = (uint32_t)group;
    f->io_bytes[0] = f->io_bytes[1] = f->map_bytes;
    f->program = (fx_program){.nodes = f->nodes,
                              .node_count = LAYERS,
                              .steps = f->steps,
                              .step_count = STEPS,
                              .groups = f->groups,
                              .group_count = group > 1 ? (uint32_t)(STEPS / group) : 0,
                              .pinned = f->pinned,
                              .pinned_count = pinned,
                              .loads = f->loads,
                              .load_count = loads,
                              .crcs = f->crcs,
                              .crc_count = SLICES,
                              .arena_bytes = at,
                              .zeros_offset = zeros,
                              .zeros_count = zeros_count,
                              .io_bytes = f->io_bytes,
                              .input_count = 1,
                              .output_count = 1};
}

/* Operators one by one, whole, all weights at hand. */
static void reference(const fixture *f, const fx_kernels *k, const float *x, float *y) {
    const fx_params params = conv();
    float *maps[2] = {malloc((size_t)f->map_bytes), malloc((size_t)f->map_bytes)};
    float *zeros = calloc((size_t)fx_op_zeros(FX_OP_CONV, &params) + 1, 4);
    void *workspace = aligned_alloc(64, (size_t)up(fx_op_workspace(k, FX_OP_CONV, FX_CONV_DIRECT, &params)) + 64);
    CHECK(maps[0] && maps[1] && zeros && workspace);
    for (int i = 0; i < LAYERS; i++) {
        fx_call call = {.kernels = k,
                        .params = &params,
                        .op = FX_OP_CONV,
                        .kernel = FX_CONV_DIRECT,
                        .window = fx_op_full_window(FX_OP_CONV, &params),
                        .in = {i ? maps[i % 2] : x},
                        .out = i < LAYERS - 1 ? maps[(i + 1) % 2] : y,
                        .weight = f->weights + i * PANELS * f->panel_bytes / 4,
                        .zeros = zeros,
                        .workspace = workspace};
        CHECK(fx_op_run(&call, 1, 0, fx_op_units(k, FX_OP_CONV, FX_CONV_DIRECT, &params, call.window, 1)) == FX_OK);
    }
    free(maps[0]);
    free(maps[1]);
    free(zeros);
    free(workspace);
}

static int cancel_now(void *calls) {
    return ++*(int *)calls >= 1;
}

/* Programs in an engine, and what their runs need. */
typedef struct bench {
    const fx_kernels *k;
    fixture f[PROGRAMS];
    fx_engine *engine;
    fx_bound *bound[PROGRAMS];
    float *x, *y, *expected;
    fx_run_stats stats;
    fx_error error;
} bench;

static fx_status run(bench *b, int number, fx_bound *const *next, uint32_t count) {
    return fx_run(b->bound[number], (void *[]){b->x, b->y}, next, count, NULL, NULL, &b->stats, &b->error);
}

/* One run with new inputs, compared. */
static void good_run(bench *b, int number, fx_bound *const *next, uint32_t count) {
    const fixture *f = &b->f[number];
    int64_t streamed = 0;
    for (int64_t i = 0; i < f->map_bytes / 4; i++)
        b->x[i] = random_float();
    memset(b->y, 0xff, (size_t)f->map_bytes);
    reference(f, b->k, b->x, b->expected);
    CHECK(run(b, number, next, count) == FX_OK);
    CHECK(!memcmp(b->y, b->expected, (size_t)f->map_bytes));
    for (uint32_t i = 0; i < f->program.load_count; i++)
        streamed += f->program.loads[i].bytes;
    CHECK(b->stats.bytes_read == streamed && b->stats.stall_ns <= b->stats.run_ns);
}

static void bind(bench *b, int number, int64_t read_max) {
    fx_bind_stats stats;
    b->bound[number] = fx_bind(b->engine, &b->f[number].program, NULL, NULL, &stats, &b->error);
    CHECK(b->bound[number] && stats.read <= read_max);
}

static void open_engine(bench *b, int threads, uint32_t seed, int64_t read_bytes_per_second) {
    fx_options options = {.fd = b->f[0].fd,
                          .direct_fd = -1,
                          .threads = threads,
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
    const fixture *f = &b->f[0];
    bind(b, 0, INT64_MAX);
    CHECK(fx_engine_bytes(b->engine) >= f->program.arena_bytes);
    for (int i = 0; i < runs; i++)
        good_run(b, 0, b->bound, 1);
    const fx_span *spans = fx_trace(b->bound[0]);
    for (int i = group; i < STEPS; i++)
        CHECK(spans[i].start_ns >= spans[i / group * group - 1].end_ns && spans[i].end_ns >= spans[i].start_ns);
}

/* Several in turns, up to three of them announced: mostly as announced, sometimes another, sometimes none is; at times
 * one leaves and comes back without reading its pinned weights. */
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
    CHECK(bytes - fx_engine_bytes(b->engine) >= KEPT);
}

/* Over the pinned weights of one lies the region of another: refused, and both as they were. */
static void clash(bench *b) {
    fx_bind_stats stats;
    fx_load *pinned = &b->f[1].pinned[0];
    const int64_t address = pinned->address;
    pinned->address = region_at[0];
    CHECK(!fx_bind(b->engine, &b->f[1].program, NULL, NULL, &stats, &b->error) && b->error.status == FX_ERR_OVERLAP);
    pinned->address = b->f[0].pinned[0].address;
    CHECK(!fx_bind(b->engine, &b->f[1].program, NULL, NULL, &stats, &b->error) && b->error.status == FX_ERR_OVERLAP);
    pinned->address = address;
    good_run(b, 0, b->bound, 1);
}

/* The loader may have read ahead before the file changed, so the second run at the latest fails. */
static fx_status two_runs(bench *b) {
    fx_status status = run(b, 0, b->bound, 1);
    return status == FX_OK ? run(b, 0, b->bound, 1) : status;
}

static void faults(bench *b) {
    const fixture *f = &b->f[0];
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

/* With a loader so slow that it happens while waiting. */
static void cancelled(bench *b) {
    int calls = 0;
    bind(b, 0, INT64_MAX);
    bind(b, 2, INT64_MAX);
    for (int i = 0; i < 2; i++) {
        fx_status status =
            fx_run(b->bound[0], (void *[]){b->x, b->y}, &b->bound[i * 2], 1, cancel_now, &calls, &b->stats, &b->error);
        CHECK(status == FX_ERR_CANCELLED);
        good_run(b, 0, &b->bound[2], 1);
    }
}

/* group: steps that run at the same time. */
static void stress(const fx_kernels *k, int threads, int group, int runs, uint32_t seed) {
    bench b = {.k = k};
    for (int i = 0; i < PROGRAMS; i++) {
        build(&b.f[i], k, threads, group, i);
        if (i) { /* of the same file */
            memcpy(b.f[i].weights, b.f[0].weights, (size_t)(SLICES * b.f[0].panel_bytes));
            memcpy(b.f[i].crcs, b.f[0].crcs, sizeof b.f[0].crcs);
            close(b.f[i].fd);
            b.f[i].fd = b.f[0].fd;
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
    clash(&b);
    faults(&b);
    fx_engine_close(b.engine);

    open_engine(&b, threads, 0, b.f[0].panel_bytes * 40);
    cancelled(&b);
    fx_engine_close(b.engine);

    for (int i = 0; i < PROGRAMS; i++)
        free(b.f[i].weights);
    free(b.x);
    free(b.y);
    free(b.expected);
    close(b.f[0].fd);
}

int main(int argc, char **argv) {
    static const char *const levels[] = {
#define LEVEL(level) #level,
        FX_LEVELS(LEVEL)
#undef LEVEL
    };
    const int runs = argc > 1 ? atoi(argv[1]) : 200;
    const uint32_t seed = argc > 2 ? (uint32_t)atoi(argv[2]) : 1;
    if (runs < 2) {
        fprintf(stderr, "usage: flexnn-engine-stress [runs [seed]]: 2 runs or more\n");
        return 2;
    }
    random_state = seed;
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        const fx_kernels *k = fx_kernels_for(levels[i]);
        if (!k)
            continue;
        for (int threads = 1; threads <= 4; threads++) {
            stress(k, threads, 1, runs, seed + (uint32_t)threads);
            stress(k, threads, WINDOWS, runs / 2, seed + (uint32_t)threads);
            stress(k, threads, WINDOWS * PANELS, runs / 2, seed + (uint32_t)threads);
        }
        printf("%s: %d runs at 1 to 4 threads, and faults: good\n", levels[i], runs);
    }
    return 0;
}
