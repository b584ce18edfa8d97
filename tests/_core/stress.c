/* Runs the engine without Python: a chain of convolutions whose weights stream through a few slots, with pauses of
 * random length and poisoned memory, at 1 to 4 threads, steps one by one and in groups; every output must equal, to the
 * bit, what the operators give one by one. Then a damaged file, a short one and a cancelled run, each followed by a
 * good run. For the sanitizers, and for targets that only an emulator runs here.   usage: flexnn-engine-stress [runs]
 * [seed] */
#include "crc32c.h"
#include "engine.h"
#include "flexnn/kernels.h"

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
};

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);                                  \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static uint32_t random_state = 1;

static uint32_t random_u32(void) {
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 8;
}

static float random_float(void) {
    return (float)(random_u32() % 2001) / 1000.0f - 1.0f;
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

/* Arena: two maps, zeros, scratch, slots, pinned panels. */
static void build(fixture *f, const fx_kernels *k, int threads, int group) {
    const fx_params params = conv();
    memset(f, 0, sizeof *f);
    f->panel_bytes = fx_op_panel_bytes(FX_OP_CONV, &params);
    f->map_bytes = SIDE * SIDE * CHANNELS * 4;
    const int64_t scratch_bytes = up(fx_op_scratch(k, FX_OP_CONV, FX_CONV_DIRECT, &params));
    const int64_t zeros_count = fx_op_zeros(FX_OP_CONV, &params);
    int64_t at = 0, maps[2], zeros, scratch, slots[SLOTS];
    for (int i = 0; i < 2; i++) {
        maps[i] = at;
        at = up(at + f->map_bytes);
    }
    zeros = at;
    at = up(at + zeros_count * 4);
    scratch = at;
    at += scratch_bytes * threads;
    for (int i = 0; i < SLOTS; i++) {
        slots[i] = at;
        at = up(at + f->panel_bytes);
    }

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
                          .weight = load.address,
                          .window = {.y0 = w ? SIDE / 2 : 0,
                                     .y1 = w ? SIDE : SIDE / 2,
                                     .c0 = panel * FX_NR,
                                     .c1 = (panel + 1) * FX_NR < CHANNELS ? (panel + 1) * FX_NR : CHANNELS}};
    }
    for (uint32_t i = 0; i < loads && i < SLOTS; i++) /* waits for the slot's last use in the run before */
        f->loads[i].wait_steps = last_step_of_slot[i] + 1 - STEPS;
    for (int i = 0; i < LAYERS; i++)
        f->nodes[i] =
            (fx_node){.op = FX_OP_CONV,
                      .kernel = FX_CONV_DIRECT,
                      .in = {{.base = i ? 0 : 1, .offset = i ? maps[i % 2] : 0}, {.base = -1}, {.base = -1}},
                      .out = {.base = i < LAYERS - 1 ? 0 : 2, .offset = i < LAYERS - 1 ? maps[(i + 1) % 2] : 0},
                      .scratch = scratch,
                      .scratch_bytes = scratch_bytes,
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
                              .zeros = zeros,
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
    void *scratch = aligned_alloc(64, (size_t)up(fx_op_scratch(k, FX_OP_CONV, FX_CONV_DIRECT, &params)) + 64);
    CHECK(maps[0] && maps[1] && zeros && scratch);
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
                        .scratch = scratch};
        CHECK(fx_op_run(&call, 1, 0, fx_op_units(k, FX_OP_CONV, FX_CONV_DIRECT, &params, call.window, 1)) == FX_OK);
    }
    free(maps[0]);
    free(maps[1]);
    free(zeros);
    free(scratch);
}

static int cancel_now(void *calls) {
    return ++*(int *)calls >= 1;
}

