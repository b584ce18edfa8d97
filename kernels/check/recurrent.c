/* Recurrent layers against the formulas in double precision. */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static int gates_of(int32_t kind) {
    return kind == FX_CELL_LSTM ? 4 : kind == FX_CELL_GRU || kind == FX_CELL_GRU_AFTER ? 3 : 1;
}

static void draw(check_case *c) {
    fx_recurrent_params *p = &c->params.recurrent;
    p->kind = check_int(c, 0, FX_CELL_COUNT - 1);
    p->steps = check_int(c, 1, 6);
    p->batch = check_one_in(c, 3) ? check_int(c, 2, 40) : check_int(c, 1, 3);
    p->hidden = check_one_in(c, 4) ? check_int(c, 30, 70) : check_int(c, 1, 20);
    p->is_reverse = check_int(c, 0, 1);
    p->has_lengths = check_one_in(c, 3);
    p->has_peepholes = p->kind == FX_CELL_LSTM && check_one_in(c, 2);
}

/* Weights are so small that a step does not amplify errors. */
static void fill(check_case *c) {
    for (int o = 0; o < 3; o++) {
        float *x = c->in[o];
        const float scale = o == 1 ? 1.0f / (float)sqrt(c->params.recurrent.hidden) : 1;
        for (int64_t i = 0; i < c->in_hi[o] / 4; i++)
            x[i] = check_real(c) * scale;
    }
    for (int32_t b = 0; b < c->params.recurrent.batch * c->params.recurrent.has_lengths; b++)
        ((int32_t *)c->in[3])[b] = check_int(c, -1, c->params.recurrent.steps + 1);
}

static double sigmoid(double v) {
    return 1 / (1 + exp(-v));
}

/* Column j of the packed product of h and `columns` columns from `w` on. */
static double product(const float *w, int n, const double *h, int j) {
    double sum = 0;
    for (int q = 0; q < n; q++)
        sum += h[q] * w[((int64_t)(j / FX_NR) * n + q) * FX_NR + j % FX_NR];
    return sum;
}

typedef struct state {
    double *h, *c, *next;
} state;

static void step(const fx_recurrent_params *p, const float *x, const float *w, state *s) {
    const int n = p->hidden, first = gates_of(p->kind) == 3 ? 2 : gates_of(p->kind);
    const float *second = w + (int64_t)(first * n + FX_NR - 1) / FX_NR * FX_NR * n;
    const float *bias = second + (int64_t)(n + FX_NR - 1) / FX_NR * FX_NR * n;
    double *reset = malloc((size_t)n * sizeof *reset);
    for (int j = 0; gates_of(p->kind) == 3 && j < n; j++)
        reset[j] = s->h[j] * sigmoid(x[n + j] + product(w, n, s->h, n + j));
    for (int j = 0; j < n; j++) {
        if (p->kind == FX_CELL_LSTM) {
            double g[4];
            for (int i = 0; i < 4; i++)
                g[i] = x[i * n + j] + product(w, n, s->h, i * n + j);
            const float *look = p->has_peepholes ? w + (int64_t)(4 * n + FX_NR - 1) / FX_NR * FX_NR * n : NULL;
            const double before = s->c[j], in = look ? look[j] * before : 0,
                         forget = look ? look[2 * n + j] * before : 0;
            s->c[j] = sigmoid(g[2] + forget) * before + sigmoid(g[0] + in) * tanh(g[3]);
            s->next[j] = sigmoid(g[1] + (look ? look[n + j] * s->c[j] : 0)) * tanh(s->c[j]);
        } else if (gates_of(p->kind) == 3) {
            const double z = sigmoid(x[j] + product(w, n, s->h, j));
            const double r = sigmoid(x[n + j] + product(w, n, s->h, n + j));
            const double inner =
                p->kind == FX_CELL_GRU ? product(second, n, reset, j) : r * (product(second, n, s->h, j) + bias[j]);
            s->next[j] = (1 - z) * tanh(x[2 * n + j] + inner) + z * s->h[j];
        } else {
            const double v = x[j] + product(w, n, s->h, j);
            s->next[j] = p->kind == FX_CELL_RNN_RELU ? fmax(v, 0) : tanh(v);
        }
    }
    for (int j = 0; j < n; j++)
        s->h[j] = s->next[j];
    free(reset);
}

static void expect(const check_case *c, check_expected *e) {
    const fx_recurrent_params *p = &c->params.recurrent;
    const int n = p->hidden, row = gates_of(p->kind) * n;
    const float *x = c->in[0], *initial = c->in[2];
    double *memory = malloc(3 * (size_t)n * sizeof *memory);
    state s = {memory, memory + n, memory + 2 * n};
    for (int b = 0; b < p->batch; b++) {
        for (int j = 0; j < n; j++) {
            s.h[j] = initial[b * n + j];
            s.c[j] = p->kind == FX_CELL_LSTM ? initial[(p->batch + b) * n + j] : 0;
        }
        const int given = p->has_lengths ? ((const int32_t *)c->in[3])[b] : p->steps;
        const int length = given < 0 ? 0 : given > p->steps ? p->steps : given;
        for (int i = length; i < p->steps; i++)
            for (int j = 0; j < n; j++)
                check_set(c, e, ((int64_t)i * p->batch + b) * n + j, 0, 0);
        for (int i = 0; i < length; i++) {
            const int t = p->is_reverse ? length - 1 - i : i;
            step(p, x + ((int64_t)t * p->batch + b) * row, c->in[1], &s);
            for (int j = 0; j < n; j++)
                check_set(c, e, ((int64_t)t * p->batch + b) * n + j, s.h[j], 2e-5 * (1 + fabs(s.h[j])));
        }
        for (int j = 0; j < n; j++) {
            check_set(c, e, ((int64_t)p->steps * p->batch + b) * n + j, s.h[j], 2e-5 * (1 + fabs(s.h[j])));
            if (p->kind == FX_CELL_LSTM)
                check_set(c, e, ((int64_t)(p->steps + 1) * p->batch + b) * n + j, s.c[j], 2e-5 * (1 + fabs(s.c[j])));
        }
    }
    free(memory);
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const fx_recurrent_params shapes[] = {{.kind = FX_CELL_LSTM, .steps = 32, .batch = 1, .hidden = 128},
                                                 {.kind = FX_CELL_GRU_AFTER, .steps = 100, .batch = 1, .hidden = 64}};
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    const fx_recurrent_params *p = &c->params.recurrent;
    c->params.recurrent = shapes[i];
    *flops = 2.0 * p->steps * p->batch * gates_of(p->kind) * p->hidden * p->hidden;
    *bytes = 4.0 * p->steps * p->batch * gates_of(p->kind) * p->hidden;
    snprintf(name, 64, "%s, %d steps of %d", i ? "GRU" : "LSTM", p->steps, p->hidden);
    return 1;
}

const check_op check_recurrent = {.draw = draw, .fill = fill, .expect = expect, .bench = bench};
