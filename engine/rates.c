#include "flexnn/rates.h"

#include "arena.h"
#include "clock.h"
#include "flexnn/cpu.h"
#include "flexnn/kernels.h"

#include <string.h>

#define ROWS_MAX 16
#define PANELS_MAX 4
#define DEPTH 128            /* of the product: its operands fit in the first-level cache */
#define ROW (DEPTH + 16)     /* rows a power of two apart would evict each other */
#define READ_BYTES (3 << 19) /* beyond a Pi 4's L2, but not by much: planning is inside the budget, too */
#define COLUMNS (READ_BYTES / (DEPTH * (int)sizeof(float)))
#define ROUND_NS 150000 /* long compared with the clock's resolution */
#define ROUNDS 4        /* the best one counts: other processes may be running */

typedef struct operands {
    float a[ROWS_MAX][ROW], c[ROWS_MAX][PANELS_MAX * FX_NR], w[PANELS_MAX][DEPTH * FX_NR];
    float stream[READ_BYTES / sizeof(float)], y[COLUMNS];
} operands;

static double gemm_rate(const fx_kernels *k, operands *m) {
    const float *a[ROWS_MAX];
    float *c[ROWS_MAX];
    for (int i = 0; i < ROWS_MAX; i++) {
        a[i] = m->a[i];
        c[i] = m->c[i];
    }
    int rows = k->mr < ROWS_MAX ? k->mr : ROWS_MAX, panels = k->panels < PANELS_MAX ? k->panels : PANELS_MAX;
    const fx_gemm g = {.a = a,
                       .w = m->w[0],
                       .w_panel = DEPTH * FX_NR,
                       .c = c,
                       .rows = rows,
                       .panels = panels,
                       .columns = panels * FX_NR,
                       .taps = 1,
                       .k = DEPTH,
                       .block = DEPTH};
    double best = 0;
    for (int round = 0; round < ROUNDS; round++) {
        int64_t start = fx_now_ns(), now = start, calls = 0;
        do {
            for (int i = 0; i < 8; i++)
                k->gemm_f32(&g);
            calls += 8;
            now = fx_now_ns();
        } while (now - start < ROUND_NS);
        double rate = 2e9 * (double)calls * rows * panels * FX_NR * DEPTH / (double)(now - start);
        best = rate > best ? rate : best;
    }
    return best;
}

/* Puts the stream out of all caches, in which it was written: weights come from memory. CLFLUSH waits for each line
 * before it takes the next, which is most of the time of all measuring; CLFLUSHOPT does not. */
static void flush_stream(const operands *m) {
#if defined(__x86_64__)
    const unsigned overlaps = fx_x86_features_here().clflushopt;
#endif
    for (size_t at = 0; at < sizeof m->stream; at += 64) {
        const char *line = (const char *)m->stream + at;
#if defined(__x86_64__)
        if (overlaps)
            __asm__ volatile("clflushopt %0" : : "m"(*line) : "memory");
        else
            __builtin_ia32_clflush(line);
#elif defined(__aarch64__)
        __asm__ volatile("dc civac, %0" : : "r"(line) : "memory");
#else
        (void)line;
#endif
    }
#if defined(__x86_64__)
    __builtin_ia32_mfence();
#elif defined(__aarch64__)
    __asm__ volatile("dsb ish" : : : "memory");
#endif
}

/* By the kernel that reads weights for one row: a loop of ours would measure itself (12 GB/s where that reads 44). */
static double read_rate(const fx_kernels *k, operands *m) {
    const float *const a = m->a[0];
    float *const y = m->y;
    fx_gemv g = {.a = &a, .w = m->stream, .w_panel = DEPTH * FX_NR, .c = &y, .columns = COLUMNS, .k = DEPTH};
    g.rows = g.all_rows = g.taps = 1, g.block = DEPTH;
    double best = 0;
    for (int round = 0; round < ROUNDS; round++) {
        flush_stream(m);
        int64_t start = fx_now_ns();
        k->gemv_f32(&g);
        int64_t ns = fx_now_ns() - start;
        double rate = 1e9 * READ_BYTES / (double)(ns > 0 ? ns : 1);
        best = rate > best ? rate : best;
    }
    return best;
}

fx_status fx_measure_rates(const fx_kernels *k, double *flops, double *bytes) {
    fx_arena arena = {0}; /* has huge pages, which cost little to touch */
    if (fx_arena_grow(&arena, sizeof(operands)) != FX_OK)
        return FX_ERR_MEMORY;
    operands *m = (operands *)arena.memory;
    memset(m->stream, 1, sizeof m->stream);
    *flops = gemm_rate(k, m);
    *bytes = read_rate(k, m);
    fx_arena_free(&arena);
    return FX_OK;
}
