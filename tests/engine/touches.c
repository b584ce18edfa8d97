/* Ranges of the arena that a program touches, against a map of every byte.
 * usage: flexnn-touches [programs] */
#include "touches.h"
#include "overlaps.h"
#include "require.h"
#include "state.h"

#include <string.h>

enum { BYTES = 4096, NODES = 6, STEPS = 12, LOADS = 4, GRAIN = 64 };

typedef struct random_program {
    fx_node nodes[NODES];
    fx_step steps[STEPS];
    fx_load pinned[LOADS], loads[LOADS];
    fx_program program;
} random_program;

static uint32_t random_state = 1;

static int64_t below(int64_t n) {
    return (int64_t)(random_u32(&random_state) % (uint32_t)n);
}

/* Copies of 1 to 16 floats at random places. */
static void make(random_program *r) {
    memset(r, 0, sizeof *r);
    for (int i = 0; i < NODES; i++) {
        fx_copy_params *copy = &r->nodes[i].params.copy;
        *copy = (fx_copy_params){.elem_bytes = 4, .d0 = 1, .d1 = 1, .d2 = 1, .d3 = 1, .d4 = 1};
        copy->d5 = (int32_t)(1 + below(16));
        copy->xs5 = copy->ys5 = 1;
        r->nodes[i].op = FX_OP_COPY;
        r->nodes[i].in[0] = (fx_place){.base = below(4) ? FX_BASE_ARENA : 1, .offset = GRAIN * below(BYTES / GRAIN)};
        for (int j = 1; j < FX_MAX_INPUTS; j++)
            r->nodes[i].in[j].base = -1;
        r->nodes[i].out = (fx_place){.base = below(4) ? FX_BASE_ARENA : 2, .offset = GRAIN * below(BYTES / GRAIN)};
        r->nodes[i].workspace_bytes = below(2) * GRAIN;
        r->nodes[i].workspace_offset = GRAIN * below(BYTES / GRAIN - 2);
    }
    for (int i = 0; i < STEPS; i++)
        r->steps[i] = (fx_step){.node = (uint32_t)below(NODES), .panel_offset = -1};
    for (int i = 0; i < LOADS; i++) {
        r->pinned[i] = (fx_load){.address = GRAIN * below(BYTES / GRAIN - 1), .bytes = 1 + below(GRAIN)};
        r->loads[i] = (fx_load){.address = GRAIN * below(BYTES / GRAIN - 1), .bytes = 1 + below(GRAIN)};
    }
    r->program = (fx_program){.nodes = r->nodes,
                              .node_count = NODES,
                              .steps = r->steps,
                              .step_count = (uint32_t)below(STEPS + 1),
                              .pinned = r->pinned,
                              .pinned_count = (uint32_t)below(LOADS + 1),
                              .loads = r->loads,
                              .load_count = (uint32_t)below(LOADS + 1),
                              .arena_bytes = BYTES,
                              .zeros_offset = GRAIN * below(BYTES / GRAIN - 1),
                              .zeros_count = below(GRAIN / 4)};
}

typedef struct map {
    uint32_t steps[BYTES]; /* that must be done before something else may write the byte */
    char is_written[BYTES], is_pinned[BYTES];
} map;

static void mark(map *m, int64_t low, int64_t high, uint32_t steps, int is_written) {
    for (int64_t i = low; i < high; i++) {
        m->steps[i] = steps > m->steps[i] ? steps : m->steps[i];
        m->is_written[i] |= (char)is_written;
    }
}

static void map_of(const random_program *r, int threads, map *m) {
    const fx_program *p = &r->program;
    memset(m, 0, sizeof *m);
    for (uint32_t i = 0; i < p->step_count; i++) {
        const fx_node *node = &p->nodes[p->steps[i].node];
        const int64_t bytes = 4 * node->params.copy.d5;
        if (node->in[0].base == FX_BASE_ARENA)
            mark(m, node->in[0].offset, node->in[0].offset + bytes, i + 1, 0);
        if (node->out.base == FX_BASE_ARENA)
            mark(m, node->out.offset, node->out.offset + bytes, i + 1, 1);
        mark(m, node->workspace_offset, node->workspace_offset + threads * node->workspace_bytes, i + 1, 1);
    }
    for (uint32_t i = 0; i < p->load_count; i++)
        mark(m, p->loads[i].address, p->loads[i].address + p->loads[i].bytes, 0, 1);
    for (uint32_t i = 0; i < p->pinned_count; i++)
        memset(m->is_pinned + p->pinned[i].address, 1, (size_t)p->pinned[i].bytes);
    memset(m->is_pinned + p->zeros_offset, 1, (size_t)(4 * p->zeros_count));
}

