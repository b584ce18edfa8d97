/* Recurrent layers over a sequence whose inputs are multiplied already: each step multiplies the hidden values of the
 * step before by packed weights (the gemm tile), and the gates do the rest. Rows of the batch and directions are
 * independent; steps are not, so that one direction of a batch of one is one thread's work.
 * https://onnx.ai/onnx/operators/onnx__LSTM.html, GRU, RNN. */
#include "flexnn/weight_form.h"
#include "sums.h"
#include "units.h"

#include <math.h>
#include <string.h>

#define FEW 4 /* rows of the batch whose sums in the gemm tile would wait for one another */

static int is_lstm(int32_t kind) {
    return kind == FX_CELL_LSTM || kind == FX_CELL_LSTM_QUANTISED;
}

static int32_t gates_of(int32_t kind) {
    return is_lstm(kind) ? 4 : kind == FX_CELL_GRU || kind == FX_CELL_GRU_AFTER ? 3 : 1;
}

static int32_t states_of(int32_t kind) {
    return is_lstm(kind) ? 2 : 1;
}

/* Rows of all directions. */
static int64_t rows_of(const fx_recurrent_params *p) {
    return (int64_t)p->directions * p->batch;
}

static int is_reverse(const fx_recurrent_params *p, int64_t direction) {
    return p->directions > 1 ? direction == 1 : p->is_reverse;
}

/* Columns that are multiplied together: a GRU's last gate waits for its first two. */
static int64_t first_columns(const fx_recurrent_params *p) {
    const int32_t gates = gates_of(p->kind);
    return (int64_t)(gates == 3 ? 2 : gates) * p->hidden;
}

/* A panel of [hidden][FX_NR] weights. Those of floats have no head. */
static fx_panel_layout panel_of(const fx_recurrent_params *p) {
    const int64_t weights = (int64_t)p->hidden * FX_NR;
    if (p->wtype == FX_WTYPE_F32)
        return (fx_panel_layout){.bytes = weights * (int64_t)sizeof(float)};
    return fx_panel_layout_of(FX_ACT_NONE, p->wtype, weights);
}

/* Floats that the panels of so many columns take. */
static int64_t packed_floats(const fx_recurrent_params *p, int64_t columns) {
    return fx_div_up(columns, FX_NR) * panel_of(p).bytes / (int64_t)sizeof(float);
}

/* Of one direction. */
static int64_t weight_floats(const fx_recurrent_params *p) {
    const int is_gru = gates_of(p->kind) == 3;
    return packed_floats(p, first_columns(p)) + (is_gru ? packed_floats(p, p->hidden) : 0) +
           (p->kind == FX_CELL_GRU_AFTER ? p->hidden : 0) + (p->has_peepholes ? INT64_C(3) * p->hidden : 0);
}

static fx_window full_window(const fx_params *u) {
    return (fx_window){0, u->recurrent.steps, 0, u->recurrent.hidden};
}

