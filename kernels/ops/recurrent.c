/* Recurrent layers over a sequence whose inputs are multiplied already: each step multiplies the hidden values of the
 * step before by packed weights (the gemm tile), and the gates do the rest. Rows of the batch and directions are
 * independent; steps are not, so that threads which have no rows of their own compute slices of each step's hidden
 * values and wait for one another behind it: a phase is a step. https://onnx.ai/onnx/operators/onnx__LSTM.html, GRU,
 * RNN. */
#include "recurrent.h"
#include "units.h"

#include <math.h>
#include <string.h>

#define FAR_BYTES (1 << 19) /* weights that take more are read again from beyond a core's own cache in each step */

static int32_t states_of(int32_t kind) {
    return fx_cell_is_lstm(kind) ? 2 : 1;
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
    const int32_t gates = fx_cell_gates(p->kind);
    return (int64_t)(gates == 3 ? 2 : gates) * p->hidden;
}

/* Of one direction. */
static int64_t weight_floats(const fx_recurrent_params *p) {
    const int is_gru = fx_cell_gates(p->kind) == 3;
    return fx_cell_floats(p, first_columns(p)) + (is_gru ? fx_cell_floats(p, p->hidden) : 0) +
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
        !is_function(p->h_act, p->h_alpha, p->h_beta) || p->is_coupled < 0 ||
        p->is_coupled > fx_cell_is_lstm(p->kind) || !(p->clip >= 0))
        return FX_ERR_PARAMS;
    if (kernel != 0 || p->kind < 0 || p->kind >= FX_CELL_COUNT || p->steps < 1 || p->batch < 1 || p->hidden < 1 ||
        p->directions < 1 || p->directions > 2 || p->is_reverse < 0 || p->is_reverse > 2 - p->directions ||
        p->hidden > 1 << 20 || p->steps > INT32_MAX - 2)
        return FX_ERR_PARAMS;
    if (p->has_lengths < 0 || p->has_lengths > 1 || p->has_peepholes < 0 ||
        p->has_peepholes > fx_cell_is_lstm(p->kind) || p->wtype < 0 || p->wtype >= FX_WTYPE_COUNT ||
        fx_weight_forms[p->wtype].block)
        return FX_ERR_PARAMS;
    const int64_t row = (int64_t)fx_cell_gates(p->kind) * p->hidden;
    return rows_of(p) * (p->steps + 2) <= FX_ELEMENTS_MAX / row ? FX_OK : FX_ERR_PARAMS;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_recurrent_params *p = &u->recurrent;
    const int64_t step = rows_of(p) * p->hidden;
    const int64_t floats = operand == 0   ? p->steps * step * fx_cell_gates(p->kind)
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