/* Whether ordered, disjoint ranges are exactly the marked bytes. */
static void same(const fx_range *ranges, int64_t count, const char *marked) {
    char found[BYTES] = {0};
    for (int64_t i = 0; i < count; i++) {
        CHECK(ranges[i].lo < ranges[i].hi && (!i || ranges[i - 1].hi < ranges[i].lo));
        memset(found + ranges[i].lo, 1, (size_t)(ranges[i].hi - ranges[i].lo));
    }
    CHECK(!memcmp(found, marked, BYTES));
}

static void check_program(void) {
    fx_poll nobody = {0};
    random_program r;
    fx_touches t;
    map m;
    const int threads = 1 + (int)below(2);
    make(&r);
    map_of(&r, threads, &m);
    CHECK(fx_touches_make(&t, &r.program, threads, &nobody) == FX_OK);
    same(t.writes, t.write_count, m.is_written);
    same(t.pinned, t.pinned_count, m.is_pinned);
    for (int i = 0; i < 200; i++) {
        const int64_t low = below(BYTES), high = low + 1 + below(BYTES - low);
        uint32_t steps = 0;
        for (int64_t j = low; j < high; j++)
            steps = m.steps[j] > steps ? m.steps[j] : steps;
        CHECK(fx_touches_until(&t, (fx_range){low, high}) == steps);
    }
    for (int64_t i = 1; i < t.used_count; i++)
        CHECK(t.used[i - 1].range.hi <= t.used[i].range.lo);
    fx_touches_free(&t);
    CHECK(!t.used && !t.writes && !t.pinned && !t.bytes);
}

static int64_t random_ranges(fx_range *ranges, char *marked) {
    int64_t count = 0;
    memset(marked, 0, BYTES);
    for (int64_t at = below(40); count < 20 && at < BYTES - 40; at += 1 + below(400)) {
        const int64_t bytes = 1 + below(30);
        ranges[count++] = (fx_range){at, at + bytes};
        memset(marked + at, 1, (size_t)bytes);
        at += bytes;
    }
    return count;
}

static void check_lists(void) {
    fx_range a[20], b[20];
    char in_a[BYTES], in_b[BYTES];
    const int64_t a_count = random_ranges(a, in_a), b_count = random_ranges(b, in_b);
    int meet = 0;
    for (int i = 0; i < BYTES; i++)
        meet |= in_a[i] & in_b[i];
    CHECK(fx_lists_meet(a, a_count, b, b_count) == meet && fx_lists_meet(b, b_count, a, a_count) == meet);
    CHECK(!fx_lists_meet(a, 0, b, b_count));
    for (int i = 0; i < 50; i++) {
        const fx_range range = {below(BYTES), below(BYTES)};
        CHECK(fx_list_meets(a, a_count, range) == fx_lists_meet(a, a_count, &range, range.lo < range.hi));
    }
}

static int cancels(void *arg) {
    int *left = arg;
    return !left || (*left)-- == 0;
}

/* Whoever checks a program is asked at its nodes, then at its steps. */
static void check_cancelled(void) {
    fx_node node = {.op = FX_OP_COPY, .out = {.base = FX_BASE_ARENA, .offset = 64}};
    node.params.copy =
        (fx_copy_params){.elem_bytes = 4, .d0 = 1, .d1 = 1, .d2 = 1, .d3 = 1, .d4 = 1, .d5 = 16, .xs5 = 1, .ys5 = 1};
    for (int i = 1; i < FX_MAX_INPUTS; i++)
        node.in[i].base = -1;
    const fx_step step = {0};
    const fx_program p = {.nodes = &node, .node_count = 1, .steps = &step, .step_count = 1, .arena_bytes = 128};
    fx_error error;
    for (int left = 0; left < 2; left++) {
        int asked = left;
        fx_poll poll = fx_poll_start_every(&(fx_interrupt){.is_wanted = cancels, .arg = &asked}, 0);
        CHECK(fx_program_check_asking(&p, 1, fx_kernels_for(NULL), &poll, &error) == FX_ERR_CANCELLED);
        CHECK(asked == -1);
    }
}

