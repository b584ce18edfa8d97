/* Tasks that have phases: threads that share them compute what one thread does, beside tasks that have none, and a
 * cancel ends them between phases. */
#include "require.h"
#include "workers.h"

#include <string.h>

enum { HIDDEN = 96, STEPS = 6, LAYERS = 3, ROWS = 64, N = 32, FLOATS = 1 << 17 };

static float values[FLOATS];
static _Alignas(64) char workspace[FX_MAX_THREADS][1 << 17];

typedef struct layer {
    fx_params params;
    float out[(STEPS + 2) * HIDDEN];
} layer;

static fx_task task_of(fx_workers *workers, uint32_t op, const fx_params *params, float *out) {
    fx_task task = {.call = {.kernels = fx_kernels_for(NULL), .params = params, .op = op, .out = out}};
    for (int i = 0; i < 3; i++)
        task.call.in[i] = values + 1000 * i;
    task.call.window = fx_op_full_window(op, params);
    task.call.workspace = task.call.shared = workspace;
    task.workspace_bytes = task.call.shared_step = sizeof *workspace;
    CHECK(fx_op_check(op, 0, params) == FX_OK);
    CHECK(fx_op_workspace(task.call.kernels, op, 0, params) <= task.workspace_bytes);
    task.units = fx_op_units(task.call.kernels, op, 0, params, task.call.window, workers->cut_threads);
    task.phases = fx_op_phases(task.call.kernels, op, params, workers->cut_threads);
    return task;
}

/* Runs layers of other lengths, and rows of softmax, as one job. */
static fx_status run(fx_workers *workers, layer layers[LAYERS], float *rows, uint32_t parts, fx_poll poll) {
    static const int32_t kinds[LAYERS] = {FX_CELL_LSTM, FX_CELL_GRU_AFTER, FX_CELL_LSTM_QUANTISED};
    fx_params softmax = {.softmax = {.outer = ROWS, .n = N, .inner = 1}};
    fx_task tasks[LAYERS + 1];
    for (int i = 0; i < LAYERS; i++) {
        memset(&layers[i].params, 0, sizeof layers[i].params);
        layers[i].params.recurrent =
            (fx_recurrent_params){.kind = kinds[i],
                                  .steps = STEPS - i,
                                  .batch = 1,
                                  .hidden = HIDDEN,
                                  .directions = 1,
                                  .f_act = FX_ACT_SIGMOID,
                                  .g_act = FX_ACT_TANH,
                                  .h_act = FX_ACT_TANH,
                                  .wtype = kinds[i] == FX_CELL_LSTM_QUANTISED ? FX_WTYPE_S8 : FX_WTYPE_F32};
        memset(layers[i].out, 0xff, sizeof layers[i].out);
        tasks[i] = task_of(workers, FX_OP_RECURRENT, &layers[i].params, layers[i].out);
        CHECK(tasks[i].phases.count == (workers->threads > 1 ? STEPS - i : 1));
    }
    tasks[LAYERS] = task_of(workers, FX_OP_SOFTMAX, &softmax, rows);
    return fx_workers_run(workers, tasks, LAYERS + 1, parts, NULL, &poll);
}

static int is_wanted(void *arg) {
    (void)arg;
    return 1;
}

int main(void) {
    static fx_workers workers[2];
    static layer alone[LAYERS], shared[LAYERS];
    static float rows[2][ROWS * N];
    const fx_placement anywhere = {.fineness = 1};
    for (int i = 0; i < FLOATS; i++)
        values[i] = (float)((i * 37) % 201 - 100) / 2000;
    CHECK(!fx_workers_start(&workers[0], 1, &anywhere, 0, NULL));
    CHECK(!fx_workers_start(&workers[1], 3, &anywhere, 0, NULL));
    const fx_poll nobody = fx_poll_start(NULL);
    CHECK(run(&workers[0], alone, rows[0], 0, nobody) == FX_OK);
    for (uint32_t parts = 0; parts < 3; parts++) { /* of them 0 alone are shared, in phases */
        for (int turn = 0; turn < 200; turn++)
            CHECK(run(&workers[1], shared, rows[1], parts, nobody) == FX_OK);
        for (int i = 0; i < LAYERS; i++)
            CHECK(!memcmp(alone[i].out, shared[i].out, sizeof alone[i].out));
        CHECK(!memcmp(rows[0], rows[1], sizeof rows[0]));
    }
    const fx_poll at_once = {.interrupt = {is_wanted, NULL}};
    CHECK(run(&workers[1], shared, rows[1], 0, at_once) == FX_ERR_CANCELLED);
    for (int i = 0; i < HIDDEN; i++) /* no thread has begun the last phase */
        CHECK(shared[0].out[(STEPS - 1) * HIDDEN + i] != alone[0].out[(STEPS - 1) * HIDDEN + i]);
    fx_workers_stop(&workers[1]);
    fx_workers_stop(&workers[0]);
    puts("phases: good");
    return 0;
}