/* One run with new inputs, compared. */
static void good_run(fx_session *s, const fixture *f, const fx_kernels *k, float *x, float *y, float *expected) {
    fx_run_stats stats;
    fx_error error;
    int64_t streamed = 0;
    for (int64_t i = 0; i < f->map_bytes / 4; i++)
        x[i] = random_float();
    memset(y, 0xff, (size_t)f->map_bytes);
    reference(f, k, x, expected);
    CHECK(fx_session_run(s, (void *[]){x, y}, NULL, NULL, &stats, &error) == FX_OK);
    CHECK(!memcmp(y, expected, (size_t)f->map_bytes));
    for (uint32_t i = 0; i < f->program.load_count; i++)
        streamed += f->program.loads[i].bytes;
    CHECK(stats.bytes_read == streamed && stats.stall_ns <= stats.run_ns);
}

/* group: steps that run at the same time. */
static void stress(const fx_kernels *k, int threads, int group, int runs, uint32_t seed) {
    fixture f;
    build(&f, k, threads, group);
    float *x = malloc((size_t)f.map_bytes), *y = malloc((size_t)f.map_bytes), *expected = malloc((size_t)f.map_bytes);
    CHECK(x && y && expected);
    fx_options options = {.fd = f.fd,
                          .direct_fd = -1,
                          .threads = threads,
                          .isa = fx_kernels_level(k),
                          .poison = 1,
                          .jitter_seed = seed,
                          .trace = 1};
    fx_error error;
    fx_session *s = fx_session_open(&f.program, &options, &error);
    CHECK(s);
    CHECK(fx_session_bytes(s) >= f.program.arena_bytes && fx_session_threads(s) == threads);
    for (int i = 0; i < runs; i++)
        good_run(s, &f, k, x, y, expected);
    const fx_span *spans = fx_session_trace(s);
    for (int i = group; i < STEPS; i++)
        CHECK(spans[i].start_ns >= spans[i / group * group - 1].end_ns && spans[i].end_ns >= spans[i].start_ns);

    /* damaged: the loader may have read ahead before the damage, so the second run at the latest fails */
    const fx_load *victim = &f.program.loads[f.program.load_count / 2];
    void *good = (char *)f.weights + victim->file_offset;
    fx_run_stats stats;
    fx_status status = FX_OK;
    CHECK(pwrite(f.fd, "damaged", 7, victim->file_offset + 100) == 7);
    for (int i = 0; i < 2 && status == FX_OK; i++)
        status = fx_session_run(s, (void *[]){x, y}, NULL, NULL, &stats, &error);
    CHECK(status == FX_ERR_CHECKSUM && error.is_load && !error.is_pinned && error.index == f.program.load_count / 2);
    CHECK(pwrite(f.fd, good, (size_t)victim->bytes, victim->file_offset) == victim->bytes);
    for (int i = 0; i < 3; i++)
        good_run(s, &f, k, x, y, expected);

    /* truncated */
    status = FX_OK;
    CHECK(!ftruncate(f.fd, victim->file_offset + 9));
    for (int i = 0; i < 2 && status == FX_OK; i++)
        status = fx_session_run(s, (void *[]){x, y}, NULL, NULL, &stats, &error);
    CHECK(status == FX_ERR_EOF && error.file_offset == victim->file_offset + 9);
    CHECK(pwrite(f.fd, f.weights, (size_t)(SLICES * f.panel_bytes), 0) == SLICES * f.panel_bytes);
    for (int i = 0; i < 3; i++)
        good_run(s, &f, k, x, y, expected);
    fx_session_close(s);

    /* cancelled, with a loader so slow that it happens while waiting */
    options.read_bytes_per_second = f.panel_bytes * 40;
    options.jitter_seed = 0;
    s = fx_session_open(&f.program, &options, &error);
    CHECK(s);
    int calls = 0;
    CHECK(fx_session_run(s, (void *[]){x, y}, cancel_now, &calls, &stats, &error) == FX_ERR_CANCELLED);
    good_run(s, &f, k, x, y, expected);
    fx_session_close(s);

    free(x);
    free(y);
    free(expected);
    free(f.weights);
    close(f.fd);
}

int main(int argc, char **argv) {
    static const char *const levels[] = {"scalar", "neon", "avx2", "avx512"};
    const int runs = argc > 1 ? atoi(argv[1]) : 200;
    const uint32_t seed = argc > 2 ? (uint32_t)atoi(argv[2]) : 1;
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