/* A program of many nodes and pinned weights is checked in little time: not each node with each weight. */
static void check_many(void) {
    enum { MANY = 40000 };
    random_program r;
    make(&r);
    fx_node *nodes = calloc(MANY, sizeof *nodes);
    fx_load *pinned = calloc(MANY, sizeof *pinned), load = {.address = BYTES - GRAIN, .bytes = GRAIN};
    fx_step step = {.wait_loads = 1};
    CHECK(nodes && pinned);
    for (int i = 0; i < MANY; i++) {
        nodes[i] = r.nodes[0];
        nodes[i].in[0] = (fx_place){.base = FX_BASE_ARENA, .offset = 0};
        nodes[i].out = (fx_place){.base = FX_BASE_ARENA, .offset = 64};
        nodes[i].workspace_bytes = 0;
        pinned[i] = (fx_load){.address = BYTES + GRAIN * (int64_t)i, .bytes = GRAIN};
    }
    fx_error error;
    fx_program p = {.nodes = nodes,
                    .node_count = MANY,
                    .pinned = pinned,
                    .pinned_count = MANY,
                    .loads = &load,
                    .load_count = 1,
                    .steps = &step,
                    .step_count = 1};
    CHECK(fx_program_check_overlaps(&p, 1, NULL, &error) == FX_OK);
    fx_poll poll = fx_poll_start_every(&(fx_interrupt){.is_wanted = cancels}, 0);
    CHECK(fx_program_check_overlaps(&p, 1, &poll, &error) == FX_ERR_CANCELLED);
    poll.cancelled = 0;
    CHECK(fx_program_check_asking(&p, 1, fx_kernels_for(NULL), &poll, &error) == FX_ERR_CANCELLED);
    load.address = BYTES + GRAIN * (int64_t)(MANY - 1);
    CHECK(fx_program_check_overlaps(&p, 1, NULL, &error) == FX_ERR_OVERLAP && error.is_load && !error.index);
    load.address = BYTES + GRAIN * (int64_t)MANY;
    nodes[MANY / 2].out.offset = BYTES;
    CHECK(fx_program_check_overlaps(&p, 1, NULL, &error) == FX_ERR_OVERLAP && error.index == MANY / 2);
    free(nodes);
    free(pinned);
}

/* What many steps touch is sorted in parts, which are merged, and the caller may cancel between them. */
static void touch_many(void) {
    enum { MANY = 40000, OTHER = 7919 }; /* they have no factor in common */
    random_program r;
    make(&r);
    fx_node *nodes = calloc(MANY, sizeof *nodes);
    fx_step *steps = calloc(MANY, sizeof *steps);
    CHECK(nodes && steps);
    for (uint32_t i = 0; i < MANY; i++) {
        nodes[i] = r.nodes[0];
        nodes[i].in[0] = (fx_place){.base = FX_BASE_ARENA, .offset = 0};
        nodes[i].out = (fx_place){.base = FX_BASE_ARENA, .offset = BYTES * (1 + (int64_t)i * OTHER % MANY)};
        nodes[i].workspace_bytes = 0;
        steps[i] = r.steps[0];
        steps[i].node = i;
    }
    const fx_program p = {.nodes = nodes, .node_count = MANY, .steps = steps, .step_count = MANY};
    fx_touches whole, t;
    fx_poll never = fx_poll_start(NULL);
    CHECK(fx_touches_make(&whole, &p, 1, &never) == FX_OK && whole.used_count >= MANY);
    int most = 0;
    for (fx_status status = FX_ERR_CANCELLED; status != FX_OK; most++) {
        int asked = most;
        fx_poll poll = fx_poll_start_every(&(fx_interrupt){.is_wanted = cancels, .arg = &asked}, 0);
        status = fx_touches_make(&t, &p, 1, &poll);
        CHECK(status == (poll.cancelled ? FX_ERR_CANCELLED : FX_OK));
    }
    CHECK(most > 30 && t.used_count == whole.used_count && t.write_count == whole.write_count);
    for (int64_t i = 0; i < t.used_count; i++) {
        const fx_touch a = t.used[i], b = whole.used[i];
        CHECK(a.range.lo == b.range.lo && a.range.hi == b.range.hi && a.steps == b.steps);
        if (a.range.lo >= BYTES) /* the output of one step */
            CHECK(a.range.lo == BYTES * (1 + ((int64_t)a.steps - 1) * OTHER % MANY));
    }
    fx_touches_free(&whole);
    fx_touches_free(&t);
    free(nodes);
    free(steps);
}

int main(int argc, char **argv) {
    const int programs = argc > 1 ? atoi(argv[1]) : 300;
    for (int i = 0; i < programs; i++) {
        check_program();
        check_lists();
    }
    check_cancelled();
    check_many();
    touch_many();
    CHECK(!fx_ranges_meet((fx_range){3, 3}, (fx_range){0, 9}) && fx_ranges_meet((fx_range){3, 4}, (fx_range){0, 9}));
    CHECK(!fx_ranges_meet((fx_range){0, 3}, (fx_range){3, 9}));
    puts("touches: good");
    return 0;
}
