/* Recurrent layers over a sequence whose inputs are multiplied already: each step multiplies the hidden values of the
 * step before by packed weights (the gemm tile), and the gates do the rest. Rows of the batch are independent; steps
 * are not, so that a batch of one is one thread's work. https://onnx.ai/onnx/operators/onnx__LSTM.html, GRU, RNN. */
#include "units.h"

#include <string.h>

static int32_t gates_of(int32_t kind) {
    return kind == FX_CELL_LSTM ? 4 : kind == FX_CELL_GRU || kind == FX_CELL_GRU_AFTER ? 3 : 1;
}

static int32_t states_of(int32_t kind) {
    return kind == FX_CELL_LSTM ? 2 : 1;
}

/* Columns that are multiplied together: a GRU's last gate waits for its first two. */
static int64_t first_columns(const fx_recurrent_params *p) {
    const int32_t gates = gates_of(p->kind);
    return (int64_t)(gates == 3 ? 2 : gates) * p->hidden;
}

/* Floats of packed weights for so many columns: panels of [hidden][FX_NR]. */
static int64_t packed_floats(const fx_recurrent_params *p, int64_t columns) {
    return fx_round_up(columns, FX_NR) * p->hidden;
}

static int64_t weight_floats(const fx_recurrent_params *p) {
    const int is_gru = gates_of(p->kind) == 3;
    return packed_floats(p, first_columns(p)) + (is_gru ? packed_floats(p, p->hidden) : 0) +
           (p->kind == FX_CELL_GRU_AFTER ? p->hidden : 0) + (p->has_peepholes ? INT64_C(3) * p->hidden : 0);
}

static fx_window full_window(const fx_params *u) {
    return (fx_window){0, u->recurrent.steps, 0, u->recurrent.hidden};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_recurrent_params *p = &u->recurrent;
    if (kernel != 0 || p->kind < 0 || p->kind >= FX_CELL_COUNT || p->steps < 1 || p->batch < 1 || p->hidden < 1 ||
        p->is_reverse < 0 || p->is_reverse > 1 || p->hidden > 1 << 20 || p->steps > INT32_MAX - 2)
        return FX_ERR_PARAMS;
    if (p->has_lengths < 0 || p->has_lengths > 1 || p->has_peepholes < 0 ||
        p->has_peepholes > (p->kind == FX_CELL_LSTM))
        return FX_ERR_PARAMS;
    const int64_t row = (int64_t)gates_of(p->kind) * p->hidden;
    return (int64_t)p->batch * (p->steps + 2) <= FX_ELEMENTS_MAX / row ? FX_OK : FX_ERR_PARAMS;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_recurrent_params *p = &u->recurrent;
    const int64_t step = (int64_t)p->batch * p->hidden;
    const int64_t floats = operand == 0   ? p->steps * step * gates_of(p->kind)
                           : operand == 1 ? weight_floats(p)
                           : operand == 2 ? states_of(p->kind) * step
                           : operand == 3 ? (p->has_lengths ? p->batch : 0) /* int32 */
                                          : (p->steps + (int64_t)states_of(p->kind)) * step;
    *lo = 0;
    *hi = floats * (int64_t)sizeof(float);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_contiguous_bytes(extent, u);
}

typedef struct workspace {
    const float **a, **r;
    float **c;
    float *gates; /* [mr][gates * hidden] */
    float *inner; /* [mr][hidden] */
    int64_t bytes;
} workspace;

static workspace workspace_at(void *base, const fx_kernels *k, const fx_recurrent_params *p) {
    int64_t at = 0;
    workspace s;
    FX_TAKE(s.a, base, at, k->mr);
    FX_TAKE(s.r, base, at, k->mr);
    FX_TAKE(s.c, base, at, k->mr);
    FX_TAKE(s.gates, base, at, (int64_t)k->mr * gates_of(p->kind) * p->hidden);
    FX_TAKE(s.inner, base, at, (int64_t)k->mr * p->hidden);
    s.bytes = at;
    return s;
}

