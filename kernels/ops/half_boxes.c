/* Functions and arithmetic of elements of 16 bits: runs of them are widened, computed as floats and narrowed again,
 * while they are in the L1 cache. */
#include "box.h"
#include "half.h"

#include "flexnn/half.h"

#define CHUNK 1024 /* elements of a run */

/* A run of one operand: where it lies, and as floats. */
typedef struct run {
    const void *at; /* of the operand as it is */
    int64_t rows, n, row, step;
    float *room; /* [CHUNK] */
    int is_half;
} run;

static float half_at(const run *r, int64_t i, int64_t j) {
    return (float)fx_half_to(((const uint16_t *)r->at)[i * r->row + j * r->step]);
}

/* The run as floats; its row and step become theirs. */
static const float *widened(const fx_kernels *k, run *r) {
    if (!r->is_half)
        return r->at;
    if (r->step == 1)
        k->widen_f16(&(fx_widening){r->at, r->room, r->rows, r->n, r->row, r->n});
    else if (!r->step) /* broadcast: one number for each row */
        for (int64_t i = 0; i < r->rows; i++) {
            const float v = half_at(r, i, 0);
            for (int64_t j = 0; j < r->n; j++)
                r->room[i * r->n + j] = v;
        }
    else
        for (int64_t i = 0; i < r->rows; i++)
            for (int64_t j = 0; j < r->n; j++)
                r->room[i * r->n + j] = half_at(r, i, j);
    r->row = r->n, r->step = 1;
    return r->room;
}

/* Stores floats of the room as the output's halves; returns 1 if one is beyond them. */
static int narrowed(const fx_kernels *k, const run *r) {
    if (r->step == 1)
        return k->narrow_f16(&(fx_narrowing){r->room, (uint16_t *)(uintptr_t)r->at, r->rows, r->n, r->n, r->row});
    int is_beyond = 0;
    for (int64_t i = 0; i < r->rows; i++)
        for (int64_t j = 0; j < r->n; j++) {
            uint16_t half;
            is_beyond |= k->narrow_f16(&(fx_narrowing){r->room + i * r->n + j, &half, 1, 1, 1, 1});
            ((uint16_t *)(uintptr_t)r->at)[i * r->row + j * r->step] = half;
        }
    return is_beyond;
}

static run run_of(const fx_box *b, const fx_box_run *of, int operand, const void *base, int is_half, float *room) {
    run r = {.rows = of->rows, .n = of->n, .is_half = is_half, .room = room};
    r.at = (const char *)base + of->at[operand] * (is_half ? (int64_t)sizeof(uint16_t) : (int64_t)sizeof(float));
    r.row = b->s[operand][FX_DIMS - 2], r.step = b->s[operand][FX_DIMS - 1];
    return r;
}

static uint32_t units_of(const fx_box *b, int threads) {
    return fx_box_units(fx_box_elements(b) * 2 * (int64_t)sizeof(float), threads);
}

/* Where floats of an output are computed, with their strides: its room, or the output itself. */
static float *place(run *y, int64_t *row, int64_t *step) {
    *row = y->is_half ? y->n : y->row;
    *step = y->is_half ? 1 : y->step;
    return y->is_half ? y->room : (float *)(uintptr_t)y->at;
}

/* ---- unary ---- */

static fx_box unary_box(const fx_params *u, fx_window w) {
    return fx_box_window(FX_SIX(u, unary, d), (const int32_t *[]){FX_SIX(u, unary, xs), FX_SIX(u, unary, ys)}, 2, w.y0,
                         w.y1);
}

static uint32_t unary_units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    if (w.y0 >= w.y1 || w.c0 >= w.c1)
        return 0;
    const fx_box b = unary_box(u, w);
    return units_of(&b, threads);
}

