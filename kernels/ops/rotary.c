/* Rotary embedding: pairs of a row's elements turned by the angles of its token. */
#include "units.h"

#include <string.h>

static fx_window full_window(const fx_params *u) {
    const fx_rotary_params *p = &u->rotary;
    return (fx_window){0, p->batch * p->heads * p->tokens, 0, p->d};
}

/* Sizes and strides of an operand, FX_OUTPUT too; in[1] and in[2], cosines and sines, are alike. */
static fx_operand operand_of(const fx_rotary_params *p, int operand) {
    const int32_t angles = p->turned / 2 + p->second;
    switch (operand) {
    case 0:
        return (fx_operand){{p->batch, p->heads, p->tokens, p->d}, {p->x_sb, p->x_sh, p->x_st, 1}};
    case FX_OUTPUT:
        return (fx_operand){{p->batch, p->heads, p->tokens, p->d}, {p->y_sb, p->y_sh, p->y_st, 1}};
    default:
        return (fx_operand){{p->batch, p->heads, p->tokens, angles}, {p->c_sb, p->c_sh, p->c_st, 1}};
    }
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_rotary_params *p = &u->rotary;
    if (kernel != 0 || p->batch < 1 || p->heads < 1 || p->tokens < 1 || p->turned < 2 || p->turned % 2 ||
        p->d < p->turned || p->is_interleaved < 0 || p->is_interleaved > 1)
        return FX_ERR_PARAMS;
    if (p->second != 0 && (p->second != p->turned / 2 || p->is_interleaved))
        return FX_ERR_PARAMS;
    if ((int64_t)p->batch * p->heads > INT32_MAX / p->tokens)
        return FX_ERR_PARAMS;
    for (int i = 0; i <= FX_OUTPUT; i++) {
        const fx_operand o = operand_of(p, i);
        if (i != 3 && !fx_operand_fits(o, i == FX_OUTPUT))
            return FX_ERR_PARAMS;
    }
    return FX_OK;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    if (operand == 3)
        return;
    const fx_operand o = operand_of(&u->rotary, operand);
    fx_operand_extent(o, lo, hi);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_operand_bytes(operand_of(&u->rotary, FX_OUTPUT));
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    return fx_units_of(w.y1 - w.y0, (int64_t)u->rotary.d * 2 * (int64_t)sizeof(float), threads);
}

#define BLOCK 16 /* pairs computed beside the memory, where compilers see that nothing overlaps */

/* A pair is read before it is written: y may be x. */
static void turn_halves(const float *x, const float *c, const float *s, float *y, int32_t half, int32_t second) {
    int32_t i = 0;
    for (; i + BLOCK <= half; i += BLOCK) {
        float first[BLOCK], later[BLOCK];
        for (int32_t j = 0; j < BLOCK; j++) {
            const float a = x[i + j], b = x[half + i + j];
            first[j] = a * c[i + j] - b * s[i + j];
            later[j] = b * c[second + i + j] + a * s[second + i + j];
        }
        memcpy(y + i, first, sizeof first);
        memcpy(y + half + i, later, sizeof later);
    }
    for (; i < half; i++) {
        const float a = x[i], b = x[half + i];
        y[i] = a * c[i] - b * s[i];
        y[half + i] = b * c[second + i] + a * s[second + i];
    }
}

static void turn_neighbours(const float *x, const float *c, const float *s, float *y, int32_t half) {
    for (int32_t i = 0; i < half; i++) {
        const float a = x[2 * i], b = x[2 * i + 1];
        y[2 * i] = a * c[i] - b * s[i];
        y[2 * i + 1] = b * c[i] + a * s[i];
    }
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_rotary_params *p = &call->params->rotary;
    const fx_window *w = &call->window;
    const int64_t rows = w->y1 - w->y0, pieces = units(call->kernels, call->kernel, call->params, *w, threads);
    const int64_t last = w->y0 + fx_cut_at(rows, pieces, u1);
    for (int64_t row = w->y0 + fx_cut_at(rows, pieces, u0); row < last; row++) {
        const int64_t token = row % p->tokens, head = row / p->tokens % p->heads, batch = row / p->tokens / p->heads;
        const int64_t angle = batch * p->c_sb + head * p->c_sh + token * p->c_st;
        const float *x = (const float *)call->in[0] + batch * p->x_sb + head * p->x_sh + token * p->x_st;
        const float *c = (const float *)call->in[1] + angle, *s = (const float *)call->in[2] + angle;
        float *y = (float *)call->out + batch * p->y_sb + head * p->y_sh + token * p->y_st;
        if (p->is_interleaved)
            turn_neighbours(x, c, s, y, p->turned / 2);
        else
            turn_halves(x, c, s, y, p->turned / 2, p->second);
        if (x != y)
            memcpy(y + p->turned, x + p->turned, (size_t)(p->d - p->turned) * sizeof(float));
    }
    return FX_OK;
}

FX_DRIVER(rotary, .traits = FX_TRAIT_ROWS);
