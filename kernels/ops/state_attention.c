/* Attention of new tokens over the keys and values in state, their own among them. */
#include "attend.h"
#include "state.h"
#include "units.h"

#include <math.h>

/* The attention over a full state. */
static fx_attention_params full(const fx_state_attention_params *p) {
    fx_attention_params a = {.batch = 1, .heads = p->heads, .groups = p->groups, .m = p->m, .n = p->capacity};
    a.d = a.dv = a.k_st = a.v_st = p->d;
    a.q_sh = p->q_sh, a.q_st = p->q_st;
    a.k_sh = a.v_sh = p->capacity * p->d;
    a.y_sh = p->y_sh, a.y_st = p->y_st;
    a.is_causal = !p->is_whole;
    a.scale = p->scale, a.window = p->window, a.softcap = p->softcap;
    return a;
}

static fx_window full_window(const fx_params *u) {
    return (fx_window){0, u->state_attention.heads * u->state_attention.m, 0, u->state_attention.d};
}

/* Queries, or the output. */
static fx_operand operand_of(const fx_state_attention_params *p, int operand) {
    const int is_output = operand == FX_OUTPUT;
    return (fx_operand){{1, p->heads, p->m, p->d},
                        {0, is_output ? p->y_sh : p->q_sh, is_output ? p->y_st : p->q_st, 1}};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_state_attention_params *p = &u->state_attention;
    if (kernel != 0 || !fx_state_fits(p->dtype, p->groups, p->capacity, p->d) || p->m < 1 ||
        (p->m > p->capacity && !p->is_whole) || p->heads < 1 || p->heads % p->groups || p->heads > INT32_MAX / p->m ||
        p->window < 0 || p->has_sinks < 0 || p->has_sinks > 1 || p->has_bias < 0 || p->has_bias > 1 - p->has_sinks ||
        p->is_whole < 0 || p->is_whole > 1 || (p->is_whole && (p->window || p->has_bias)) ||
        (p->has_bias && p->softcap != 0) || !(p->scale > 0) || !(p->softcap >= 0) || isinf(p->scale) ||
        isinf(p->softcap))
        return FX_ERR_PARAMS;
    if (!fx_operand_fits(operand_of(p, 0), 0) || !fx_operand_fits(operand_of(p, FX_OUTPUT), 1))
        return FX_ERR_PARAMS;
    return FX_OK;
}

static int64_t element_bytes(const fx_params *u, int operand) {
    return operand == 1 ? fx_dtype_bytes(u->state_attention.dtype) : operand == 2 ? 8 : 4;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_state_attention_params *p = &u->state_attention;
    if (operand == 0 || operand == FX_OUTPUT) {
        fx_operand_extent(operand_of(p, operand), lo, hi);
        return;
    }
    *lo = 0;
    *hi = operand == 1   ? fx_state_bytes(p->dtype, p->groups, p->capacity, p->d)
          : operand == 2 ? 8
                         : 4 * (int64_t)p->heads * (p->has_bias ? p->capacity : p->has_sinks);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_operand_bytes(operand_of(&u->state_attention, FX_OUTPUT));
}

static int64_t workspace_bytes(const fx_kernels *k, uint32_t kernel, const fx_params *u) {
    const fx_attention_params a = full(&u->state_attention);
    (void)kernel;
    return fx_attend_workspace(k, &a, u->state_attention.dtype != FX_DTYPE_F32);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    const fx_attention_params a = full(&u->state_attention);
    (void)k, (void)kernel;
    return fx_attend_units(&a, w, threads);
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_state_attention_params *p = &call->params->state_attention;
    fx_attend_state state = {.rows = call->in[1]};
    state.sinks = p->has_sinks ? call->in[3] : NULL;
    state.bias = p->has_bias ? call->in[3] : NULL;
    state.dtype = p->dtype;
    state.is_whole = p->is_whole;
    state.capacity = p->capacity;
    if (!fx_state_length(call->in[2], p->is_whole ? 0 : p->m, p->capacity, &state.length) ||
        (p->is_whole && !state.length))
        return FX_ERR_INDEX;
    const fx_attention_params most = full(p);
    fx_attend(call, &most, &state, threads, u0, u1);
    return FX_OK;
}

FX_DRIVER(state_attention, .traits = FX_TRAIT_ROWS | FX_TRAIT_FLUSHES, .workspace = workspace_bytes,
          .element_bytes = element_bytes);
