/* Fuzz target: programs. A good one, with a number of its fields changed, is refused or safe: whatever the check takes
 * is played in random order, and no load in flight may touch what a step in flight touches, nothing lies outside the
 * arena and the buffers, and every order comes to the end. */
#include "../engine/conv.h"
#include "../engine/require.h"
#include "flexnn/engine.h"
#include "flexnn/kernels.h"
#include "input.h"

enum { NODES = 3, CHANNELS = 32, PANELS = 2, STEPS = NODES * PANELS, LOADS = 4, THREADS = 2, ROUNDS = 3 };

typedef struct subject {
    fx_node nodes[NODES];
    fx_step steps[STEPS];
    fx_load pinned[STEPS - LOADS], loads[LOADS];
    uint32_t groups[STEPS], crcs[STEPS];
    int64_t io_bytes[2];
    fx_program program;
} subject;

static int64_t up(int64_t bytes) {
    return (bytes + 63) / 64 * 64;
}

/* Two maps, two slots for streamed panels, workspace, zeros, two pinned panels. Step i computes panel i; loads stream
 * the panels of the first two nodes, each into the slot that the load before the last had. */
static void make(subject *s, const fx_kernels *k, int group) {
    const fx_params params = conv_params(2, CHANNELS, 1);
    const int64_t panel = fx_op_panel_bytes(FX_OP_CONV, &params), map = 4 * CHANNELS * 4;
    const int64_t workspace_bytes = up(fx_op_workspace(k, FX_OP_CONV, FX_CONV_DIRECT, &params));
    const int64_t zeros = fx_op_zeros(FX_OP_CONV, &params), slots = 2 * up(map), workspace = slots + 2 * up(panel);
    const int64_t zeros_at = workspace + THREADS * workspace_bytes, pinned = zeros_at + up(4 * zeros);
    memset(s, 0, sizeof *s);
    for (int i = 0; i < STEPS; i++) {
        fx_load load = {.file_offset = i * panel,
                        .bytes = panel,
                        .chunk_bytes = panel,
                        .check_bytes = panel,
                        .crc_first = (uint32_t)i,
                        .address = i < LOADS ? slots + i % 2 * up(panel) : pinned + (i - LOADS) * up(panel),
                        .wait_steps = i < 2 ? i + 3 - STEPS : i - 1};
        if (i >= LOADS)
            load.wait_steps = 0;
        *(i < LOADS ? &s->loads[i] : &s->pinned[i - LOADS]) = load;
        s->steps[i] = (fx_step){.node = (uint32_t)(i / PANELS),
                                .wait_loads = (uint32_t)(i < LOADS ? i + 1 : LOADS),
                                .panel_offset = load.address,
                                .window = {.y1 = 2, .c0 = i % PANELS * FX_NR, .c1 = (i % PANELS + 1) * FX_NR}};
        s->groups[i] = (uint32_t)group;
    }
    for (int i = 0; i < NODES; i++)
        s->nodes[i] = (fx_node){
            .op = FX_OP_CONV,
            .kernel = FX_CONV_DIRECT,
            .in = {{.base = i ? 0 : 1, .offset = i ? (i - 1) * up(map) : 0}, {.base = -1}, {.base = -1}, {.base = -1}},
            .out = {.base = i < NODES - 1 ? 0 : 2, .offset = i < NODES - 1 ? i * up(map) : 0},
            .workspace_offset = workspace,
            .workspace_bytes = workspace_bytes,
            .params = params};
    s->io_bytes[0] = s->io_bytes[1] = map;
    s->program = (fx_program){.nodes = s->nodes,
                              .node_count = NODES,
                              .steps = s->steps,
                              .step_count = STEPS,
                              .groups = s->groups,
                              .group_count = group > 1 ? (uint32_t)(STEPS / group) : 0,
                              .pinned = s->pinned,
                              .pinned_count = STEPS - LOADS,
                              .loads = s->loads,
                              .load_count = LOADS,
                              .crcs = s->crcs,
                              .crc_count = STEPS,
                              .arena_bytes = pinned + (STEPS - LOADS) * up(panel),
                              .zeros_offset = zeros_at,
                              .zeros_count = zeros,
                              .io_bytes = s->io_bytes,
                              .input_count = 1,
                              .output_count = 1};
}

/* Changes fields of records, counts (never above what there is) and sizes. */
static void change(subject *s, input *in) {
    fx_program *p = &s->program;
    const table tables[] = {{s->nodes, sizeof *s->nodes, NODES},      {s->steps, sizeof *s->steps, STEPS},
                            {s->loads, sizeof *s->loads, LOADS},      {s->pinned, sizeof *s->pinned, STEPS - LOADS},
                            {s->groups, sizeof *s->groups, STEPS},    {s->io_bytes, sizeof *s->io_bytes, 2},
                            {&p->arena_bytes, sizeof(int64_t) * 3, 1}};
    for (size_t edits = take_below(in, 4); edits; edits--)
        edit(in, tables, sizeof tables / sizeof *tables);
    if (!take_below(in, 8))
        switch (take_below(in, 5)) {
        case 0:
            p->node_count = (uint32_t)take_below(in, NODES + 1);
            break;
        case 1:
            p->step_count = (uint32_t)take_below(in, STEPS + 1);
            break;
        case 2:
            p->load_count = (uint32_t)take_below(in, LOADS + 1);
            break;
        case 3:
            p->group_count = (uint32_t)take_below(in, STEPS + 1);
            break;
        default:
            p->crc_count = (uint32_t)take_below(in, STEPS + 1);
        }
}

typedef struct range {
    int64_t lo, hi;
} range;

