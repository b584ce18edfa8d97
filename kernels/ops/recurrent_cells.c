/* One step of a recurrent layer: hidden values times packed weights, then what the gates do. */
#include "recurrent.h"

#include <string.h>

/* The product of few rows, or with panels that are not floats: these are read as they are stored, once for FX_FEW_ROWS
 * rows. */
static void multiply_stored(const fx_cell_step *t, const float *packed, int64_t columns, int adds) {
    const fx_recurrent_params *p = t->p;
    const fx_panel_layout panel = fx_cell_panel(p);
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

/* to[row] = from[row] * columns of packed weights (+ the input's part from x on) */
static void multiply_columns(const fx_cell_step *t, const float *from, const float *packed, int64_t columns,
                             const float *x, float *to) {
    const fx_recurrent_params *p = t->p;
    const int64_t row = fx_cell_gates(p->kind) * t->stride, panels = fx_div_up(columns, FX_NR);
    for (int32_t i = 0; i < t->rows; i++) {
        t->s->a[i] = from + (int64_t)i * p->hidden;
        t->s->r[i] = x ? x + i * t->x_row : NULL;
        t->s->c[i] = to + i * row;
    }
    if (fx_cell_reads_stored(p)) {
        multiply_stored(t, packed, columns, x != NULL);
        return;
    }
    fx_gemm g = {.a = t->s->a, .c = t->s->c, .r = x ? t->s->r : NULL, .w_panel = (int64_t)p->hidden * FX_NR};
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

static int is_slice(const fx_cell_step *t) {
    return t->width < t->p->hidden;
}

/* Where the step's first hidden value lies among the columns of a gate's weights, which are packed from gate `packed`
 * on. */
static int64_t column_of(const fx_cell_step *t, int32_t gate, int32_t packed) {
    return (int64_t)(gate - packed) * t->p->hidden + t->first;
}

/* The first gate whose weights are packed with those of this one. */
static int32_t packed_with(const fx_cell_step *t, int32_t gate) {
    return fx_cell_gates(t->p->kind) == 3 && gate == 2 ? 2 : 0;
}

/* A gate of a row, from the step's first hidden value on. */
static float *gate_of(const fx_cell_step *t, int32_t row, int32_t gate) {
    const int64_t before = is_slice(t) ? column_of(t, gate, packed_with(t, gate)) % fx_cell_grain(t->k, t->p) : 0;
    return t->s->gates + ((int64_t)row * fx_cell_gates(t->p->kind) + gate) * t->stride + before;
}

/* `count` gates = from * packed weights (+ the input's part). A slice of a gate is computed with all columns that are
 * multiplied together with its own. */
static void multiply(const fx_cell_step *t, const float *from, const float *packed, int32_t gate, int32_t count,
                     int adds) {
    const int64_t n = t->p->hidden, grain = fx_cell_grain(t->k, t->p);
    if (!is_slice(t)) {
        multiply_columns(t, from, packed, count * n, adds ? t->x + gate * n : NULL, gate_of(t, 0, gate));
        return;
    }
    for (int32_t i = gate; i < gate + count; i++) {
        const int64_t column = column_of(t, i, gate), at = column / grain * grain;
        const int64_t end = fx_min64(fx_round_up(column + t->width, grain), count * n);
        multiply_columns(t, from, packed + fx_cell_floats(t->p, at), end - at, adds ? t->x + gate * n + at : NULL,
                         gate_of(t, 0, i) - column % grain);
    }
}

/* Panels of bytes in which the step's columns of a gate lie, or, where it is no slice, those of all gates: the first,
 * and how many. */
static int64_t panels_of(const fx_cell_step *t, int32_t gate, int64_t *count) {
    *count = is_slice(t) ? fx_div_up(t->width, FX_NR) : fx_cell_columns(t->p) / FX_NR;
    return column_of(t, gate, 0) / FX_NR;
}

void fx_cell_lay_panels(const fx_cell_step *t) {
    const fx_recurrent_params *p = t->p;
    const fx_panel_layout panel = fx_cell_panel(p);
    for (int32_t gate = 0; gate < (is_slice(t) ? 4 : 1); gate++) {
        int64_t count;
        const int64_t first = panels_of(t, gate, &count);
        for (int64_t i = first; i < first + count; i++) {
            const fx_panel_s8 panel_s8 = {.from = (const int8_t *)t->weight + i * panel.bytes + panel.weights,
                                          .to = t->panels + i * FX_NR * fx_cell_depth(p),
                                          .sums = t->columns + i * FX_NR,
                                          .depth = p->hidden};
            t->k->panel_s8(&panel_s8);
        }
    }
}

/* gates[row] = bytes[row] less zero, in steps of scale, * weights + the input's part; one gate, or all of them. */
static void multiply_bytes(const fx_cell_step *t, int32_t gate) {
    const fx_recurrent_params *p = t->p;
    const fx_panel_layout panel = fx_cell_panel(p);
    int64_t count;
    const int64_t at = panels_of(t, gate, &count), column = column_of(t, gate, 0), depth = fx_cell_depth(p);
    fx_gemv_u8 g = {.w_panel = FX_NR * depth, .a_row = depth, .x_row = t->x_row, .c_row = 4 * t->stride};
    g.w = t->panels + at * g.w_panel, g.sums = t->columns + at * FX_NR, g.depth = (int32_t)depth;
    g.columns = (int32_t)(is_slice(t) ? t->width : INT64_C(4) * p->hidden);
    g.scales = (const float *)(const void *)((const char *)t->weight + at * panel.bytes + panel.scales);
    g.scale_panel = panel.bytes / (int64_t)sizeof(float);
    g.scale = t->scale, g.zero = t->zero;
    for (int32_t first = 0; first < t->rows; first += g.rows) {
        g.rows = (int32_t)fx_min64(FX_FEW_ROWS, t->rows - first);
        g.a = t->bytes + first * depth, g.x = t->x + first * t->x_row + column, g.c = gate_of(t, first, gate);
        t->k->gemv_u8(&g);
    }
}

static void activate(const fx_cell_step *t, fx_activation function, float *y, int64_t row, int64_t n) {
    fx_activate_rows(t->k, function, y, t->rows, row, n);
}

/* `count` gates. What f_act and g_act meet is clipped. */
static void activate_gates(const fx_cell_step *t, fx_activation function, int32_t gate, int32_t count) {
    const int64_t row = fx_cell_gates(t->p->kind) * t->stride;
    const int32_t calls = is_slice(t) ? count : 1;
    for (int32_t i = 0; i < calls; i++) {
        float *y = gate_of(t, 0, gate + i);
        const int64_t n = count / calls * t->width;
        if (t->p->clip > 0)
            activate(t, (fx_activation){FX_ACT_CLIP, -t->p->clip, t->p->clip}, y, row, n);
        activate(t, function, y, row, n);
    }
}

static void activate_f(const fx_cell_step *t, int32_t gate, int32_t count) {
    activate_gates(t, (fx_activation){t->p->f_act, t->p->f_alpha, t->p->f_beta}, gate, count);
}

static void activate_g(const fx_cell_step *t, int32_t gate) {
    activate_gates(t, (fx_activation){t->p->g_act, t->p->g_alpha, t->p->g_beta}, gate, 1);
}

/* Adds to a gate what it sees of the cells. */
static void look(const fx_cell_step *t, const float *peepholes, int32_t gate) {
    const int64_t n = t->p->hidden;
    const float *by = peepholes + gate * n + t->first;
    for (int32_t i = 0; i < t->rows; i++) {
        float *g = gate_of(t, i, gate);
        const float *c = t->cell + i * n + t->first;
        for (int64_t j = 0; j < t->width; j++)
            g[j] += by[j] * c[j];
    }
}

/* Whether an LSTM is the usual one, which one kernel computes behind the products. */
static int is_usual(const fx_recurrent_params *p) {
    return p->f_act == FX_ACT_SIGMOID && p->g_act == FX_ACT_TANH && p->h_act == FX_ACT_TANH && !p->is_coupled &&
           p->clip <= 0;
}

static void run_usual(const fx_cell_step *t, const float *peepholes) {
    const int64_t n = t->p->hidden;
    fx_lstm row = {.n = t->width};
    for (int i = 0; i < 3 && peepholes; i++)
        row.look[i] = peepholes + i * n + t->first;
    for (int32_t i = 0; i < t->rows; i++) {
        for (int32_t gate = 0; gate < 4; gate++)
            row.gates[gate] = gate_of(t, i, gate);
        row.cell = t->cell + i * n + t->first, row.y = t->y + i * n + t->first;
        t->k->lstm_f32(&row);
    }
}

static void run_lstm(const fx_cell_step *t) {
    const int64_t n = t->p->hidden, width = t->width;
    float *inner = t->s->inner;
    for (int32_t gate = 0; t->panels && gate < (is_slice(t) ? 4 : 1); gate++)
        multiply_bytes(t, gate);
    if (!t->panels)
        multiply(t, t->h, t->weight, 0, 4, 1);
    const float *peepholes = t->p->has_peepholes ? t->weight + fx_cell_floats(t->p, 4 * n) : NULL;
    if (is_usual(t->p)) {
        run_usual(t, peepholes);
        return;
    }
    if (peepholes) {
        look(t, peepholes, 0);
        look(t, peepholes, 2);
        activate_f(t, 0, 1);
        activate_f(t, 2, 1);
    } else
        activate_f(t, 0, 3); /* input, output, forget */
    activate_g(t, 3);
    for (int32_t i = 0; i < t->rows; i++) {
        const float *in = gate_of(t, i, 0), *new_cell = gate_of(t, i, 3);
        float *forget = gate_of(t, i, 2), *c = t->cell + i * n + t->first;
        for (int64_t j = 0; j < width && t->p->is_coupled; j++)
            forget[j] = 1 - in[j];
        for (int64_t j = 0; j < width; j++)
            inner[i * width + j] = c[j] = forget[j] * c[j] + in[j] * new_cell[j];
    }
    if (peepholes) {
        look(t, peepholes, 1);
        activate_f(t, 1, 1);
    }
    activate(t, (fx_activation){t->p->h_act, t->p->h_alpha, t->p->h_beta}, inner, width, width);
    for (int32_t i = 0; i < t->rows; i++) {
        const float *out = gate_of(t, i, 1);
        float *y = t->y + i * n + t->first;
        for (int64_t j = 0; j < width; j++)
            y[j] = out[j] * inner[i * width + j];
    }
}

static void run_gru(const fx_cell_step *t) {
    const fx_recurrent_params *p = t->p;
    const int64_t n = p->hidden, width = t->width;
    const float *second = t->weight + fx_cell_floats(p, 2 * n);
    multiply(t, t->h, t->weight, 0, 2, 1);
    activate_f(t, 0, 2); /* update, reset */
    if (p->kind == FX_CELL_GRU_AFTER) {
        const float *bias = second + fx_cell_floats(p, n) + t->first;
        multiply(t, t->h, second, 2, 1, 0);
        for (int32_t i = 0; i < t->rows; i++) {
            const float *x = t->x + i * t->x_row + 2 * n + t->first, *reset = gate_of(t, i, 1);
            float *new_hidden = gate_of(t, i, 2);
            for (int64_t j = 0; j < width; j++)
                new_hidden[j] = x[j] + reset[j] * (new_hidden[j] + bias[j]);
        }
    } else {
        float *inner = t->s->inner;
        for (int32_t i = 0; i < t->rows; i++)
            for (int64_t j = 0; j < n; j++)
                inner[i * n + j] = gate_of(t, i, 1)[j] * t->h[i * n + j];
        multiply(t, inner, second, 2, 1, 1);
    }
    activate_g(t, 2);
    for (int32_t i = 0; i < t->rows; i++) {
        const float *update = gate_of(t, i, 0), *new_hidden = gate_of(t, i, 2), *h = t->h + i * n + t->first;
        float *y = t->y + i * n + t->first;
        for (int64_t j = 0; j < width; j++)
            y[j] = (1 - update[j]) * new_hidden[j] + update[j] * h[j];
    }
}

static void run_rnn(const fx_cell_step *t) {
    multiply(t, t->h, t->weight, 0, 1, 1);
    activate_f(t, 0, 1);
    for (int32_t i = 0; i < t->rows; i++)
        memcpy(t->y + i * t->p->hidden + t->first, gate_of(t, i, 0), (size_t)t->width * sizeof(float));
}

void fx_cell_run(const fx_cell_step *t) {
    if (fx_cell_is_lstm(t->p->kind))
        run_lstm(t);
    else if (fx_cell_gates(t->p->kind) == 3)
        run_gru(t);
    else
        run_rnn(t);
}
