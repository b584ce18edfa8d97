#include "spilled.h"

#include <string.h>

enum { MAP = 0, SLOT = SPILLED_MAP_BYTES }; /* in the arena */
enum { INPUT = 1, ZEROS, FIRST_OUTPUT, SECOND_OUTPUT };

static fx_node copy(int rows, int32_t from, int64_t from_offset, int32_t to, int64_t to_offset) {
    fx_node node;
    memset(&node, 0, sizeof node);
    node.op = FX_OP_COPY;
    for (int i = 0; i < FX_MAX_INPUTS; i++)
        node.in[i].base = -1;
    node.in[0] = (fx_place){.base = from, .offset = from_offset};
    node.out = (fx_place){.base = to, .offset = to_offset};
    node.params.copy = (fx_copy_params){.elem_bytes = 4,
                                        .d0 = 1,
                                        .d1 = 1,
                                        .d2 = 1,
                                        .d3 = 1,
                                        .d4 = rows,
                                        .d5 = SPILLED_COLUMNS,
                                        .xs4 = SPILLED_COLUMNS,
                                        .xs5 = 1,
                                        .ys4 = SPILLED_COLUMNS,
                                        .ys5 = 1};
    return node;
}

static fx_load place(int64_t offset, uint32_t row) {
    return (fx_load){
        .file_offset = offset, .bytes = SPILLED_MAP_BYTES, .chunk_bytes = SPILLED_ROW_BYTES, .crc_first = row};
}

/* Rows that come back after a step. */
static fx_load load(int64_t offset, int64_t bytes, int64_t address, uint32_t row, int32_t step) {
    return (fx_load){.file_offset = FX_SPILL_FROM + offset,
                     .bytes = bytes,
                     .address = address,
                     .chunk_bytes = SPILLED_ROW_BYTES,
                     .check_bytes = bytes,
                     .crc_first = row,
                     .wait_steps = step + 1};
}

void spilled_make(spilled *s, int fd) {
    memset(s, 0, sizeof *s);
    s->nodes[COME] = copy(SPILLED_ROWS, INPUT, 0, FX_BASE_ARENA, MAP);
    s->nodes[FIRST_HALF] = copy(SPILLED_HALF, FX_BASE_ARENA, MAP, FX_BASE_SPILL, 0);
    s->nodes[SECOND_HALF] =
        copy(SPILLED_HALF, FX_BASE_ARENA, MAP + SPILLED_HALF_BYTES, FX_BASE_SPILL, SPILLED_HALF_BYTES);
    s->nodes[WHOLE] = copy(SPILLED_ROWS, FX_BASE_ARENA, MAP, FX_BASE_SPILL, SPILLED_SECOND);
    s->nodes[CLEAR] = copy(SPILLED_ROWS, ZEROS, 0, FX_BASE_ARENA, MAP);
    s->nodes[GO] = copy(SPILLED_ROWS, FX_BASE_ARENA, SLOT, FIRST_OUTPUT, 0);
    s->nodes[LEAVE] = copy(SPILLED_ROWS, FX_BASE_ARENA, MAP, SECOND_OUTPUT, 0);
    for (uint32_t i = 0; i < COPIES; i++)
        s->steps[i] = (fx_step){.node = i,
                                .window = fx_op_full_window(FX_OP_COPY, &s->nodes[i].params),
                                .panel_offset = -1,
                                .wait_loads = i == GO      ? 2
                                              : i == LEAVE ? 3
                                                           : 0};
    s->places[0] = place(0, 0);
    s->places[1] = place(SPILLED_SECOND, SPILLED_ROWS);
    s->loads[0] = load(0, SPILLED_HALF_BYTES, SLOT, 0, FIRST_HALF);
    s->loads[1] = load(SPILLED_HALF_BYTES, SPILLED_HALF_BYTES, SLOT + SPILLED_HALF_BYTES, SPILLED_HALF, SECOND_HALF);
    s->loads[2] = load(SPILLED_SECOND, SPILLED_MAP_BYTES, MAP, SPILLED_ROWS, CLEAR);
    for (int i = 0; i < 4; i++)
        s->io_bytes[i] = SPILLED_MAP_BYTES;
    s->program = (fx_program){.file = {-1, -1},
                              .nodes = s->nodes,
                              .node_count = COPIES,
                              .steps = s->steps,
                              .step_count = COPIES,
                              .loads = s->loads,
                              .load_count = 3,
                              .spill = {fd, -1},
                              .spills = s->places,
                              .spill_count = 2,
                              .spill_crc_count = 2 * SPILLED_ROWS,
                              .spill_bytes = SPILLED_SECOND + SPILLED_MAP_BYTES,
                              .arena_bytes = SPILLED_ARENA,
                              .io_bytes = s->io_bytes,
                              .input_count = 2,
                              .output_count = 2};
}