static int64_t workspace_bytes(const fx_kernels *k, uint32_t kernel, const fx_params *u) {
    (void)kernel;
    return workspace_at(NULL, k, &u->recurrent).bytes;
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)kernel;
    if (w.y0 >= w.y1 || w.c0 >= w.c1)
        return 0;
    const int64_t tiles = fx_div_up(u->recurrent.batch, k->mr);
    return (uint32_t)fx_min64(fx_max64(tiles, threads), u->recurrent.batch);
}

/* Rows of the batch at one step. */
typedef struct step {
    const fx_kernels *k;
    const fx_recurrent_params *p;
    const workspace *s;
    const float *x;      /* the input's part of the gates: row 0 */
    const float *h;      /* hidden values before: row 0 */
    float *y;            /* hidden values after: row 0 */
    float *cell;         /* LSTM: row 0, in place */
    const float *weight; /* packed */
    int32_t rows;
} step;

/* gates[row][at .. at + columns) = from[row] * packed weights (+ the input's part) */
static void multiply(const step *t, const float *from, const float *packed, int64_t at, int64_t columns, int adds) {
    const fx_recurrent_params *p = t->p;
    const int64_t row = (int64_t)gates_of(p->kind) * p->hidden, panels = fx_div_up(columns, FX_NR);
    fx_gemm g = {.a = t->s->a, .c = t->s->c, .r = adds ? t->s->r : NULL, .w_panel = (int64_t)p->hidden * FX_NR};
    g.rows = t->rows, g.taps = 1, g.k = p->hidden, g.block = p->hidden;
    g.finish = fx_finish_of(FX_ACT_NONE, 0, 0);
    for (int32_t i = 0; i < t->rows; i++) {
        t->s->a[i] = from + (int64_t)i * p->hidden;
        t->s->r[i] = t->x + i * row + at;
        t->s->c[i] = t->s->gates + i * row + at;
    }
    for (int64_t panel = 0; panel < panels; panel += g.panels) {
        g.panels = (int32_t)fx_min64(t->k->panels, panels - panel);
        g.w = packed + panel * g.w_panel;
        g.c_at = panel * FX_NR;
        g.columns = (int32_t)fx_min64((int64_t)g.panels * FX_NR, columns - g.c_at);
        t->k->gemm_f32(&g);
    }
}

static void activate(const step *t, int32_t kind, float *y, int64_t row, int64_t n) {
    fx_activate_rows(t->k, (fx_activation){kind, 0, 0}, y, t->rows, row, n);
}

/* Adds to a gate what it sees of the cells. */
static void look(const step *t, const float *peepholes, int64_t gate) {
    const int64_t n = t->p->hidden, at = gate * n;
    for (int32_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < n; j++)
            t->s->gates[i * 4 * n + at + j] += peepholes[at + j] * t->cell[i * n + j];
}

static void run_lstm(const step *t) {
    const int64_t n = t->p->hidden, row = 4 * n;
    float *gates = t->s->gates, *inner = t->s->inner;
    multiply(t, t->h, t->weight, 0, row, 1);
    const float *peepholes = t->p->has_peepholes ? t->weight + packed_floats(t->p, row) : NULL;
    if (peepholes) {
        look(t, peepholes, 0);
        look(t, peepholes, 2);
        activate(t, FX_ACT_SIGMOID, gates, row, n);
        activate(t, FX_ACT_SIGMOID, gates + 2 * n, row, n);
    } else
        activate(t, FX_ACT_SIGMOID, gates, row, 3 * n); /* input, output, forget */
    activate(t, FX_ACT_TANH, gates + 3 * n, row, n);
    for (int32_t i = 0; i < t->rows; i++) {
        const float *g = gates + i * row;
        float *c = t->cell + i * n;
        for (int64_t j = 0; j < n; j++)
            inner[i * n + j] = c[j] = g[2 * n + j] * c[j] + g[j] * g[3 * n + j];
    }
    if (peepholes) {
        look(t, peepholes, 1);
        activate(t, FX_ACT_SIGMOID, gates + n, row, n);
    }
    activate(t, FX_ACT_TANH, inner, n, n);
    for (int32_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < n; j++)
            t->y[i * n + j] = gates[i * row + n + j] * inner[i * n + j];
}