static int meet(range a, range b) {
    return a.lo < a.hi && b.lo < b.hi && a.lo < b.hi && b.lo < a.hi;
}

static void require_inside(const fx_program *p, range r) {
    CHECK(r.lo >= 0 && r.lo <= r.hi && r.hi <= p->arena_bytes);
}

enum { PARTS = FX_MAX_INPUTS + 3 };

/* What a step touches of the arena: operands, workspaces of all threads, panels. */
static void touched(const fx_program *p, uint32_t step, range *parts) {
    const fx_step *s = &p->steps[step];
    const fx_node *n = &p->nodes[s->node];
    for (int i = 0; i <= FX_MAX_INPUTS; i++) {
        const fx_place *o = i == FX_OUTPUT ? &n->out : &n->in[i];
        int64_t lo, hi;
        fx_op_extent(n->op, &n->params, i, &lo, &hi);
        parts[i] = (range){0, 0};
        if (o->base == FX_BASE_ARENA)
            parts[i] = (range){o->offset + lo, o->offset + hi};
        else if (o->base > 0)
            CHECK(o->offset + lo >= 0 && o->offset + hi <= p->io_bytes[o->base - 1]);
    }
    const int64_t panel = fx_op_panel_bytes(n->op, &n->params);
    const int64_t panels = (s->window.c1 + FX_NR - 1) / FX_NR - s->window.c0 / FX_NR;
    parts[FX_MAX_INPUTS + 1] = n->workspace_bytes
                                   ? (range){n->workspace_offset, n->workspace_offset + THREADS * n->workspace_bytes}
                                   : (range){0, 0};
    parts[FX_MAX_INPUTS + 2] = panel ? (range){s->panel_offset, s->panel_offset + panels * panel} : (range){0, 0};
    for (int i = 0; i < PARTS; i++)
        require_inside(p, parts[i]);
}

static void require_apart(const fx_program *p, int64_t load, int64_t first, int64_t count) {
    const fx_load *l = &p->loads[load % p->load_count];
    for (int64_t i = first; i < first + count; i++) {
        range parts[PARTS];
        touched(p, (uint32_t)(i % p->step_count), parts);
        for (int j = 0; j < PARTS; j++)
            CHECK(!meet(parts[j], (range){l->address, l->address + l->bytes}));
    }
}

/* Steps of the group that begins with step `done` of all runs; 0 past the last. */
static int64_t group_size(const fx_program *p, int64_t done, int64_t steps) {
    if (done == steps)
        return 0;
    int64_t at = done % p->step_count, group = 0;
    if (!p->group_count)
        return 1;
    while (at > 0)
        at -= p->groups[group++];
    CHECK(at == 0);
    return p->groups[group];
}

/* Whether the next group may begin. */
static int group_begins(const fx_program *p, int64_t done, int64_t count, int64_t loads_done) {
    for (int64_t i = done; i < done + count; i++)
        if (loads_done < i / p->step_count * p->load_count + p->steps[i % p->step_count].wait_loads)
            return 0;
    return count > 0;
}

/* Plays some runs in an order that the input chooses. */
static void play(const fx_program *p, input *in) {
    const int64_t steps = ROUNDS * (int64_t)p->step_count, loads = ROUNDS * (int64_t)p->load_count;
    int64_t steps_done = 0, loads_done = 0, in_flight = 0;
    int loading = 0;
    while (steps_done < steps || loads_done < loads) {
        const int64_t count = group_size(p, steps_done, steps);
        const int may_load =
            !loading && loads_done < loads &&
            steps_done >= loads_done / p->load_count * p->step_count + p->loads[loads_done % p->load_count].wait_steps;
        const int may_step = !in_flight && group_begins(p, steps_done, count, loads_done);
        CHECK(may_load || may_step || loading || in_flight); /* else it stands still */
        switch (take_byte(in) % 4) {
        case 0:
            loading |= may_load;
            break;
        case 1:
            in_flight = may_step ? count : in_flight;
            break;
        case 2:
            loads_done += loading;
            loading = 0;
            break;
        default:
            steps_done += in_flight;
            in_flight = 0;
        }
        if (in->at >= in->size) { /* nothing is left to choose: all that may begin does, then all ends */
            loading |= may_load;
            in_flight = !in_flight && may_step ? count : in_flight;
        }
        if (loading && in_flight)
            require_apart(p, loads_done, steps_done, in_flight);
        if (in->at >= in->size) {
            loads_done += loading;
            steps_done += in_flight;
            loading = 0;
            in_flight = 0;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static subject good[2]; /* with steps one by one, and in groups */
    static const fx_kernels *k;
    input in = {data, size, 0};
    if (!k) {
        fx_error error;
        k = fx_kernels_for("scalar");
        for (int i = 0; i < 2; i++) {
            make(&good[i], k, i + 1);
            CHECK(fx_program_check(&good[i].program, THREADS, k, &error) == FX_OK);
        }
    }
    const int group = take_byte(&in) & 1;
    subject *s = malloc(sizeof *s);
    CHECK(s);
    memcpy(s, &good[group], sizeof *s);
    s->program.nodes = s->nodes;
    s->program.steps = s->steps;
    s->program.groups = s->groups;
    s->program.pinned = s->pinned;
    s->program.loads = s->loads;
    s->program.crcs = s->crcs;
    s->program.io_bytes = s->io_bytes;
    change(s, &in);
    fx_error error;
    const fx_status status = fx_program_check(&s->program, THREADS, k, &error);
    CHECK(status >= FX_OK && status < FX_STATUS_COUNT && (status == FX_OK || error.status == status));
    if (status == FX_OK)
        play(&s->program, &in);
    free(s);
    return 0;
}
