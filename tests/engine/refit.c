/* Refits, without an engine: which sizes a plan serves, the bytes of its blocks and the places of its operands at other
 * sizes, and every reason to say no.
 * usage: flexnn-refit */
#include "flexnn/refit.h"
#include "conv.h"
#include "flexnn/kernels.h"
#include "require.h"

#include <stddef.h>
#include <string.h>

enum { SIDE = 6, CHANNELS = 40, NODES = 3, STEPS = 4, TENSORS = 4, ROOTS = 2, WORKING = 3, MOVED = 2, BLOCKS = 5 };
enum { THREADS = 2, AT = 2, WORDS = sizeof(fx_node) / 8, LINE = 64 };
/* AT: the word that is the offset of a node's first operand. */
#define MAP_BYTES (SIDE * SIDE * CHANNELS * 4)
#define TOO_MUCH ((int64_t)1 << 61)

/* Two convolutions and a copy. The first convolution has two steps, each with its channels; all may work, and the
 * convolutions do. */
static struct {
    const fx_kernels *k;
    fx_node nodes[NODES];
    fx_step steps[STEPS];
    int32_t step_counts[NODES], roots[ROOTS], working[WORKING];
    int64_t offsets[TENSORS], room[ROOTS], places[BLOCKS];
    fx_moved moved[MOVED];
    fx_refit refit;
    fx_params params[NODES];
    int64_t nbytes[TENSORS], new_offsets[TENSORS];
    int32_t chosen[1], kernels[1], tile_blocks[1];
    fx_sizes sizes;
    fx_node made[NODES];
    fx_step made_steps[STEPS];
    int64_t blocks[BLOCKS], new_places[BLOCKS];
    int fits;
} s;

static int64_t lines(int64_t bytes) {
    return (bytes + LINE - 1) / LINE * LINE;
}

static void fresh_nodes(void) {
    memset(s.nodes, 0, sizeof s.nodes);
    for (int i = 0; i < NODES; i++) {
        fx_node *node = &s.nodes[i];
        node->op = i < 2 ? FX_OP_CONV : FX_OP_COPY;
        node->params = conv_params(SIDE, CHANNELS, 3);
        if (i < 2) {
            node->kernel = i ? FX_CONV_WINO2 : FX_CONV_IM2COL;
            node->params.conv.tile_block = 1 + i;
            node->workspace_bytes = lines(fx_op_workspace(s.k, node->op, node->kernel, &node->params));
            CHECK(node->workspace_bytes > 0);
            continue;
        }
        memset(&node->params, 0, sizeof node->params);
        node->params.copy =
            (fx_copy_params){.elem_bytes = 4, .d0 = 1, .d1 = 1, .d2 = 1, .d3 = 1, .d4 = 1, .d5 = 7, .xs5 = 1, .ys5 = 1};
        CHECK(fx_op_check(node->op, 0, &node->params) == FX_OK);
    }
}

/* The sizes of the plan. */
static void fresh(int is_pinned) {
    fresh_nodes();
    memcpy(s.steps,
           (fx_step[]){{.window = {.y1 = SIDE, .c1 = 32}, .panel_offset = 0},
                       {.window = {.y1 = SIDE, .c0 = 32, .c1 = CHANNELS}, .panel_offset = 64},
                       {.node = 1, .window = {.y1 = SIDE, .c1 = CHANNELS}, .panel_offset = 128},
                       {.node = 2, .window = {.y1 = 1, .c1 = 7}, .panel_offset = -1}},
           sizeof s.steps);
    memcpy(s.step_counts, (int32_t[]){2, 1, 1}, sizeof s.step_counts);
    memcpy(s.roots, (int32_t[]){0, 2}, sizeof s.roots);
    memcpy(s.working, (int32_t[]){0, 1, 2}, sizeof s.working);
    memcpy(s.offsets, (int64_t[]){0, 16, 0, 32}, sizeof s.offsets);
    memcpy(s.room, (int64_t[]){MAP_BYTES, MAP_BYTES}, sizeof s.room);
    memcpy(s.places, (int64_t[]){0, MAP_BYTES, 2 * MAP_BYTES, 3 * MAP_BYTES, 4 * MAP_BYTES}, sizeof s.places);
    memcpy(s.moved, (fx_moved[]){{AT, 1, 0}, {WORDS + AT, 3, ROOTS}}, sizeof s.moved);
    s.refit = (fx_refit){.nodes = s.nodes,
                         .steps = s.steps,
                         .step_counts = s.step_counts,
                         .node_count = NODES,
                         .step_count = STEPS,
                         .offsets = s.offsets,
                         .tensor_count = TENSORS,
                         .roots = s.roots,
                         .room = s.room,
                         .root_count = ROOTS,
                         .working = s.working,
                         .working_count = WORKING,
                         .places = s.places,
                         .moved = s.moved,
                         .moved_count = MOVED,
                         .base = 4096,
                         .zeros_count = 3 * CHANNELS,
                         .threads = THREADS,
                         .is_pinned = is_pinned};
    for (int i = 0; i < NODES; i++)
        s.params[i] = s.nodes[i].params;
    for (int i = 0; i < TENSORS; i++)
        s.nbytes[i] = MAP_BYTES;
    memcpy(s.new_offsets, s.offsets, sizeof s.new_offsets);
    memcpy(s.new_places, s.places, sizeof s.new_places);
    s.chosen[0] = 1;
    s.kernels[0] = FX_CONV_WINO4;
    s.tile_blocks[0] = 3;
    s.sizes = (fx_sizes){.params = s.params,
                         .nbytes = s.nbytes,
                         .offsets = s.new_offsets,
                         .chosen = s.chosen,
                         .kernels = s.kernels,
                         .tile_blocks = s.tile_blocks};
}