static void run_gru(const step *t) {
    const fx_recurrent_params *p = t->p;
    const int64_t n = p->hidden, row = 3 * n;
    float *gates = t->s->gates, *inner = t->s->inner;
    const float *second = t->weight + packed_floats(p, 2 * n), *bias = second + packed_floats(p, n);
    multiply(t, t->h, t->weight, 0, 2 * n, 1);
    activate(t, FX_ACT_SIGMOID, gates, row, 2 * n); /* update, reset */
    if (p->kind == FX_CELL_GRU_AFTER) {
        multiply(t, t->h, second, 2 * n, n, 0);
        for (int32_t i = 0; i < t->rows; i++)
            for (int64_t j = 0; j < n; j++) {
                float *g = gates + i * row;
                g[2 * n + j] = t->x[i * row + 2 * n + j] + g[n + j] * (g[2 * n + j] + bias[j]);
            }
    } else {
        for (int32_t i = 0; i < t->rows; i++)
            for (int64_t j = 0; j < n; j++)
                inner[i * n + j] = gates[i * row + n + j] * t->h[i * n + j];
        multiply(t, inner, second, 2 * n, n, 1);
    }
    activate(t, FX_ACT_TANH, gates + 2 * n, row, n);
    for (int32_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < n; j++) {
            const float *g = gates + i * row;
            t->y[i * n + j] = (1 - g[j]) * g[2 * n + j] + g[j] * t->h[i * n + j];
        }
}

static void run_rnn(const step *t) {
    const int64_t n = t->p->hidden;
    multiply(t, t->h, t->weight, 0, n, 1);
    activate(t, t->p->kind == FX_CELL_RNN_RELU ? FX_ACT_RELU : FX_ACT_TANH, t->s->gates, n, n);
    memcpy(t->y, t->s->gates, (size_t)(t->rows * n) * sizeof(float));
}

/* Steps of row b. */
static int64_t length_at(const fx_call *call, int64_t b) {
    const fx_recurrent_params *p = &call->params->recurrent;
    return p->has_lengths ? fx_max64(0, fx_min64(((const int32_t *)call->in[3])[b], p->steps)) : p->steps;
}

/* Rows from b on, at most a tile and of one length. */
static int32_t rows_at(const fx_call *call, int64_t b, int64_t end) {
    const int32_t most = (int32_t)fx_min64(call->kernels->mr, end - b);
    int32_t rows = 1;
    while (rows < most && length_at(call, b + rows) == length_at(call, b))
        rows++;
    return rows;
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_recurrent_params *p = &call->params->recurrent;
    const uint32_t count = units(call->kernels, 0, call->params, call->window, threads);
    const workspace s = workspace_at(call->workspace, call->kernels, p);
    const int64_t n = p->hidden, gates = gates_of(p->kind) * n, batch = p->batch;
    const int64_t end = fx_cut_at(batch, count, u1);
    float *y = call->out, *last = y + p->steps * batch * n, *cell = last + batch * n;
    step t = {.k = call->kernels, .p = p, .s = &s, .weight = call->in[1]};
    for (int64_t b = fx_cut_at(batch, count, u0); b < end; b += t.rows) {
        const int64_t length = length_at(call, b);
        t.rows = rows_at(call, b, end);
        t.h = (const float *)call->in[2] + b * n;
        if (p->kind == FX_CELL_LSTM) {
            t.cell = cell + b * n;
            memcpy(t.cell, t.h + batch * n, (size_t)(t.rows * n) * sizeof(float));
        }
        for (int64_t i = 0; i < length; i++) {
            const int64_t at = (p->is_reverse ? length - 1 - i : i) * batch + b;
            t.x = (const float *)call->in[0] + at * gates;
            t.y = y + at * n;
            if (p->kind == FX_CELL_LSTM)
                run_lstm(&t);
            else if (gates == 3 * n)
                run_gru(&t);
            else
                run_rnn(&t);
            t.h = t.y;
        }
        for (int64_t i = length; i < p->steps; i++)
            memset(y + (i * batch + b) * n, 0, (size_t)(t.rows * n) * sizeof(float));
        memcpy(last + b * n, t.h, (size_t)(t.rows * n) * sizeof(float));
    }
    return FX_OK;
}

FX_DRIVER(recurrent, .traits = 0, .workspace = workspace_bytes);
