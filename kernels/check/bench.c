/* Timing: the best of many runs of one operator, beside the multiply-add peak measured here. Cold: the median of runs
 * that each use another copy of the weights, which the other copies have evicted from every cache, beside the faster of
 * two ways of just reading as many bytes; the two are measured in turns. Weights lie in huge pages, as in a session. */
#include "crew.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The gemm tile on data in L1: within a percent of the most that the level's multiply-adds can do. */
double check_peak_flops(const fx_kernels *k) {
    enum { CHANNELS = 128 };
    static float row[CHANNELS], panels[2][CHANNELS * FX_NR], out[14][2 * FX_NR];
    const float *a[14];
    float *c[14];
    for (int i = 0; i < k->mr; i++)
        a[i] = row, c[i] = out[i];
    fx_gemm g = {.a = a,
                 .w = panels[0],
                 .w_panel = CHANNELS * FX_NR,
                 .c = c,
                 .rows = k->mr,
                 .panels = k->panels,
                 .columns = k->panels * FX_NR,
                 .taps = 1,
                 .k = CHANNELS,
                 .block = CHANNELS};
    double best = 1e9;
    for (int r = 0; r < 200; r++) {
        const double start = now();
        for (int i = 0; i < 20; i++)
            k->gemm_f32(&g);
        const double t = now() - start;
        best = t < best ? t : best;
    }
    return 20 * 2.0 * k->mr * CHANNELS * k->panels * FX_NR / best;
}

/* The same of the tile of bytes. */
static double peak_of_bytes(const fx_kernels *k) {
    enum { BYTES = 512, MOST = 16 };
    static uint8_t row[BYTES], out[MOST][2 * FX_NR];
    static char panels[2][4 * 64 + BYTES * FX_NR], laid[MOST * BYTES * 2];
    static char laid_w[2][BYTES * FX_NR];
    const uint8_t *a[MOST];
    void *c[MOST];
    for (int i = 0; i < k->bytes->rows; i++)
        a[i] = row, c[i] = out[i];
    fx_dot_u8 d = {.a = a, .laid = laid, .w = panels[0], .w_panel = sizeof *panels, .c = c, .runs = 1, .run = BYTES};
    d.laid_w = laid_w[0], d.laid_panel = sizeof *laid_w, d.is_symmetric = 1;
    d.rows = k->bytes->rows, d.panels = k->bytes->panels, d.columns = d.panels * FX_NR;
    d.finish = (fx_byte_finish){.to = FX_DTYPE_U8, .hi = 255};
    double best = 1e9;
    for (int r = 0; r < 200; r++) {
        const double start = now();
        for (int i = 0; i < 20; i++)
            k->bytes->dot_u8(&d);
        const double t = now() - start;
        best = t < best ? t : best;
    }
    return 20 * 2.0 * d.rows * BYTES * d.columns / best;
}

typedef uint64_t words __attribute__((vector_size(64), aligned(4), may_alias));

/* Seconds that reading [from, from + bytes) takes, asking `ahead` bytes before. */
static double read_once(const char *from, int64_t bytes, int64_t ahead) {
    static volatile uint64_t seen; /* or the compiler would drop the reads */
    words sum[4] = {{0}};
    const double start = now();
    for (int64_t i = 0; i + 256 <= bytes; i += 256)
        for (int64_t line = 0; line < 256; line += 64) {
            if (ahead)
                __builtin_prefetch(from + i + line + ahead);
            sum[line / 64] += *(const words *)(from + i + line);
        }
    const double t = now() - start;
    sum[0] += sum[1] + sum[2] + sum[3];
    seen = sum[0][0];
    (void)seen;
    return t;
}

#define COLD_BYTES (192LL << 20) /* of all copies: more than a last-level cache */
#define COLD_RUNS 256            /* at most */

static int by_time(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *times, int count) {
    qsort(times, (size_t)count, sizeof *times, by_time);
    return times[count / 2];
}

/* Seconds of a run, below 0 where it fails. */
static double run_once(check_crew *crew, const fx_call *call, uint32_t units) {
    const double start = now();
    if (crew ? check_crew_run(crew, call, units) : fx_op_run(call, 1, 0, units) != FX_OK)
        return -1;
    return now() - start;
}

/* The best of some runs. */
static double time_warm(check_crew *crew, const fx_call *call, uint32_t units) {
    double best = 1e9, spent = 0;
    for (int r = 0; r < 5 || (spent < 0.2 && r < 2000); r++) {
        const double t = run_once(crew, call, units);
        if (t < 0)
            return t;
        best = t < best ? t : best;
        spent += t;
    }
    return best;
}

/* The median of runs with one copy of the weights each; *reading: the median of the faster way of just reading a copy,
 * measured in turns with the runs, since other guests of the machine share its memory bandwidth. */