static int is_function(int32_t act, float alpha, float beta) {
    return act >= 0 && act < FX_UNARY_COUNT && act != FX_UNARY_PRELU && !isnan(alpha) && !isnan(beta);
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_recurrent_params *p = &u->recurrent;
    if (!is_function(p->f_act, p->f_alpha, p->f_beta) || !is_function(p->g_act, p->g_alpha, p->g_beta) ||
        !is_function(p->h_act, p->h_alpha, p->h_beta) || p->is_coupled < 0 || p->is_coupled > is_lstm(p->kind) ||
        !(p->clip >= 0))
        return FX_ERR_PARAMS;
    if (kernel != 0 || p->kind < 0 || p->kind >= FX_CELL_COUNT || p->steps < 1 || p->batch < 1 || p->hidden < 1 ||
        p->directions < 1 || p->directions > 2 || p->is_reverse < 0 || p->is_reverse > 2 - p->directions ||
        p->hidden > 1 << 20 || p->steps > INT32_MAX - 2)
        return FX_ERR_PARAMS;
    if (p->has_lengths < 0 || p->has_lengths > 1 || p->has_peepholes < 0 || p->has_peepholes > is_lstm(p->kind) ||
        p->wtype < 0 || p->wtype >= FX_WTYPE_COUNT || fx_weight_forms[p->wtype].block)
        return FX_ERR_PARAMS;
    const int64_t row = (int64_t)gates_of(p->kind) * p->hidden;
    return rows_of(p) * (p->steps + 2) <= FX_ELEMENTS_MAX / row ? FX_OK : FX_ERR_PARAMS;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_recurrent_params *p = &u->recurrent;
    const int64_t step = rows_of(p) * p->hidden;
    const int64_t floats = operand == 0   ? p->steps * step * gates_of(p->kind)
                           : operand == 1 ? p->directions * weight_floats(p)
                           : operand == 2 ? states_of(p->kind) * step
                           : operand == 3 ? (p->has_lengths ? p->batch : 0) /* int32 */
                                          : (p->steps + (int64_t)states_of(p->kind)) * step;
    *lo = 0;
    *hi = floats * (int64_t)sizeof(float);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_contiguous_bytes(extent, u);
}

/* Most products of a sum of bytes, which an int32 holds. */
#define BYTES_TERMS (INT32_MAX / (255 * 128))

/* Whether hidden values that are rounded to bytes are multiplied as such. */
static int multiplies_bytes(const fx_kernels *k, const fx_recurrent_params *p) {
    return k->gemv_u8 && p->wtype == FX_WTYPE_S8 && p->hidden <= BYTES_TERMS;
}

/* Rows of panels of bytes, and bytes of a row: those beyond the last one are multiplied by zeros. */
static int64_t depth_of(const fx_recurrent_params *p) {
    return fx_round_up(p->hidden, 4);
}

/* Columns of an LSTM's panels. */
static int64_t panel_columns(const fx_recurrent_params *p) {
    return fx_round_up(INT64_C(4) * p->hidden, FX_NR);
}

typedef struct workspace {
    const float **a, **r;
    float **c;
    float *gates;     /* [mr][gates * hidden] */
    float *inner;     /* [mr][hidden] */
    float *hidden;    /* [batch][hidden], rounded; this and the rest of LSTM_QUANTISED */
    uint8_t *bytes;   /* the same as bytes, depth_of apart */
    int8_t *panels;   /* a direction's, as products of bytes read them */
    int32_t *columns; /* sums of the weights of each column */
    int64_t size;
} workspace;

static workspace workspace_at(void *base, const fx_kernels *k, const fx_recurrent_params *p) {
    int64_t at = 0;
    workspace s;
    FX_TAKE(s.a, base, at, k->mr);
    FX_TAKE(s.r, base, at, k->mr);
    FX_TAKE(s.c, base, at, k->mr);
    FX_TAKE(s.gates, base, at, (int64_t)k->mr * gates_of(p->kind) * p->hidden);
    FX_TAKE(s.inner, base, at, (int64_t)k->mr * p->hidden);
    const int rounds = p->kind == FX_CELL_LSTM_QUANTISED, is_of_bytes = rounds && multiplies_bytes(k, p);
    FX_TAKE(s.hidden, base, at, rounds && !is_of_bytes ? (int64_t)p->batch * p->hidden : 0);
    FX_TAKE(s.bytes, base, at, rounds ? p->batch * depth_of(p) : 0);
    FX_TAKE(s.panels, base, at, is_of_bytes ? panel_columns(p) * depth_of(p) : 0);
    FX_TAKE(s.columns, base, at, is_of_bytes ? panel_columns(p) : 0);
    s.size = at;
    return s;
}

