/* Recurrent layers against the formulas in double precision. */
#include "check.h"
#include "flexnn/half.h"
#include "flexnn/weight_form.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int is_lstm(int32_t kind) {
    return kind == FX_CELL_LSTM || kind == FX_CELL_LSTM_QUANTISED;
}

static int gates_of(int32_t kind) {
    return is_lstm(kind) ? 4 : kind == FX_CELL_GRU || kind == FX_CELL_GRU_AFTER ? 3 : 1;
}

static void draw(check_case *c) {
    fx_recurrent_params *p = &c->params.recurrent;
    p->kind = check_int(c, 0, FX_CELL_COUNT - 1);
    p->steps = check_int(c, 1, 6);
    p->batch = check_one_in(c, 3) ? check_int(c, 2, 40) : check_int(c, 1, 3);
    p->hidden = check_one_in(c, 4) ? check_int(c, 30, 70) : check_int(c, 1, 20);
    if (p->kind == FX_CELL_LSTM_QUANTISED && check_one_in(c, 2)) /* what slices of bytes need */
        p->hidden = (p->hidden + FX_NR - 1) / FX_NR * FX_NR;
    p->directions = check_int(c, 1, 2);
    p->is_reverse = check_int(c, 0, 2 - p->directions);
    p->has_lengths = check_one_in(c, 3);
    p->has_peepholes = is_lstm(p->kind) && check_one_in(c, 2);
    p->wtype = check_one_in(c, 2) ? FX_WTYPE_F32 : check_int(c, 0, FX_WTYPE_S8);
    p->f_act = FX_ACT_SIGMOID, p->g_act = p->h_act = FX_ACT_TANH;
    if (p->kind == FX_CELL_LSTM_QUANTISED || check_one_in(c, 2)) /* what is rounded must not grow */
        return;
    static const int32_t acts[] = {FX_ACT_SIGMOID, FX_ACT_TANH, FX_ACT_RELU, FX_ACT_HARDSIGMOID, FX_ACT_LEAKY_RELU};
    int32_t *const given[] = {&p->f_act, &p->g_act, &p->h_act};
    for (int i = 0; i < 3; i++)
        *given[i] = acts[check_int(c, 0, 4)];
    p->f_alpha = p->g_alpha = p->h_alpha = 0.2f, p->f_beta = p->g_beta = p->h_beta = 0.5f;
    p->is_coupled = is_lstm(p->kind) && check_one_in(c, 2);
    p->clip = check_one_in(c, 2) ? 0.5f : 0;
}

static fx_panel_layout panel_of(const fx_recurrent_params *p) {
    const int64_t weights = (int64_t)p->hidden * FX_NR;
    return p->wtype == FX_WTYPE_F32 ? (fx_panel_layout){.bytes = weights * 4}
                                    : fx_panel_layout_of(FX_ACT_NONE, p->wtype, weights);
}

static int64_t panels_of(int64_t columns) {
    return (columns + FX_NR - 1) / FX_NR;
}

/* Panels of another form than floats, in which random floats stand. */
static void narrow(const fx_recurrent_params *p, char *panel) {
    const fx_panel_layout layout = panel_of(p);
    const int64_t weights = (int64_t)p->hidden * FX_NR;
    float *floats = malloc((size_t)weights * sizeof *floats);
    for (int64_t i = 0; i < weights; i++) /* fewer floats than weights stand there */
        floats[i] = ((const float *)panel)[i % (layout.bytes / 4)];
    memset(panel, 0, (size_t)layout.bytes);
    for (int64_t j = 0; j < FX_NR && p->wtype == FX_WTYPE_S8; j++)
        ((float *)(panel + layout.scales))[j] = 0.01f;
    for (int64_t i = 0; i < weights; i++) {
        if (p->wtype == FX_WTYPE_S8)
            ((int8_t *)(panel + layout.weights))[i] = (int8_t)(floats[i] * 100);
        else
            ((uint16_t *)(panel + layout.weights))[i] = fx_half_from(floats[i]);
    }
    free(floats);
}

/* Weights are so small that a step does not amplify errors. */
static void fill(check_case *c) {
    const fx_recurrent_params *p = &c->params.recurrent;
    for (int o = 0; o < 3; o++) {
        float *x = c->in[o];
        const float scale = o == 1 ? 1.0f / (float)sqrt(p->hidden) : 1;
        for (int64_t i = 0; i < c->in_hi[o] / 4; i++)
            x[i] = check_real(c) * scale;
    }
    const int64_t n = p->hidden,
                  panels = gates_of(p->kind) == 3 ? panels_of(2 * n) + panels_of(n) : panels_of(gates_of(p->kind) * n);
    for (int32_t d = 0; d < p->directions; d++)
        for (int64_t i = 0; i < panels && p->wtype != FX_WTYPE_F32; i++)
            narrow(p, (char *)c->in[1] + d * (c->in_hi[1] / p->directions) + i * panel_of(p).bytes);
    for (int32_t b = 0; b < p->batch * p->has_lengths; b++)
        ((int32_t *)c->in[3])[b] = check_int(c, -1, p->steps + 1);
}