static fx_status unary_run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_unary_f16_params *p = &call->params->unary_f16;
    const fx_box b = unary_box(call->params, call->window);
    const uint32_t units = units_of(&b, threads);
    const int64_t total = fx_box_elements(&b), end = fx_box_cut(total, units, u1);
    int is_beyond = 0;
    float rooms[2][CHUNK];
    fx_unary f = {.kind = p->kind, .alpha = p->alpha, .beta = p->beta};
    for (int64_t e = fx_box_cut(total, units, u0); e < end; e += f.rows * f.n) {
        const fx_box_run of = fx_box_next(&b, e, end, CHUNK);
        run x = run_of(&b, &of, 0, call->in[0], fx_is_half(p->f16, 0), rooms[0]);
        run y = run_of(&b, &of, 1, call->out, fx_is_half(p->f16, FX_OUTPUT), rooms[1]);
        f.rows = of.rows, f.n = of.n;
        f.x = widened(call->kernels, &x), f.x_row = x.row, f.x_step = x.step;
        f.y = place(&y, &f.y_row, &f.y_step);
        call->kernels->unary_f32(&f);
        if (y.is_half)
            is_beyond |= narrowed(call->kernels, &y);
    }
    return is_beyond ? FX_ERR_RANGE : FX_OK;
}

FX_HALF_DRIVER(unary_f16, unary, 1)
const fx_op_impl fx_unary_f16_impl = {.traits = FX_TRAIT_ROWS,
                                      FX_HALF_MEMBERS(unary_f16),
                                      .check = unary_f16_check,
                                      .units = unary_units,
                                      .run = unary_run};

/* ---- binary ---- */

static fx_box binary_box(const fx_params *u, fx_window w) {
    return fx_box_window(FX_SIX(u, binary, d),
                         (const int32_t *[]){FX_SIX(u, binary, as), FX_SIX(u, binary, bs), FX_SIX(u, binary, ys)}, 3,
                         w.y0, w.y1);
}

static uint32_t binary_units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    if (w.y0 >= w.y1 || w.c0 >= w.c1)
        return 0;
    const fx_box b = binary_box(u, w);
    return units_of(&b, threads);
}

static fx_status binary_run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_binary_f16_params *p = &call->params->binary_f16;
    const fx_kernels *k = call->kernels;
    const fx_box b = binary_box(call->params, call->window);
    const uint32_t units = units_of(&b, threads);
    const int64_t total = fx_box_elements(&b), end = fx_box_cut(total, units, u1);
    const int is_activated = p->act > FX_ACT_CLIP;
    const fx_finish clamp = fx_finish_of(is_activated ? FX_ACT_NONE : p->act, p->alpha, p->beta);
    int is_beyond = 0;
    float rooms[3][CHUNK];
    fx_binary f = {.kind = p->kind, .lo = clamp.lo, .hi = clamp.hi};
    for (int64_t e = fx_box_cut(total, units, u0); e < end; e += f.rows * f.n) {
        const fx_box_run of = fx_box_next(&b, e, end, CHUNK);
        run x[2], y = run_of(&b, &of, 2, call->out, fx_is_half(p->f16, FX_OUTPUT), rooms[2]);
        for (int o = 0; o < 2; o++)
            x[o] = run_of(&b, &of, o, call->in[o], fx_is_half(p->f16, o), rooms[o]);
        f.rows = of.rows, f.n = of.n;
        f.a = widened(k, &x[0]), f.a_row = x[0].row, f.a_step = x[0].step;
        f.b = widened(k, &x[1]), f.b_row = x[1].row, f.b_step = x[1].step;
        f.y = place(&y, &f.y_row, &f.y_step);
        k->binary_f32(&f);
        if (is_activated)
            k->unary_f32(
                &(fx_unary){f.y, f.y, f.rows, f.n, f.y_row, f.y_step, f.y_row, f.y_step, p->act, p->alpha, p->beta});
        if (y.is_half)
            is_beyond |= narrowed(k, &y);
    }
    return is_beyond ? FX_ERR_RANGE : FX_OK;
}

FX_HALF_DRIVER(binary_f16, binary, 2)
const fx_op_impl fx_binary_f16_impl = {.traits = FX_TRAIT_ROWS,
                                       FX_HALF_MEMBERS(binary_f16),
                                       .check = binary_f16_check,
                                       .units = binary_units,
                                       .run = binary_run};