static int64_t workspace_bytes(const fx_kernels *k, uint32_t kernel, const fx_params *u) {
    (void)kernel;
    return workspace_at(NULL, k, &u->recurrent).size;
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)kernel;
    if (w.y0 >= w.y1 || w.c0 >= w.c1)
        return 0;
    const fx_recurrent_params *p = &u->recurrent;
    if (p->kind == FX_CELL_LSTM_QUANTISED) /* a step rounds all rows of a direction by their range */
        return (uint32_t)p->directions;
    const int64_t tiles = p->directions * fx_div_up(p->batch, k->mr);
    return (uint32_t)fx_min64(fx_max64(tiles, threads), rows_of(p));
}

/* Rows of a direction at one step. */
typedef struct step {
    const fx_kernels *k;
    const fx_recurrent_params *p;
    const workspace *s;
    const float *x; /* the input's part of the gates: row 0 */
    int64_t x_row;
    const float *h;       /* hidden values before: row 0 */
    float *y;             /* hidden values after: row 0 */
    float *cell;          /* LSTM: row 0, in place */
    const float *weight;  /* packed, the direction's */
    const uint8_t *bytes; /* hidden values before, where they are bytes: row 0, less `zero` in steps of `scale` */
    float scale;
    int32_t zero;
    int32_t direction, rows;
} step;

/* The product of few rows, or with panels that are not floats: these are read as they are stored, once for FX_FEW_ROWS
 * rows. */
static void multiply_stored(const step *t, const float *packed, int64_t columns, int adds) {
    const fx_recurrent_params *p = t->p;
    const fx_panel_layout panel = panel_of(p);
    fx_gemv g = {.w = packed, .wtype = p->wtype, .all_rows = p->batch, .taps = 1, .k = p->hidden, .block = p->hidden};
    g.columns = (int32_t)columns;
    g.w_panel = panel.bytes / (int64_t)sizeof(float), g.head = panel.weights / (int64_t)sizeof(float);
    g.scales = (int32_t)(panel.scales / (int64_t)sizeof(float));
    g.finish = fx_finish_of(FX_ACT_NONE, 0, 0);
    for (int32_t i = 0; i < t->rows; i += g.rows) {
        g.rows = (int32_t)fx_min64(FX_FEW_ROWS, t->rows - i);
        g.a = t->s->a + i, g.c = t->s->c + i, g.r = adds ? t->s->r + i : NULL;
        t->k->gemv_f32(&g);
    }
}

/* gates[row][at .. at + columns) = from[row] * packed weights (+ the input's part) */
static void multiply(const step *t, const float *from, const float *packed, int64_t at, int64_t columns, int adds) {
    const fx_recurrent_params *p = t->p;
    const int64_t row = (int64_t)gates_of(p->kind) * p->hidden, panels = fx_div_up(columns, FX_NR);
    for (int32_t i = 0; i < t->rows; i++) {
        t->s->a[i] = from + (int64_t)i * p->hidden;
        t->s->r[i] = t->x + i * t->x_row + at;
        t->s->c[i] = t->s->gates + i * row + at;
    }
    if (p->wtype != FX_WTYPE_F32 || p->batch <= FEW) {
        multiply_stored(t, packed, columns, adds);
        return;
    }
    fx_gemm g = {.a = t->s->a, .c = t->s->c, .r = adds ? t->s->r : NULL, .w_panel = (int64_t)p->hidden * FX_NR};
    g.rows = t->rows, g.taps = 1, g.k = p->hidden, g.block = p->hidden;
    g.finish = fx_finish_of(FX_ACT_NONE, 0, 0);
    for (int64_t panel = 0; panel < panels; panel += g.panels) {
        g.panels = (int32_t)fx_min64(t->k->panels, panels - panel);
        g.w = packed + panel * g.w_panel;
        g.c_at = panel * FX_NR;
        g.columns = (int32_t)fx_min64((int64_t)g.panels * FX_NR, columns - g.c_at);
        t->k->gemm_f32(&g);
    }
}

