/* Fuzz target: a table that stays in the file. Its place, its chunks and the indices change; what the engine binds must
 * run: the right rows, or a clear status. */
#include "../engine/require.h"
#include "flexnn/crc32c.h"
#include "flexnn/engine.h"
#include "flexnn/kernels.h"
#include "input.h"

#include <unistd.h>

enum {
    ROWS = 12,
    WIDE = 4,
    COUNT = 3,
    CHUNK_ROWS = 5,
    CHUNKS = 3,
    CHUNK = CHUNK_ROWS * WIDE * 4,
    BYTES = ROWS * WIDE * 4
};

static float numbers[ROWS * WIDE];
static uint32_t sums[CHUNKS];

static int table_fd;

static fx_engine *make_engine(void) {
    char name[] = "/tmp/flexnn-table-XXXXXX";
    const int fd = table_fd = mkstemp(name);
    for (int i = 0; i < ROWS * WIDE; i++)
        numbers[i] = (float)i;
    for (int i = 0; i < CHUNKS; i++) {
        const int64_t from = i * (int64_t)CHUNK, bytes = BYTES - from < CHUNK ? BYTES - from : CHUNK;
        sums[i] = fx_crc32c(0, (const char *)numbers + from, (size_t)bytes);
    }
    CHECK(fd >= 0 && !unlink(name) && write(fd, numbers, BYTES) == BYTES);
    fx_error error;
    const fx_options options = {.threads = 1, .isa = "scalar"};
    fx_engine *e = fx_engine_open(&options, &error);
    CHECK(e);
    return e;
}

static fx_node gather(void) {
    fx_node n = {.op = FX_OP_GATHER,
                 .in = {{.base = FX_BASE_FILE}, {.base = 1}, {.base = -1}, {.base = -1}},
                 .out = {.base = 2},
                 .workspace_bytes = fx_table_workspace(CHUNK)};
    n.params.gather =
        (fx_gather_params){.elem_bytes = 4, .index_bytes = 8, .outer = 1, .axis = ROWS, .inner = WIDE, .count = COUNT};
    return n;
}

/* Rows as they lie in memory; only of the gather that was not changed. */
static void check_rows(const int64_t *picked, const float *out) {
    for (int i = 0; i < COUNT; i++) {
        const int64_t row = picked[i] < 0 ? picked[i] + ROWS : picked[i];
        CHECK(row >= 0 && row < ROWS && !memcmp(out + WIDE * i, numbers + WIDE * row, sizeof *out * WIDE));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static fx_engine *e;
    e = e ? e : make_engine();
    input in = {data, size, 0};
    fx_node node = gather(), changed_node = node;
    fx_load table = {.chunk_bytes = CHUNK, .bytes = BYTES, .check_bytes = BYTES};
    fx_step step = {.window = fx_op_full_window(node.op, &node.params), .panel_offset = -1};
    int64_t io_bytes[] = {8 * COUNT, 4 * WIDE * COUNT};
    fx_program p = {.file = {.fd = table_fd, .direct_fd = -1},
                    .nodes = &changed_node,
                    .node_count = 1,
                    .steps = &step,
                    .step_count = 1,
                    .tables = &table,
                    .table_count = 1,
                    .crcs = sums,
                    .crc_count = CHUNKS,
                    .arena_bytes = node.workspace_bytes,
                    .io_bytes = io_bytes,
                    .input_count = 1,
                    .output_count = 1};
    const struct table tables[] = {{&table, sizeof table, 1},
                                   {&changed_node.params.gather, sizeof(fx_gather_params), 1},
                                   {&changed_node.workspace_bytes, sizeof(int64_t), 1},
                                   {changed_node.in, sizeof(fx_place), 2}};
    for (size_t edits = take_below(&in, 3); edits; edits--)
        edit(&in, tables, sizeof tables / sizeof *tables);
    fx_bind_stats stats;
    fx_error error;
    fx_bound *b = fx_bind(e, &p, NULL, &stats, &error);
    if (!b) {
        CHECK(error.status != FX_OK && error.status < FX_STATUS_COUNT);
        return 0;
    }
    int64_t *picked = malloc(sizeof *picked * COUNT);
    float *out = malloc(sizeof *out * WIDE * COUNT);
    CHECK(picked && out);
    for (int i = 0; i < COUNT; i++)
        picked[i] = (int64_t)take_byte(&in) % (2 * ROWS + 1) - ROWS;
    fx_run_stats spent;
    const fx_status status = fx_run(b, (void *[]){picked, out}, NULL, 0, NULL, &spent, &error);
    CHECK(status == FX_OK || status == FX_ERR_INDEX || status == FX_ERR_CHECKSUM || status == FX_ERR_EOF);
    if (status == FX_OK && !memcmp(&node.params, &changed_node.params, sizeof(fx_gather_params)) &&
        changed_node.in[0].base == FX_BASE_FILE && !changed_node.in[1].offset)
        check_rows(picked, out);
    CHECK(fx_unbind(b) == FX_OK);
    free(picked);
    free(out);
    return 0;
}