static fx_cell_workspace workspace_at(void *base, const fx_kernels *k, const fx_recurrent_params *p) {
    int64_t at = 0;
    fx_cell_workspace s;
    FX_TAKE(s.a, base, at, k->mr);
    FX_TAKE(s.r, base, at, k->mr);
    FX_TAKE(s.c, base, at, k->mr);
    FX_TAKE(s.gates, base, at, (int64_t)k->mr * fx_cell_gates(p->kind) * p->hidden);
    FX_TAKE(s.inner, base, at, (int64_t)k->mr * p->hidden);
    const int rounds = p->kind == FX_CELL_LSTM_QUANTISED, is_of_bytes = rounds && multiplies_bytes(k, p);
    FX_TAKE(s.hidden, base, at, rounds && !is_of_bytes ? (int64_t)p->batch * p->hidden : 0);
    FX_TAKE(s.bytes, base, at, rounds ? p->batch * fx_cell_depth(p) : 0);
    FX_TAKE(s.panels, base, at, is_of_bytes ? fx_cell_columns(p) * fx_cell_depth(p) : 0);
    FX_TAKE(s.columns, base, at, is_of_bytes ? fx_cell_columns(p) : 0);
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

/* Whether LSTM_QUANTISED can be cut into slices: each lays its own panels, which no two may share. */
static int has_slices(const fx_kernels *k, const fx_recurrent_params *p) {
    return !multiplies_bytes(k, p) || p->hidden % FX_NR == 0;
}

/* Each direction's hidden values in equal slices. Those of a GRU that multiplies what its reset gate left wait for that
 * within a step. Of LSTM_QUANTISED, whose rows are one unit, every slice rounds all hidden values. */
static fx_phases phases(const fx_kernels *k, const fx_params *u, int threads) {
    const fx_recurrent_params *p = &u->recurrent;
    const fx_phases none = {.count = 1};
    const int rounds = p->kind == FX_CELL_LSTM_QUANTISED;
    const int64_t tiles = p->directions * fx_div_up(p->batch, k->mr), wanted = threads / p->directions;
    const int is_far = p->directions * weight_floats(p) * (int64_t)sizeof(float) > FAR_BYTES;
    if (p->kind == FX_CELL_GRU || wanted < 2 || (rounds && !has_slices(k, p)) ||
        (!rounds && (tiles >= threads || (rows_of(p) >= threads && !is_far))))
        return none;
    const int64_t width = fx_round_up(fx_div_up(p->hidden, wanted), fx_cell_grain(k, p));
    if (fx_cell_stride(k, p, width) > p->hidden)
        return none;
    return (fx_phases){p->steps, (uint32_t)(p->directions * fx_div_up(p->hidden, width))};
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
static int64_t row_at(const fx_cell_step *t, int64_t b, int64_t i, int64_t length) {
    const fx_recurrent_params *p = t->p;
    return (is_reverse(p, t->direction) ? length - 1 - i : i) * rows_of(p) + t->direction * p->batch + b;
}

/* The hidden values of row b before step i. */
static const float *hidden_before(const fx_call *call, const fx_cell_step *t, int64_t b, int64_t i) {
    const fx_recurrent_params *p = t->p;
    if (i == 0)
        return (const float *)call->in[2] + (t->direction * p->batch + b) * p->hidden;
    return (const float *)call->out + row_at(t, b, i - 1, length_at(call, b)) * p->hidden;
}

/* t's rows, from b on: their step i, from the hidden values t->h. */
static void run_step(const fx_call *call, fx_cell_step *t, int64_t b, int64_t i) {
    const fx_recurrent_params *p = t->p;
    const int64_t at = row_at(t, b, i, length_at(call, b)), n = p->hidden, gates = fx_cell_gates(p->kind) * n;
    t->x_row = p->directions * gates;
    t->x = (const float *)call->in[0] + (at / rows_of(p) * p->batch + b) * t->x_row + t->direction * gates;
    t->y = (float *)call->out + at * n;
    t->cell = (float *)call->out + ((p->steps + INT64_C(1)) * rows_of(p) + t->direction * p->batch + b) * n; /* LSTM */
    fx_cell_run(t);
}

/* Adding it rounds to whole numbers, half to even, what is below 2^22 in size. */
#define WHOLE 0x1.8p23f

/* The step's scale and zero point: those of 8 bits for the range of all rows. */
static void set_range(fx_cell_step *t, float least, float most) {
    t->scale = most > least ? (most - least) / 255 : 1;
    const float middle = -least / t->scale, zero = middle + WHOLE - WHOLE;
    t->zero = zero > 0 ? zero < 255 ? (int32_t)zero : 255 : 0;
}

/* Row b before step i, rounded to 8 bits. */
static void round_hidden(const fx_call *call, const fx_cell_step *t, int64_t b, int64_t i) {
    const int64_t n = t->p->hidden;
    fx_to_bytes to = {.x = hidden_before(call, t, b, i), .y = t->s->bytes + b * fx_cell_depth(t->p), .n = n};
    to.scale = t->scale, to.zero = t->zero, to.lo = (float)-t->zero, to.hi = (float)(255 - t->zero);
    t->k->to_bytes_f32(&to);
    const fx_of_bytes of = {.x = to.y, .y = t->s->hidden + b * n, .n = n, .scale = t->scale, .zero = t->zero};
    if (!t->panels)
        t->k->of_bytes_f32(&of);
}

/* All rows of the direction before step i, rounded by the range of those that have it. */
static void round_rows(const fx_call *call, fx_cell_step *t, int64_t i) {
    const fx_recurrent_params *p = t->p;
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
    for (int64_t b = 0; b < p->batch; b++)
        if (i < length_at(call, b))
            round_hidden(call, t, b, i);
}

/* Step i of all rows of a direction, which rounds their hidden values together where it does. */
static void run_rows_step(const fx_call *call, fx_cell_step *t, int64_t i) {
    const fx_recurrent_params *p = t->p;
    const int rounds = p->kind == FX_CELL_LSTM_QUANTISED;
    if (rounds)
        round_rows(call, t, i);
    for (int64_t b = 0; b < p->batch; b += t->rows) {
        t->rows = rows_at(call, b, p->batch);
        if (i >= length_at(call, b))
            continue;
        t->h = rounds ? t->s->hidden + b * p->hidden : hidden_before(call, t, b, i);
        t->bytes = rounds ? t->s->bytes + b * fx_cell_depth(p) : NULL;
        run_step(call, t, b, i);
    }
}

/* What stands behind the steps of t's rows, from b on: zeros beyond their length, and the last hidden values. */
static void end_rows(const fx_call *call, const fx_cell_step *t, int64_t b) {
    const fx_recurrent_params *p = t->p;
    const int64_t n = p->hidden, length = length_at(call, b), first = t->direction * p->batch + b;
    const size_t bytes = (size_t)t->width * sizeof(float);
    float *y = (float *)call->out + t->first;
    for (int64_t j = first; j < first + t->rows; j++) {
        for (int64_t i = length; i < p->steps; i++)
            memset(y + (i * rows_of(p) + j) * n, 0, bytes);
        memcpy(y + (p->steps * rows_of(p) + j) * n,
               hidden_before(call, t, j - t->direction * p->batch, length) + t->first, bytes);
    }
}

/* All steps of rows from b on, at most up to `end`; returns how many rows. */
static int32_t run_rows(const fx_call *call, fx_cell_step *t, int64_t b, int64_t end) {
    const int64_t length = length_at(call, b);
    t->rows = rows_at(call, b, end);
    for (int64_t i = 0; i < length && t->p->kind != FX_CELL_LSTM_QUANTISED; i++) {
        t->h = hidden_before(call, t, b, i);
        run_step(call, t, b, i);
    }
    end_rows(call, t, b);
    return t->rows;
}

/* The cells of rows [start, end) of all directions before the first step: the step's slice of them. */
static void begin_cells(const fx_call *call, const fx_cell_step *t, int64_t start, int64_t end) {
    const fx_recurrent_params *p = t->p;
    const int64_t n = p->hidden, rows = rows_of(p);
    const float *from = (const float *)call->in[2] + rows * n + t->first;
    float *to = (float *)call->out + (p->steps + 1) * rows * n + t->first;
    for (int64_t i = start; i < end && fx_cell_is_lstm(p->kind); i++)
        memcpy(to + i * n, from + i * n, (size_t)t->width * sizeof(float));
}

/* Where the direction's panels of bytes are laid: in a phase for all threads. */
static void set_panels(const fx_call *call, fx_cell_step *t) {
    const fx_recurrent_params *p = t->p;
    if (p->kind != FX_CELL_LSTM_QUANTISED || !multiplies_bytes(call->kernels, p))
        return;
    char *const shared = call->phase ? (char *)call->shared + t->direction * call->shared_step : call->workspace;
    const fx_cell_workspace s = workspace_at(shared, call->kernels, p);
    t->panels = s.panels, t->columns = s.columns;
}

/* What stands before the direction's first step, of the step's slice. */
static void begin_direction(const fx_call *call, const fx_cell_step *t) {
    const int64_t row = (int64_t)t->direction * t->p->batch;
    begin_cells(call, t, row, row + t->p->batch);
    if (t->panels)
        fx_cell_lay_panels(t);
}

/* Step `i` of units [u0, u1), each a slice of a direction's hidden values. */
static void run_phase(const fx_call *call, fx_cell_step *t, int32_t i, fx_phases phases, uint32_t u0, uint32_t u1) {
    const fx_recurrent_params *p = t->p;
    const uint32_t slices = phases.units / (uint32_t)p->directions;
    const int64_t slice = fx_round_up(fx_div_up(p->hidden, slices), fx_cell_grain(t->k, p));
    for (uint32_t u = u0; u < u1; u++) {
        t->direction = (int32_t)(u / slices);
        t->weight = (const float *)call->in[1] + t->direction * weight_floats(p);
        t->first = u % slices * slice;
        t->width = fx_min64(slice, p->hidden - t->first);
        t->stride = fx_cell_stride(t->k, p, slice);
        set_panels(call, t);
        if (i == 0)
            begin_direction(call, t);
        run_rows_step(call, t, i);
        for (int64_t b = 0; b < p->batch && i == p->steps - 1; b += t->rows) {
            t->rows = rows_at(call, b, p->batch);
            end_rows(call, t, b);
        }
    }
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_recurrent_params *p = &call->params->recurrent;
    const fx_cell_workspace s = workspace_at(call->workspace, call->kernels, p);
    fx_cell_step t = {.k = call->kernels, .p = p, .s = &s, .width = p->hidden, .stride = p->hidden};
    if (call->phase) {
        run_phase(call, &t, call->phase - 1, phases(call->kernels, call->params, threads), u0, u1);
        return FX_OK;
    }
    const uint32_t count = units(call->kernels, 0, call->params, call->window, threads);
    const int64_t rows = rows_of(p), start = fx_cut_at(rows, count, u0), end = fx_cut_at(rows, count, u1);
    begin_cells(call, &t, start, end);
    for (int64_t row = start; row < end;) {
        t.direction = (int32_t)(row / p->batch);
        t.weight = (const float *)call->in[1] + t.direction * weight_floats(p);
        const int64_t before = (int64_t)t.direction * p->batch, to = fx_min64(end - before, p->batch);
        if (p->kind == FX_CELL_LSTM_QUANTISED) {
            set_panels(call, &t);
            if (t.panels)
                fx_cell_lay_panels(&t);
            for (int64_t i = 0; i < p->steps; i++)
                run_rows_step(call, &t, i);
        }
        for (int64_t b = row - before; b < to;)
            b += run_rows(call, &t, b, to);
        row = before + to;
    }
    return FX_OK;
}

FX_DRIVER(recurrent, .traits = FX_TRAIT_FLUSHES, .workspace = workspace_bytes, .phases = phases);
