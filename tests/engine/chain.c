#include "chain.h"
#include "conv.h"
#include "flexnn/crc32c.h"
#include "require.h"

#include <string.h>
#include <unistd.h>

int64_t chain_start(int number) {
    static const int64_t starts[PROGRAMS] = {0, CHAIN_KERNEL == 1 ? 12 << 10 : 40 << 10, 512 << 10};
    return starts[number];
}

static int64_t up(int64_t bytes) {
    return (bytes + 63) / 64 * 64;
}

/* Shared: two maps, workspace, slots. Behind: zeros, pinned panels. */
static void lay_out(chain *c, int64_t workspace_bytes, int64_t zeros_bytes, int number) {
    int64_t at = chain_start(number);
    for (int i = 0; i < 2; i++) {
        c->maps[i] = at;
        at = up(at + c->map_bytes);
    }
    c->workspace = at;
    at += workspace_bytes;
    for (int i = 0; i < SLOTS; i++) {
        c->slots[i] = at;
        at = up(at + c->panel_bytes);
    }
    CHECK(at <= SHARED_BYTES && (number < 2 ? at <= chain_start(2) : 1));
    c->zeros = SHARED_BYTES + number * PINNED_BYTES;
    c->end = up(c->zeros + zeros_bytes);
}

static void write_weights(chain *c, uint32_t *seed) {
    const size_t bytes = (size_t)(SLICES * c->panel_bytes);
    c->weights = malloc(bytes);
    CHECK(c->weights);
    for (size_t i = 0; i < bytes / 4; i++)
        c->weights[i] = ((float)(random_u32(seed) % 2001) / 1000.0f - 1.0f) * 0.2f;
    char name[] = "/tmp/flexnn-chain-XXXXXX";
    c->fd = mkstemp(name);
    CHECK(c->fd >= 0 && !unlink(name) && write(c->fd, c->weights, bytes) == (ssize_t)bytes);
}

static fx_step step_of(int slice, int window, uint32_t wait_loads, int64_t panel_offset) {
    const int panel = slice % PANELS, end = (panel + 1) * FX_NR;
    return (fx_step){.node = (uint32_t)(slice / PANELS),
                     .wait_loads = wait_loads,
                     .panel_offset = panel_offset,
                     .window = {.y0 = window ? SIDE / 2 : 0,
                                .y1 = window ? SIDE : SIDE / 2,
                                .c0 = panel * FX_NR,
                                .c1 = end < CHANNELS ? end : CHANNELS}};
}

/* Loads and steps, slice after slice. */
static void make_slices(chain *c) {
    fx_program *p = &c->program;
    int last_step[SLOTS] = {0};
    for (int slice = 0; slice < SLICES; slice++) {
        fx_load load = {.file_offset = slice * c->panel_bytes,
                        .bytes = c->panel_bytes,
                        .chunk_bytes = c->panel_bytes,
                        .check_bytes = c->panel_bytes,
                        .crc_first = (uint32_t)slice};
        c->crcs[slice] = fx_crc32c(0, (char *)c->weights + load.file_offset, (size_t)c->panel_bytes);
        if (slice % PINNED_EVERY == 0) {
            load.address = c->end;
            c->end = up(c->end + c->panel_bytes);
            c->pinned[p->pinned_count++] = load;
        } else {
            const int slot = (int)p->load_count % SLOTS;
            load.address = c->slots[slot];
            load.wait_steps = last_step[slot] + 1;
            last_step[slot] = slice * WINDOWS + WINDOWS - 1;
            c->loads[p->load_count++] = load;
        }
        for (int w = 0; w < WINDOWS; w++)
            c->steps[slice * WINDOWS + w] = step_of(slice, w, p->load_count, load.address);
    }
    for (uint32_t i = 0; i < SLOTS; i++) /* waits for the slot's last use in the run before */
        c->loads[i].wait_steps = last_step[i] + 1 - STEPS;
}