static double clipped(const fx_recurrent_params *p, double v) {
    return p->clip > 0 ? fmax(-p->clip, fmin(p->clip, v)) : v;
}

static double f_of(const fx_recurrent_params *p, double v) {
    return check_activation(p->f_act, clipped(p, v), p->f_alpha, p->f_beta, 0);
}

static double g_of(const fx_recurrent_params *p, double v) {
    return check_activation(p->g_act, clipped(p, v), p->g_alpha, p->g_beta, 0);
}

/* Weight q of column j of the panels at w. */
static double weight(const fx_recurrent_params *p, const float *w, int j, int q) {
    const fx_panel_layout layout = panel_of(p);
    const char *panel = (const char *)w + j / FX_NR * layout.bytes;
    const int64_t at = (int64_t)q * FX_NR + j % FX_NR;
    if (p->wtype == FX_WTYPE_S8)
        return (double)((const int8_t *)(panel + layout.weights))[at] *
               ((const float *)(panel + layout.scales))[j % FX_NR];
    return p->wtype == FX_WTYPE_F16 ? (double)fx_half_to(((const uint16_t *)(panel + layout.weights))[at])
                                    : (double)((const float *)panel)[at];
}

/* Column j of the packed product of h and the columns from `w` on. */
static double product(const fx_recurrent_params *p, const float *w, const double *h, int j) {
    double sum = 0;
    for (int q = 0; q < p->hidden; q++)
        sum += h[q] * weight(p, w, j, q);
    return sum;
}

typedef struct state {
    double *h, *c, *next, *seen; /* seen: h as the weights meet it */
} state;

static void step(const fx_recurrent_params *p, const float *x, const float *w, state *s) {
    const int n = p->hidden, first = gates_of(p->kind) == 3 ? 2 : gates_of(p->kind);
    const float *second = w + panels_of(first * n) * panel_of(p).bytes / 4;
    const float *bias = second + panels_of(n) * panel_of(p).bytes / 4;
    double *reset = malloc((size_t)n * sizeof *reset);
    for (int j = 0; gates_of(p->kind) == 3 && j < n; j++)
        reset[j] = s->h[j] * f_of(p, x[n + j] + product(p, w, s->seen, n + j));
    for (int j = 0; j < n; j++) {
        if (is_lstm(p->kind)) {
            double g[4];
            for (int i = 0; i < 4; i++)
                g[i] = x[i * n + j] + product(p, w, s->seen, i * n + j);
            const float *look = p->has_peepholes ? second : NULL;
            const double before = s->c[j], in = look ? look[j] * before : 0,
                         forget = look ? look[2 * n + j] * before : 0;
            const double opened = f_of(p, g[0] + in), kept = p->is_coupled ? 1 - opened : f_of(p, g[2] + forget);
            s->c[j] = kept * before + opened * g_of(p, g[3]);
            s->next[j] = f_of(p, g[1] + (look ? look[n + j] * s->c[j] : 0)) *
                         check_activation(p->h_act, s->c[j], p->h_alpha, p->h_beta, 0);
        } else if (gates_of(p->kind) == 3) {
            const double z = f_of(p, x[j] + product(p, w, s->seen, j));
            const double r = f_of(p, x[n + j] + product(p, w, s->seen, n + j));
            const double inner =
                p->kind == FX_CELL_GRU ? product(p, second, reset, j) : r * (product(p, second, s->seen, j) + bias[j]);
            s->next[j] = (1 - z) * g_of(p, x[2 * n + j] + inner) + z * s->h[j];
        } else {
            s->next[j] = f_of(p, x[j] + product(p, w, s->seen, j));
        }
    }
    for (int j = 0; j < n; j++)
        s->h[j] = s->next[j];
    free(reset);
}

/* Of all rows with a step i: h as an LSTM_QUANTISED rounds it, else as it is. */
static void see(const check_case *c, state *rows, int64_t i, const int *length) {
    const fx_recurrent_params *p = &c->params.recurrent;
    double least = 0, most = 0;
    for (int b = 0; b < p->batch; b++)
        for (int j = 0; j < p->hidden && i < length[b]; j++)
            least = fmin(least, rows[b].h[j]), most = fmax(most, rows[b].h[j]);
    const double scale = most > least ? (most - least) / 255 : 1, zero = nearbyint(-least / scale);
    for (int b = 0; b < p->batch; b++)
        for (int j = 0; j < p->hidden; j++) {
            const double q = fmin(255, fmax(0, nearbyint(rows[b].h[j] / scale) + zero));
            rows[b].seen[j] = p->kind == FX_CELL_LSTM_QUANTISED ? (q - zero) * scale : rows[b].h[j];
        }
}

