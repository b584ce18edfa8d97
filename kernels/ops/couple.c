/* Probabilities of classes from those of each pair of them. */
#include "units.h"

#include <math.h>
#include <string.h>

#define CLASSES_MAX (1 << 14) /* a row's matrix takes 1 GiB then */
#define ROUNDS 100
#define LEAST 0.005f /* over the number of classes: a smaller difference ends the rounds */

static fx_window full_window(const fx_params *u) {
    return (fx_window){0, u->couple.rows, 0, u->couple.classes};
}

static int64_t pairs_of(int64_t classes) {
    return classes * (classes - 1) / 2;
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_couple_params *p = &u->couple;
    if (kernel != 0 || p->rows < 1 || p->classes < 2 || p->classes > CLASSES_MAX)
        return FX_ERR_PARAMS;
    return p->rows <= FX_ELEMENTS_MAX / ((int64_t)p->classes * p->classes) ? FX_OK : FX_ERR_PARAMS;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_couple_params *p = &u->couple;
    *lo = 0;
    *hi = p->rows * (operand == 0 ? pairs_of(p->classes) : p->classes) * (int64_t)sizeof(float);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_contiguous_bytes(extent, u);
}

typedef struct workspace {
    float *q;    /* [classes][classes]: the matrix whose quadratic form is to be least */
    float *sums; /* [classes]: the matrix times the probabilities */
    int64_t bytes;
} workspace;

static workspace workspace_at(void *base, const fx_couple_params *p) {
    int64_t at = 0;
    workspace s;
    FX_TAKE(s.q, base, at, (int64_t)p->classes * p->classes);
    FX_TAKE(s.sums, base, at, p->classes);
    s.bytes = at;
    return s;
}

static int64_t workspace_bytes(const fx_kernels *k, uint32_t kernel, const fx_params *u) {
    (void)k, (void)kernel;
    return workspace_at(NULL, &u->couple).bytes;
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    if (w.y0 >= w.y1 || w.c0 >= w.c1)
        return 0;
    return fx_units_of(u->couple.rows, 16 * (int64_t)u->couple.classes * u->couple.classes, threads);
}

static void make_matrix(const float *x, int64_t n, float *q) {
    memset(q, 0, (size_t)(n * n) * sizeof(float));
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i + 1; j < n; j++) {
            const float own = *x++, other = 1 - own;
            q[i * n + j] = q[j * n + i] = -own * other;
            q[i * n + i] += other * other;
            q[j * n + j] += own * own;
        }
}

/* Sums of the matrix times y; their mean by y, and how far the farthest is from it. */
static float multiply(const float *q, const float *y, int64_t n, float *sums, float *farthest) {
    float total = 0, most = 0;
    for (int64_t i = 0; i < n; i++) {
        sums[i] = 0;
        for (int64_t j = 0; j < n; j++)
            sums[i] += q[i * n + j] * y[j];
        total += y[i] * sums[i];
    }
    for (int64_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(sums[i] - total));
    *farthest = most;
    return total;
}

static void couple(const float *x, int64_t n, const workspace *s, float *y) {
    float *sums = s->sums;
    make_matrix(x, n, s->q);
    for (int64_t i = 0; i < n; i++)
        y[i] = 1 / (float)n;
    for (int round = 0; round < ROUNDS; round++) {
        float farthest, total = multiply(s->q, y, n, sums, &farthest);
        if (farthest < LEAST / (float)n)
            return;
        for (int64_t i = 0; i < n; i++) {
            const float *row = s->q + i * n, step = (total - sums[i]) / row[i], scale = 1 + step;
            y[i] += step;
            total = (total + step * (step * row[i] + 2 * sums[i])) / scale / scale;
            for (int64_t j = 0; j < n; j++) {
                sums[j] = (sums[j] + step * row[j]) / scale;
                y[j] /= scale;
            }
        }
    }
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_couple_params *p = &call->params->couple;
    const workspace s = workspace_at(call->workspace, p);
    const uint32_t count = units(call->kernels, 0, call->params, call->window, threads);
    const int64_t end = fx_box_cut(p->rows, count, u1);
    for (int64_t row = fx_box_cut(p->rows, count, u0); row < end; row++)
        couple((const float *)call->in[0] + row * pairs_of(p->classes), p->classes, &s,
               (float *)call->out + row * p->classes);
    return FX_OK;
}

FX_DRIVER(couple, .traits = 0, .workspace = workspace_bytes);