/* The panels of a direction's weights, which all steps read. */
static void lay_panels(const step *t) {
    const fx_recurrent_params *p = t->p;
    const fx_panel_layout panel = panel_of(p);
    for (int64_t i = 0; i < panel_columns(p) / FX_NR; i++) {
        const fx_panel_s8 panel_s8 = {.from = (const int8_t *)t->weight + i * panel.bytes + panel.weights,
                                      .to = t->s->panels + i * FX_NR * depth_of(p),
                                      .sums = t->s->columns + i * FX_NR,
                                      .depth = p->hidden};
        t->k->panel_s8(&panel_s8);
    }
}

/* gates[row] = bytes[row] less zero, in steps of scale, * weights + the input's part */
static void multiply_bytes(const step *t) {
    const fx_recurrent_params *p = t->p;
    const fx_panel_layout panel = panel_of(p);
    const int64_t row = INT64_C(4) * p->hidden;
    fx_gemv_u8 g = {.w = t->s->panels, .sums = t->s->columns, .a_row = depth_of(p), .x_row = t->x_row, .c_row = row};
    g.w_panel = FX_NR * depth_of(p), g.depth = (int32_t)depth_of(p), g.columns = (int32_t)row;
    g.scales = (const float *)(const void *)((const char *)t->weight + panel.scales);
    g.scale_panel = panel.bytes / (int64_t)sizeof(float);
    g.scale = t->scale, g.zero = t->zero;
    for (int32_t first = 0; first < t->rows; first += g.rows) {
        g.rows = (int32_t)fx_min64(FX_FEW_ROWS, t->rows - first);
        g.a = t->bytes + first * depth_of(p), g.x = t->x + first * t->x_row, g.c = t->s->gates + first * row;
        t->k->gemv_u8(&g);
    }
}

static void activate(const step *t, fx_activation function, float *y, int64_t row, int64_t n) {
    fx_activate_rows(t->k, function, y, t->rows, row, n);
}

/* What f_act and g_act meet is clipped. */
static void activate_gates(const step *t, fx_activation function, float *y, int64_t row, int64_t n) {
    if (t->p->clip > 0)
        activate(t, (fx_activation){FX_ACT_CLIP, -t->p->clip, t->p->clip}, y, row, n);
    activate(t, function, y, row, n);
}

static void activate_f(const step *t, float *y, int64_t row, int64_t n) {
    activate_gates(t, (fx_activation){t->p->f_act, t->p->f_alpha, t->p->f_beta}, y, row, n);
}

static void activate_g(const step *t, float *y, int64_t row, int64_t n) {
    activate_gates(t, (fx_activation){t->p->g_act, t->p->g_alpha, t->p->g_beta}, y, row, n);
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
    if (t->bytes)
        multiply_bytes(t);
    else
        multiply(t, t->h, t->weight, 0, row, 1);
    const float *peepholes = t->p->has_peepholes ? t->weight + packed_floats(t->p, row) : NULL;
    if (peepholes) {
        look(t, peepholes, 0);
        look(t, peepholes, 2);
        activate_f(t, gates, row, n);
        activate_f(t, gates + 2 * n, row, n);
    } else
        activate_f(t, gates, row, 3 * n); /* input, output, forget */
    activate_g(t, gates + 3 * n, row, n);
    for (int32_t i = 0; i < t->rows; i++) {
        float *g = gates + i * row, *c = t->cell + i * n;
        for (int64_t j = 0; j < n && t->p->is_coupled; j++)
            g[2 * n + j] = 1 - g[j];
        for (int64_t j = 0; j < n; j++)
            inner[i * n + j] = c[j] = g[2 * n + j] * c[j] + g[j] * g[3 * n + j];
    }
    if (peepholes) {
        look(t, peepholes, 1);
        activate_f(t, gates + n, row, n);
    }
    activate(t, (fx_activation){t->p->h_act, t->p->h_alpha, t->p->h_beta}, inner, n, n);
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
    activate_f(t, gates, row, 2 * n); /* update, reset */
    if (p->kind == FX_CELL_GRU_AFTER) {
        multiply(t, t->h, second, 2 * n, n, 0);
        for (int32_t i = 0; i < t->rows; i++)
            for (int64_t j = 0; j < n; j++) {
                float *g = gates + i * row;
                g[2 * n + j] = t->x[i * t->x_row + 2 * n + j] + g[n + j] * (g[2 * n + j] + bias[j]);
            }
    } else {
        for (int32_t i = 0; i < t->rows; i++)
            for (int64_t j = 0; j < n; j++)
                inner[i * n + j] = gates[i * row + n + j] * t->h[i * n + j];
        multiply(t, inner, second, 2 * n, n, 1);
    }
    activate_g(t, gates + 2 * n, row, n);
    for (int32_t i = 0; i < t->rows; i++)
        for (int64_t j = 0; j < n; j++) {
            const float *g = gates + i * row;
            t->y[i * n + j] = (1 - g[j]) * g[2 * n + j] + g[j] * t->h[i * n + j];
        }
}