/* Direction d, whose rows' lengths are known. */
static void expect_direction(const check_case *c, check_expected *e, int d, state *rows, const int *length) {
    const fx_recurrent_params *p = &c->params.recurrent;
    const int n = p->hidden, width = gates_of(p->kind) * n, all = p->directions * p->batch;
    const float *x = c->in[0], *w = (const float *)c->in[1] + d * (c->in_hi[1] / 4 / p->directions);
    const int is_reverse = p->directions > 1 ? d : p->is_reverse;
    /* A number between two of 8 bits may be rounded to either. */
    const double tolerance = p->kind == FX_CELL_LSTM_QUANTISED ? 1e-2 : 2e-5;
    for (int i = 0; i < p->steps; i++) {
        see(c, rows, i, length);
        for (int b = 0; b < p->batch; b++) {
            if (i >= length[b]) {
                for (int j = 0; j < n; j++)
                    check_set(c, e, ((int64_t)i * all + d * p->batch + b) * n + j, 0, 0);
                continue;
            }
            const int64_t at = is_reverse ? length[b] - 1 - i : i;
            step(p, x + ((at * p->batch + b) * p->directions + d) * width, w, &rows[b]);
            for (int j = 0; j < n; j++)
                check_set(c, e, (at * all + d * p->batch + b) * n + j, rows[b].h[j],
                          tolerance * (1 + fabs(rows[b].h[j])));
        }
    }
    for (int64_t i = 0; i < (int64_t)p->batch * n; i++) {
        const state *s = &rows[i / n];
        const int64_t last = ((int64_t)p->steps * all + d * p->batch) * n + i;
        check_set(c, e, last, s->h[i % n], tolerance * (1 + fabs(s->h[i % n])));
        if (is_lstm(p->kind))
            check_set(c, e, last + (int64_t)all * n, s->c[i % n], tolerance * (1 + fabs(s->c[i % n])));
    }
}

static void expect(const check_case *c, check_expected *e) {
    const fx_recurrent_params *p = &c->params.recurrent;
    const int n = p->hidden, all = p->directions * p->batch;
    const float *initial = c->in[2];
    double *memory = malloc(4 * (size_t)n * (size_t)all * sizeof *memory);
    state *rows = malloc((size_t)all * sizeof *rows);
    int *length = malloc((size_t)all * sizeof *length);
    for (int r = 0; r < all; r++) {
        double *own = memory + (size_t)r * 4 * (size_t)n;
        rows[r] = (state){own, own + n, own + 2 * n, own + 3 * n};
        for (int j = 0; j < n; j++) {
            rows[r].h[j] = initial[r * n + j];
            rows[r].c[j] = is_lstm(p->kind) ? initial[(all + r) * n + j] : 0;
        }
        const int given = p->has_lengths ? ((const int32_t *)c->in[3])[r % p->batch] : p->steps;
        length[r] = given < 0 ? 0 : given > p->steps ? p->steps : given;
    }
    for (int d = 0; d < p->directions; d++)
        expect_direction(c, e, d, rows + d * p->batch, length);
    free(length);
    free(rows);
    free(memory);
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const fx_recurrent_params shapes[] = {
        {.kind = FX_CELL_LSTM, .steps = 32, .batch = 1, .hidden = 128, .directions = 1, .f_act = FX_ACT_SIGMOID},
        {.kind = FX_CELL_GRU_AFTER, .steps = 100, .batch = 1, .hidden = 64, .directions = 2, .f_act = FX_ACT_SIGMOID},
        {.kind = FX_CELL_LSTM,
         .steps = 500,
         .batch = 1,
         .hidden = 25,
         .directions = 1,
         .f_act = FX_ACT_SIGMOID,
         .has_peepholes = 1},
        {.kind = FX_CELL_RNN, .steps = 500, .batch = 1, .hidden = 25, .directions = 1, .f_act = FX_ACT_TANH}};
    static const char *const names[FX_CELL_COUNT] = {
        [FX_CELL_LSTM] = "LSTM", [FX_CELL_GRU_AFTER] = "GRU", [FX_CELL_RNN] = "RNN"};
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    const fx_recurrent_params *p = &c->params.recurrent;
    c->params.recurrent = shapes[i];
    c->params.recurrent.g_act = c->params.recurrent.h_act = FX_ACT_TANH;
    *flops = 2.0 * p->directions * p->steps * p->batch * gates_of(p->kind) * p->hidden * p->hidden;
    *bytes = 4.0 * p->directions * p->steps * p->batch * gates_of(p->kind) * p->hidden;
    snprintf(name, 64, "%s, %d steps of %d", names[p->kind], p->steps, p->hidden);
    return 1;
}

const check_op check_recurrent = {.draw = draw, .fill = fill, .expect = expect, .bench = bench};