static fx_status nodes_of(void) {
    CHECK(fx_refit_check(&s.refit) == FX_OK);
    return fx_refit_nodes(&s.refit, s.k, &s.sizes, s.made, s.blocks, &s.fits);
}

static int64_t places_of(void) {
    CHECK(nodes_of() == FX_OK && s.fits);
    return fx_refit_places(&s.refit, &s.sizes, s.blocks, s.new_places, s.made, s.made_steps);
}

/* Does something to a refit or to its sizes; then a call answers so. */
#define GIVES(is_pinned, what, answer)                                                                                 \
    do {                                                                                                               \
        fresh(is_pinned);                                                                                              \
        what;                                                                                                          \
        CHECK(answer);                                                                                                 \
    } while (0)
#define BAD(what) GIVES(1, what, fx_refit_check(&s.refit) == FX_ERR_PARAMS)
#define FITS(is_pinned, what) GIVES(is_pinned, what, nodes_of() == FX_OK && s.fits)
#define NO_FIT(is_pinned, what) GIVES(is_pinned, what, nodes_of() == FX_OK && !s.fits)

static void indices(void) {
    BAD(s.refit.threads = 0);
    BAD(s.refit.base = -1);
    BAD(s.steps[1].node = NODES);
    BAD(s.roots[1] = TENSORS);
    BAD(s.roots[0] = -1);
    BAD(s.working[1] = NODES);
    BAD(s.working[0] = -1);
    BAD(s.working[1] = s.working[0]);
    BAD(s.moved[0].tensor = TENSORS);
    BAD(s.moved[0].root = ROOTS + 1);
    BAD(s.moved[1].word = -1);
    BAD(s.moved[1].word = NODES * WORDS);
    GIVES(1, s.sizes.chosen_count = 1; s.chosen[0] = NODES, nodes_of() == FX_ERR_PARAMS);
    GIVES(1, s.sizes.chosen_count = 1; s.chosen[0] = -1, nodes_of() == FX_ERR_PARAMS);
    GIVES(1, s.sizes.chosen_count = 1; s.chosen[0] = 2, nodes_of() == FX_ERR_PARAMS); /* a copy has no kernels */
}

/* Whether all blocks are in whole lines, those of workspaces for all threads. */
static int blocks_are_right(void) {
    for (int i = 0; i < ROOTS; i++)
        if (s.blocks[i] != lines(s.nbytes[s.roots[i]] ? s.nbytes[s.roots[i]] : 1))
            return 0;
    for (int i = 0; i < WORKING; i++) {
        const fx_node *node = &s.made[s.working[i]];
        const int64_t own = lines(fx_op_workspace(s.k, node->op, node->kernel, &node->params));
        if (s.blocks[ROOTS + i] != THREADS * lines(node->workspace_bytes) || node->workspace_bytes < own ||
            (s.refit.is_pinned && node->workspace_bytes != own))
            return 0;
    }
    return 1;
}

static void taller(fx_params *p, int side) {
    p->conv.h = p->conv.oh = side;
}

static void sizes_that_fit(void) {
    for (int is_pinned = 0; is_pinned < 2; is_pinned++) {
        GIVES(is_pinned, (void)0, nodes_of() == FX_OK && s.fits && blocks_are_right());
        GIVES(is_pinned, taller(&s.params[1], 2), nodes_of() == FX_OK && s.fits && blocks_are_right());
        CHECK(s.made[1].params.conv.oh == 2 && s.made[1].params.conv.tile_block == 2);
        GIVES(is_pinned, s.nbytes[0] = 0, nodes_of() == FX_OK && s.fits && s.blocks[0] == LINE);
        NO_FIT(is_pinned, s.nbytes[2] = -1);
        NO_FIT(is_pinned, s.nbytes[2] = TOO_MUCH);
    }
    GIVES(1, s.params[0].conv.tile_block = 9, nodes_of() == FX_OK && s.fits && s.made[0].params.conv.tile_block == 1);
    FITS(1, s.sizes.chosen_count = 1);
    CHECK(s.made[1].kernel == FX_CONV_WINO4 && s.made[1].params.conv.tile_block == 3 && blocks_are_right());
    NO_FIT(1, s.sizes.chosen_count = 1; s.kernels[0] = 1 << 20);
    NO_FIT(0, s.nbytes[2] = MAP_BYTES + 1); /* more than the room that the plan has */
    FITS(1, s.nbytes[2] = MAP_BYTES + 1);
    NO_FIT(0, s.nodes[1].workspace_bytes -= LINE);
    FITS(1, s.nodes[1].workspace_bytes -= LINE);
    NO_FIT(1, s.refit.working_count = 1); /* node 1 would work, too */
    FITS(0, s.refit.working_count = 1);
    FITS(0, s.refit.working_count = 1; s.working[0] = 1); /* a node before it works, in the plan's place */
    NO_FIT(0, s.nodes[1].workspace_bytes = TOO_MUCH / THREADS);
    FITS(1, s.nodes[1].workspace_bytes = TOO_MUCH / THREADS);
}