static double time_cold(check_crew *crew, fx_call call, uint32_t units, int64_t weight_bytes, int64_t copies,
                        double *reading) {
    static double runs[COLD_RUNS], reads[2][COLD_RUNS];
    const char *weights = (const char *)call.weight;
    double spent = 0;
    int count = 0;
    for (int64_t at = 0; count < COLD_RUNS && (count < 9 || spent < 1); count++) {
        call.weight = (const float *)(weights + at++ % copies * weight_bytes);
        runs[count] = run_once(crew, &call, units);
        if (runs[count] < 0)
            return -1;
        spent += runs[count];
        for (int way = 0; way < 2; way++) {
            reads[way][count] = read_once(weights + at++ % copies * weight_bytes, weight_bytes, way * 4096);
            spent += reads[way][count];
        }
    }
    const double plain = median(reads[0], count), ahead = median(reads[1], count);
    *reading = plain < ahead ? plain : ahead;
    return median(runs, count);
}

void check_bench_op(const check_op *op, uint32_t number, const fx_kernels *k, const char *part, double peak,
                    int is_cold, int threads) {
    char name[64];
    double flops, bytes;
    if (number == FX_OP_CONV_U8 || number == FX_OP_DWCONV_U8 || number == FX_OP_MATMUL_U8)
        peak = peak_of_bytes(k);
    for (int i = 0;; i++) {
        check_case c = {.op = number, .random = 1};
        if (!op->bench || !op->bench(i, &c, name, &flops, &bytes))
            return;
        if (part && !strstr(name, part))
            continue;
        if (fx_op_check(c.op, c.kernel, &c.params) != FX_OK) {
            fprintf(stderr, "%s %s: fx_op_check refuses it\n", fx_op_name(number), name);
            continue;
        }
        fx_call call = {.kernels = k, .params = &c.params, .op = c.op, .kernel = c.kernel};
        call.window = fx_op_full_window(c.op, &c.params);
        for (int n = 0; n < fx_op_inputs(c.op); n++) {
            fx_op_extent(c.op, &c.params, n, &c.in_lo[n], &c.in_hi[n]);
            if (c.in_hi[n] > c.in_lo[n])
                c.in[n] = (char *)check_alloc(c.in_hi[n] - c.in_lo[n], 1) - c.in_lo[n];
            call.in[n] = c.in[n];
        }
        fx_op_extent(c.op, &c.params, FX_OUTPUT, &c.out_lo, &c.out_hi);
        call.out = c.out = (char *)check_alloc(c.out_hi - c.out_lo, 1) - c.out_lo;
        c.weight_bytes = fx_op_panel_bytes(c.op, &c.params) * fx_op_panels(c.op, &c.params);
        const int64_t copies = is_cold && c.weight_bytes ? COLD_BYTES / c.weight_bytes + 2 : 1;
        call.weight = c.weight = c.weight_bytes ? check_alloc(c.weight_bytes * copies, 1) : NULL;
#ifdef MADV_HUGEPAGE
        if (c.weight)
            madvise(c.weight, (size_t)(c.weight_bytes * copies), MADV_HUGEPAGE); /* refused: small pages */
#endif
        if (op->fill) {
            op->fill(&c);
        } else {
            for (int n = 0; n < FX_MAX_INPUTS; n++)
                if (c.in[n])
                    check_fill(&c, (char *)c.in[n] + c.in_lo[n], c.in_hi[n] - c.in_lo[n]);
            check_fill(&c, c.weight, c.weight_bytes);
        }
        for (int64_t n = 1; n < copies; n++)
            memcpy((char *)c.weight + n * c.weight_bytes, c.weight, (size_t)c.weight_bytes);
        call.zeros = check_alloc(fx_op_zeros(c.op, &c.params) * (int64_t)sizeof(float), 1);
        const int64_t workspace_bytes = fx_op_workspace(k, c.op, c.kernel, &c.params);
        const uint32_t units = fx_op_units(k, c.op, c.kernel, &c.params, call.window, threads);
        check_crew *crew = threads > 1 ? check_crew_start(threads, workspace_bytes) : NULL;
        call.workspace = crew ? NULL : check_alloc(workspace_bytes, 1);
        double reading = 0, best = -1;
        if (crew || threads == 1)
            best = copies > 1 ? time_cold(crew, call, units, c.weight_bytes, copies, &reading)
                              : time_warm(crew, &call, units);
        if (crew)
            check_crew_stop(crew);
        if (best < 0)
            fprintf(stderr, "%s %s fails\n", fx_op_name(number), name);
        printf("%-8s %-7s %-40s %9.4f ms", fx_op_name(number), k->level, name, best * 1e3);
        if (flops > 0)
            printf(" %7.1f GFLOP/s %5.1f %%", flops / best * 1e-9, 100 * flops / best / peak / threads);
        if (bytes > 0)
            printf(" %6.1f GB/s", bytes / best * 1e-9);
        if (bytes > 0 && copies > 1)
            printf(" %5.1f %% of reading", 100 * reading * bytes / (double)c.weight_bytes / best);
        putchar('\n');
        fflush(stdout);
        check_free_all();
    }
}
