/* Which steps may run at the same time: the sweep over a large group against pairs of its steps, on programs of a few
 * steps, and groups of more pairs of steps than could be compared.
 * usage: flexnn-groups [programs] */
#include "groups.h"
#include "random_programs.h"

#include <string.h>
#include <time.h>

enum { NODES = 7, STEPS = 9, ROWS = 4, BUFFERS = 3 };

/* A pool of maps of ROWS x 1 pixels, `pitch` floats apart. */
static fx_node pool(int32_t channels, int32_t pitch, int32_t rows) {
    fx_node node = {.op = FX_OP_POOL};
    node.params.pool =
        (fx_pool_params){.n = 1, .h = rows, .w = 1, .c = channels, .oh = rows, .ow = 1, .kh = 1, .kw = 1};
    node.params.pool.sh = node.params.pool.sw = node.params.pool.dh = node.params.pool.dw = 1;
    node.params.pool.x_sw = node.params.pool.x_sh = node.params.pool.x_sn = channels;
    node.params.pool.y_sw = node.params.pool.y_sh = node.params.pool.y_sn = pitch;
    for (int j = 1; j < FX_MAX_INPUTS; j++)
        node.in[j].base = -1;
    return node;
}

typedef struct random_program {
    fx_node nodes[NODES];
    fx_node_ranges ranges[NODES];
    fx_step steps[STEPS];
    uint32_t groups[2];
    fx_program program;
} random_program;

/* Nodes that write beside each other's channels or rows, in few places, so that both answers are met. */
static void make(random_program *r) {
    const int32_t pitch = (int32_t)(1 + below(8)), threads = (int32_t)(1 + below(3));
    const int64_t places = 8 << below(6), steps = 2 + below(STEPS - 1);
    const int is_crowded = below(2) == 0;
    memset(r, 0, sizeof *r);
    for (int i = 0; i < NODES; i++) {
        const int32_t channels = (int32_t)(1 + below(is_crowded ? 2 : pitch));
        const int32_t own = below(8) || channels > 2 ? pitch : 2;
        fx_node *node = &r->nodes[i];
        *node = pool(channels < own ? channels : own, own, (int32_t)(1 + below(ROWS)));
        node->out = (fx_place){.base = (int32_t)below(BUFFERS), .offset = 4 * below(is_crowded ? 12 : places)};
        node->in[0] = (fx_place){.base = (int32_t)(below(4) ? BUFFERS : below(BUFFERS)), .offset = 4 * below(places)};
        if (!below(8))
            node->in[1] = (fx_place){.base = 0, .offset = 4 * below(places)};
        node->workspace_offset = 4 * places + 64 * below(2) - (below(16) ? 0 : 4 * below(places));
        node->workspace_bytes = below(4) ? 0 : 64 >> below(2);
        fx_node_touches(node, threads, &r->ranges[i]);
    }
    for (int i = 0; i < steps; i++) {
        const int32_t y = (int32_t)below(4), c = (int32_t)below(4);
        r->steps[i] = (fx_step){.node = (uint32_t)(below(3) ? i % NODES : below(NODES)),
                                .window = {y, y + 1 + (int32_t)below(2), c, c + 1 + (int32_t)below(3)}};
    }
    r->groups[0] = (uint32_t)(below(4) ? steps : 1 + below(steps - 1));
    r->groups[1] = (uint32_t)steps - r->groups[0];
    r->program = (fx_program){.nodes = r->nodes,
                              .node_count = NODES,
                              .steps = r->steps,
                              .step_count = (uint32_t)steps,
                              .groups = r->groups,
                              .group_count = r->groups[1] ? 2 : 1};
}

static void check_program(int *bad) {
    random_program r;
    fx_error error;
    make(&r);
    const fx_status expected = fx_groups_check(&r.program, r.ranges, UINT32_MAX, &error);
    CHECK(expected == FX_OK || (expected == FX_ERR_OVERLAP && error.index < NODES));
    const fx_status swept = fx_groups_check(&r.program, r.ranges, 0, &error);
    CHECK(swept == expected);
    CHECK(swept == FX_OK || (!error.is_load && error.index >= 0 && error.index < NODES));
    *bad += expected != FX_OK;
}

/* `count` nodes that each write a channel of one output and share a workspace, or windows of one node. */
static void check_many(int are_windows) {
    enum { MANY = 50000 };
    fx_node *nodes = calloc(MANY, sizeof *nodes);
    fx_node_ranges *ranges = calloc(MANY, sizeof *ranges);
    fx_step *steps = calloc(MANY, sizeof *steps);
    fx_error error;
    CHECK(nodes && ranges && steps);
    for (int i = 0; i < MANY; i++) {
        nodes[i] = pool(1, MANY, ROWS);
        nodes[i].out = (fx_place){.base = 2, .offset = 4 * (int64_t)i};
        nodes[i].in[0].base = 1;
        nodes[i].workspace_bytes = 64;
        fx_node_touches(&nodes[i], 4, &ranges[i]);
        steps[i] = are_windows ? (fx_step){.window = {i / 100, i / 100 + 1, i % 100, i % 100 + 1}}
                               : (fx_step){.node = (uint32_t)i, .window = {0, ROWS, 0, 1}};
    }
    uint32_t group = MANY;
    fx_program p = {
        .nodes = nodes, .node_count = MANY, .steps = steps, .step_count = MANY, .groups = &group, .group_count = 1};
    const clock_t start = clock();
    CHECK(fx_groups_check(&p, ranges, FX_GROUP_PAIRS, &error) == FX_OK);
    int failed = 0;
    for (int call = 0; call < 20; call++) {
        fails_at = call;
        const fx_status status = fx_groups_check(&p, ranges, FX_GROUP_PAIRS, &error);
        const int is_over = fails_at >= 0;
        fails_at = -1;
        CHECK(status == (is_over ? FX_OK : FX_ERR_MEMORY));
        if (is_over)
            break;
        failed++;
    }
    CHECK(failed >= 2 && failed < 20);
    if (are_windows)
        steps[MANY - 1].window = steps[MANY / 2].window;
    else
        nodes[MANY - 1].out.offset = 4 * (MANY / 2);
    CHECK(fx_groups_check(&p, ranges, FX_GROUP_PAIRS, &error) == FX_ERR_OVERLAP);
    CHECK(are_windows ? error.index == 0 : error.index == MANY / 2 || error.index == MANY - 1);
    CHECK(clock() - start < 30 * CLOCKS_PER_SEC);
    free(nodes);
    free(ranges);
    free(steps);
}

int main(int argc, char **argv) {
    const int programs = argc > 1 ? atoi(argv[1]) : 20000;
    int bad = 0;
    for (int i = 0; i < programs; i++)
        check_program(&bad);
    CHECK(10 * bad > programs && 10 * bad < 9 * programs); /* both answers are met often */
    check_many(0);
    check_many(1);
    puts("groups: good");
    return 0;
}