static void other_nodes(void) {
    NO_FIT(1, s.nodes[2].op = FX_OP_COUNT);
    NO_FIT(1, s.params[0].conv.group = 0);
    NO_FIT(1, s.params[1].conv.cin--; s.params[1].conv.cin_panel--); /* other panels */
    NO_FIT(1, s.params[1].conv.cout = 2 * CHANNELS; s.params[1].conv.y_sw *= 2; s.params[1].conv.y_sh *= 2;
           s.params[1].conv.y_sn *= 2); /* more of them */
    NO_FIT(1, s.refit.zeros_count--);
    FITS(1, s.params[1].conv.cout--);   /* as many panels; one step takes what channels there are */
    NO_FIT(1, s.params[0].conv.cout--); /* two steps share them as they were */
    GIVES(1, s.refit.node_count = s.refit.working_count = s.refit.step_count = s.refit.moved_count = 0,
          places_of() == 2 * MAP_BYTES);
}

static int64_t end_of_blocks(void) {
    int64_t end = 0;
    for (int i = 0; i < BLOCKS; i++)
        end = s.new_places[i] + s.blocks[i] > end ? s.new_places[i] + s.blocks[i] : end;
    return end;
}

static void places(void) {
    for (int is_pinned = 0; is_pinned < 2; is_pinned++) {
        int64_t *const words = (int64_t *)s.made;
        const int64_t by = is_pinned ? 10 * LINE : 0;
        GIVES(is_pinned, s.new_offsets[1] += 8; s.new_places[0] += by, places_of() == end_of_blocks());
        CHECK(words[AT] == 8 + by + ((int64_t *)s.nodes)[AT] && words[WORDS + AT] == ((int64_t *)s.nodes)[WORDS + AT]);
        for (int i = 0; i < WORKING; i++)
            CHECK(s.made[i].workspace_offset == (is_pinned && i < 2 ? s.refit.base + s.new_places[ROOTS + i] : 0));
        CHECK(s.made_steps[1].window.c0 == 32 && s.made_steps[1].window.c1 == CHANNELS);
    }
    GIVES(1, taller(&s.params[0], 9); taller(&s.params[1], 2); s.params[1].conv.cout--, places_of() > 0);
    CHECK(s.made_steps[0].window.y1 == 9 && s.made_steps[1].window.y1 == 9 && s.made_steps[2].window.y1 == 2);
    CHECK(s.made_steps[0].window.c1 == 32 && s.made_steps[2].window.c1 == CHANNELS - 1);
    GIVES(1, s.new_offsets[1] = INT64_MIN, places_of() == -1);
    GIVES(1, s.new_offsets[1] = INT64_MAX; s.new_places[0] = MAP_BYTES, places_of() == -1);
    GIVES(1, s.new_offsets[3] = INT64_MAX; ((int64_t *)s.nodes)[WORDS + AT] = MAP_BYTES, places_of() == -1);
}

/* What lies below an offset moves by one number, the rest by another. */
static void moves(void) {
    fx_load pinned = {.address = 64}, load = {.address = 8192};
    fresh(1);
    s.nodes[0].out.base = s.nodes[1].out.base = FX_BASE_ARENA;
    s.nodes[0].in[0] = (fx_place){.base = 1, .offset = 32};
    s.nodes[1].out.offset = 4096;
    fx_relocate(&(fx_movable){s.nodes, NODES, s.steps, STEPS, &pinned, 1, &load, 1}, 4096, 64, 128);
    CHECK(s.nodes[0].out.offset == 64 && s.nodes[1].out.offset == 4096 + 128 && s.nodes[0].in[0].offset == 32);
    CHECK(s.nodes[1].workspace_offset == 128 && s.nodes[2].workspace_offset == 0);
    CHECK(s.steps[0].panel_offset == 64 && s.steps[2].panel_offset == 128 + 64 && s.steps[3].panel_offset == -1);
    CHECK(pinned.address == 128 && load.address == 8192 + 128);
}

int main(void) {
    s.k = fx_kernels_for(NULL);
    CHECK(offsetof(fx_node, in[0].offset) == 8 * AT);
    indices();
    sizes_that_fit();
    other_nodes();
    places();
    moves();
    puts("refit: good");
    return 0;
}
