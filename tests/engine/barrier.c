/* The cost of sharing a step: the same small steps on one thread and on several, in turns. Prints, for each length, the
 * medians and the cost of the barrier: the time on n threads less an nth of that on one.
 * usage: flexnn-barrier [threads] */
#include "workers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 2001, STEPS = 20 };

static int by_time(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t median(int64_t *times) {
    qsort(times, ROUNDS, sizeof *times, by_time);
    return times[ROUNDS / 2];
}

/* Nanoseconds of STEPS steps, one after the other as a session runs them. */
static int64_t run(fx_workers *workers, const fx_call *call) {
    fx_poll poll = fx_poll_start(NULL);
    fx_task task = {.call = *call};
    task.units = fx_op_units(call->kernels, call->op, call->kernel, call->params, call->window, workers->cut_threads);
    const int64_t start = fx_now_ns();
    for (int i = 0; i < STEPS; i++)
        if (fx_workers_run(workers, &task, 1, 0, NULL, &poll) != FX_OK)
            exit(1);
    return fx_now_ns() - start;
}

/* Softmax of so many rows, which needs next to no memory. */
static void measure(fx_workers *one, fx_workers *several, int rows) {
    enum { N = 256, ROWS_MAX = 1024 };
    static float x[ROWS_MAX * N], y[ROWS_MAX * N];
    static int64_t alone[ROUNDS], shared[ROUNDS];
    fx_params params;
    memset(&params, 0, sizeof params);
    params.softmax = (fx_softmax_params){.outer = rows, .n = N, .inner = 1};
    fx_call call = {.kernels = fx_kernels_for(NULL), .params = &params, .op = FX_OP_SOFTMAX, .in = {x}, .out = y};
    call.window = fx_op_full_window(FX_OP_SOFTMAX, &params);
    for (int i = 0; i < ROUNDS; i++) {
        alone[i] = run(one, &call) / STEPS;
        shared[i] = run(several, &call) / STEPS;
    }
    const int64_t t1 = median(alone), tn = median(shared);
    printf("%8.2f us on 1 thread  %8.2f us on %d  barrier %6.2f us\n", (double)t1 * 1e-3, (double)tn * 1e-3,
           several->threads, (double)(tn - t1 / several->threads) * 1e-3);
}

int main(int argc, char **argv) {
    static fx_workers one, several;
    const fx_placement anywhere = {.fineness = 1};
    const int threads = argc > 1 ? atoi(argv[1]) : 2;
    if (threads < 2 || threads > FX_MAX_THREADS || fx_workers_start(&one, 1, &anywhere, 0, NULL) ||
        fx_workers_start(&several, threads, &anywhere, 0, NULL)) {
        fprintf(stderr, "usage: flexnn-barrier [threads]: 2 to %d\n", FX_MAX_THREADS);
        return 2;
    }
    for (int rows = 16; rows <= 1024; rows *= 4)
        measure(&one, &several, rows);
    fx_workers_stop(&several);
    fx_workers_stop(&one);
    return 0;
}