static void run_rnn(const step *t) {
    const int64_t n = t->p->hidden;
    multiply(t, t->h, t->weight, 0, n, 1);
    activate_f(t, t->s->gates, n, n);
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

/* Where the direction's row b of step i of `length` lies among the rows of all steps. */
static int64_t row_at(const step *t, int64_t b, int64_t i, int64_t length) {
    const fx_recurrent_params *p = t->p;
    return (is_reverse(p, t->direction) ? length - 1 - i : i) * rows_of(p) + t->direction * p->batch + b;
}

/* The hidden values of row b before step i. */
static const float *hidden_before(const fx_call *call, const step *t, int64_t b, int64_t i) {
    const fx_recurrent_params *p = t->p;
    if (i == 0)
        return (const float *)call->in[2] + (t->direction * p->batch + b) * p->hidden;
    return (const float *)call->out + row_at(t, b, i - 1, length_at(call, b)) * p->hidden;
}

/* t's rows, from b on: their step i, from the hidden values t->h. */
static void run_step(const fx_call *call, step *t, int64_t b, int64_t i) {
    const fx_recurrent_params *p = t->p;
    const int64_t at = row_at(t, b, i, length_at(call, b)), n = p->hidden, gates = gates_of(p->kind) * n;
    t->x_row = p->directions * gates;
    t->x = (const float *)call->in[0] + (at / rows_of(p) * p->batch + b) * t->x_row + t->direction * gates;
    t->y = (float *)call->out + at * n;
    t->cell = (float *)call->out + ((p->steps + INT64_C(1)) * rows_of(p) + t->direction * p->batch + b) * n; /* LSTM */
    if (is_lstm(p->kind))
        run_lstm(t);
    else if (gates_of(p->kind) == 3)
        run_gru(t);
    else
        run_rnn(t);
}

/* Adding it rounds to whole numbers, half to even, what is below 2^22 in size. */
#define WHOLE 0x1.8p23f

/* The step's scale and zero point: those of 8 bits for the range of all rows. */
static void set_range(step *t, float least, float most) {
    t->scale = most > least ? (most - least) / 255 : 1;
    const float middle = -least / t->scale, zero = middle + WHOLE - WHOLE;
    t->zero = zero > 0 ? zero < 255 ? (int32_t)zero : 255 : 0;
}

/* Row b before step i, rounded to 8 bits. */
static void round_hidden(const fx_call *call, const step *t, int64_t b, int64_t i) {
    const int64_t n = t->p->hidden;
    fx_to_bytes to = {.x = hidden_before(call, t, b, i), .y = t->s->bytes + b * depth_of(t->p), .n = n};
    to.scale = t->scale, to.zero = t->zero, to.lo = (float)-t->zero, to.hi = (float)(255 - t->zero);
    t->k->to_bytes_f32(&to);
    const fx_of_bytes of = {.x = to.y, .y = t->s->hidden + b * n, .n = n, .scale = t->scale, .zero = t->zero};
    if (!t->bytes)
        t->k->of_bytes_f32(&of);
}

/* Step by step, as each rounds the hidden values of all rows. */
static void run_quantised(const fx_call *call, step *t) {
    const fx_recurrent_params *p = t->p;
    const int64_t n = p->hidden;
    const int is_of_bytes = multiplies_bytes(call->kernels, p);
    if (is_of_bytes)
        lay_panels(t);
    for (int64_t i = 0; i < p->steps; i++) {
        float least = 0, most = 0;
        for (int64_t b = 0; b < p->batch; b++) {
            if (i >= length_at(call, b))
                continue;
            fx_reduce r = {.x = hidden_before(call, t, b, i), .step = 1, .n = p->hidden, .columns = 1};
            float found;
            r.y = &found;
            r.kind = FX_REDUCE_MIN, call->kernels->reduce_f32(&r);
            least = found < least ? found : least;
            r.kind = FX_REDUCE_MAX, call->kernels->reduce_f32(&r);
            most = found > most ? found : most;
        }
        set_range(t, least, most);
        for (int64_t b = 0; b < p->batch; b += t->rows) {
            t->rows = rows_at(call, b, p->batch);
            t->bytes = is_of_bytes ? t->s->bytes + b * depth_of(p) : NULL;
            if (i >= length_at(call, b))
                continue;
            for (int32_t j = 0; j < t->rows; j++)
                round_hidden(call, t, b + j, i);
            t->h = t->s->hidden + b * n;
            run_step(call, t, b, i);
        }
    }
}

/* All steps of rows from b on, at most up to `end`; returns how many rows. */
static int32_t run_rows(const fx_call *call, step *t, int64_t b, int64_t end) {
    const fx_recurrent_params *p = t->p;
    const int64_t n = p->hidden, length = length_at(call, b), first = t->direction * p->batch + b;
    float *y = call->out, *last = y + p->steps * rows_of(p) * n;
    t->rows = rows_at(call, b, end);
    for (int64_t i = 0; i < length && p->kind != FX_CELL_LSTM_QUANTISED; i++) {
        t->h = hidden_before(call, t, b, i);
        run_step(call, t, b, i);
    }
    for (int64_t i = length; i < p->steps; i++)
        memset(y + (i * rows_of(p) + first) * n, 0, (size_t)(t->rows * n) * sizeof(float));
    for (int32_t j = 0; j < t->rows; j++)
        memcpy(last + (first + j) * n, hidden_before(call, t, b + j, length), (size_t)n * sizeof(float));
    return t->rows;
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_recurrent_params *p = &call->params->recurrent;
    const uint32_t count = units(call->kernels, 0, call->params, call->window, threads);
    const workspace s = workspace_at(call->workspace, call->kernels, p);
    const int64_t n = p->hidden, rows = rows_of(p);
    const int64_t start = fx_cut_at(rows, count, u0), end = fx_cut_at(rows, count, u1);
    float *cell = (float *)call->out + (p->steps + 1) * rows * n;
    if (is_lstm(p->kind) && end > start)
        memcpy(cell + start * n, (const float *)call->in[2] + (rows + start) * n,
               (size_t)((end - start) * n) * sizeof(float));
    step t = {.k = call->kernels, .p = p, .s = &s};
    for (int64_t row = start; row < end;) {
        t.direction = (int32_t)(row / p->batch);
        t.weight = (const float *)call->in[1] + t.direction * weight_floats(p);
        const int64_t before = (int64_t)t.direction * p->batch, to = fx_min64(end - before, p->batch);
        if (p->kind == FX_CELL_LSTM_QUANTISED)
            run_quantised(call, &t);
        for (int64_t b = row - before; b < to;)
            b += run_rows(call, &t, b, to);
        row = before + to;
    }
    return FX_OK;
}

FX_DRIVER(recurrent, .traits = FX_TRAIT_FLUSHES, .workspace = workspace_bytes);