void chain_make(chain *c, const fx_kernels *k, int threads, int group, int number, uint32_t *seed) {
    const fx_params params = conv_params(SIDE, CHANNELS, CHAIN_KERNEL);
    const int64_t workspace_bytes = up(fx_op_workspace(k, FX_OP_CONV, FX_CONV_DIRECT, &params));
    memset(c, 0, sizeof *c);
    c->panel_bytes = fx_op_panel_bytes(FX_OP_CONV, &params);
    c->map_bytes = c->io_bytes[0] = c->io_bytes[1] = SIDE * SIDE * CHANNELS * 4;
    c->program = (fx_program){.nodes = c->nodes,
                              .node_count = NODES,
                              .steps = c->steps,
                              .step_count = STEPS,
                              .groups = c->groups,
                              .group_count = group > 1 ? (uint32_t)(STEPS / group) : 0,
                              .pinned = c->pinned,
                              .loads = c->loads,
                              .crcs = c->crcs,
                              .crc_count = SLICES,
                              .zeros_count = fx_op_zeros(FX_OP_CONV, &params),
                              .io_bytes = c->io_bytes,
                              .input_count = 1,
                              .output_count = 1};
    lay_out(c, workspace_bytes * threads, c->program.zeros_count * 4, number);
    write_weights(c, seed);
    make_slices(c);
    CHECK(c->end <= SHARED_BYTES + (number + 1) * PINNED_BYTES);
    for (int i = 0; i < NODES; i++)
        c->nodes[i] =
            (fx_node){.op = FX_OP_CONV,
                      .kernel = FX_CONV_DIRECT,
                      .in = {{.base = i ? 0 : 1, .offset = i ? c->maps[i % 2] : 0}, {.base = -1}, {.base = -1}},
                      .out = {.base = i < NODES - 1 ? 0 : 2, .offset = i < NODES - 1 ? c->maps[(i + 1) % 2] : 0},
                      .workspace_offset = c->workspace,
                      .workspace_bytes = workspace_bytes,
                      .params = params};
    for (int i = 0; i < STEPS / group; i++)
        c->groups[i] = (uint32_t)group;
    c->program.arena_bytes = c->end;
    c->program.zeros_offset = c->zeros;
}

void chain_free(chain *c) {
    free(c->weights);
    close(c->fd);
}

void chain_exchange_maps(const chain *c, fx_node nodes[NODES]) {
    for (int i = 0; i < NODES; i++) {
        fx_place *in = &nodes[i].in[0], *out = &nodes[i].out;
        in->offset = in->base ? 0 : c->maps[in->offset == c->maps[0]];
        out->offset = out->base ? 0 : c->maps[out->offset == c->maps[0]];
    }
}

void chain_reference(const chain *c, const fx_kernels *k, const float *x, float *y) {
    const fx_params params = conv_params(SIDE, CHANNELS, CHAIN_KERNEL);
    float *maps[2] = {malloc((size_t)c->map_bytes), malloc((size_t)c->map_bytes)};
    float *zeros = calloc((size_t)fx_op_zeros(FX_OP_CONV, &params) + 1, 4);
    void *workspace = aligned_alloc(64, (size_t)up(fx_op_workspace(k, FX_OP_CONV, FX_CONV_DIRECT, &params)) + 64);
    CHECK(maps[0] && maps[1] && zeros && workspace);
    for (int i = 0; i < NODES; i++) {
        fx_call call = {.kernels = k,
                        .params = &params,
                        .op = FX_OP_CONV,
                        .kernel = FX_CONV_DIRECT,
                        .window = fx_op_full_window(FX_OP_CONV, &params),
                        .in = {i ? maps[i % 2] : x},
                        .out = i < NODES - 1 ? maps[(i + 1) % 2] : y,
                        .weight = c->weights + i * PANELS * c->panel_bytes / 4,
                        .zeros = zeros,
                        .workspace = workspace};
        CHECK(fx_op_run(&call, 1, 0, fx_op_units(k, FX_OP_CONV, FX_CONV_DIRECT, &params, call.window, 1)) == FX_OK);
    }
    free(maps[0]);
    free(maps[1]);
    free(zeros);
    free(workspace);
}
