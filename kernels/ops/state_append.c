/* Keys and values of new tokens, appended to state. */
#include "state.h"
#include "units.h"

#include "flexnn/half.h"

#include <math.h>
#include <string.h>

static fx_window full_window(const fx_params *u) {
    const fx_state_append_params *p = &u->state_append;
    return (fx_window){0, 2 * p->groups * p->m, 0, p->d};
}

/* Keys and values as operands; in[2] and the output have no strides. */
static fx_operand operand_of(const fx_state_append_params *p, int operand) {
    const int32_t head = operand ? p->v_sh : p->k_sh, token = operand ? p->v_st : p->k_st;
    return (fx_operand){{1, p->groups, p->m, p->d}, {0, head, token, 1}};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_state_append_params *p = &u->state_append;
    if (kernel != 0 || !fx_state_fits(p->dtype, p->groups, p->capacity, p->d) || p->m < 1 || p->m > p->capacity ||
        p->groups > INT32_MAX / 2 / p->m)
        return FX_ERR_PARAMS;
    return fx_operand_fits(operand_of(p, 0), 0) && fx_operand_fits(operand_of(p, 1), 0) ? FX_OK : FX_ERR_PARAMS;
}

static int64_t element_bytes(const fx_params *u, int operand) {
    return operand < 2 ? 4 : operand == 2 ? 8 : fx_dtype_bytes(u->state_append.dtype);
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_state_append_params *p = &u->state_append;
    if (operand < 2) {
        fx_operand_extent(operand_of(p, operand), lo, hi);
        return;
    }
    *lo = 0;
    *hi = operand == 2 ? 8 : operand == FX_OUTPUT ? fx_state_bytes(p->dtype, p->groups, p->capacity, p->d) : 0;
}

static int64_t output_bytes(const fx_params *u) {
    return fx_contiguous_bytes(extent, u);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    return fx_units_of(w.y1 - w.y0, (int64_t)u->state_append.d * 6, threads);
}

/* As fx_half_from, in integers that compilers make vectors of. */
static void narrow(const float *from, uint16_t *to, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        uint32_t bits, small;
        memcpy(&bits, from + i, 4);
        const uint32_t sign = bits >> 16 & 0x8000, a = bits & 0x7fffffff;
        float magnitude;
        memcpy(&magnitude, &a, 4);
        magnitude += 0.5f; /* its last bit is worth 2^-24, that of a subnormal half */
        memcpy(&small, &magnitude, 4);
        const uint32_t normal = (a + 0xc8000fffu + (a >> 13 & 1)) >> 13;
        uint32_t half = a < 0x38800000 ? small - 0x3f000000 : normal;
        half = a >= 0x477ff000 ? 0x7c00 : half; /* 65520 */
        half = a > 0x7f800000 ? 0x7e00 : half;
        to[i] = (uint16_t)(sign | half);
    }
}

/* A row of bytes: the largest number of a block becomes 127. A block with one that is not finite has a scale that is
 * none, too. */
static void to_bytes(const float *from, int8_t *to, int32_t d) {
    int8_t *scales = to + d;
    for (int32_t x = 0; x < d; x += FX_STATE_BLOCK, scales += sizeof(float)) {
        const int32_t n = d - x < FX_STATE_BLOCK ? d - x : FX_STATE_BLOCK;
        float most = 0, none = 0;
        for (int32_t i = 0; i < n; i++) {
            most = fmaxf(most, fabsf(from[x + i]));
            none += from[x + i] * 0;
        }
        const float scale = none == 0 ? most / 127 : NAN, factor = 1 / scale;
        const int is_known = scale > 0 && factor < INFINITY;
        memcpy(scales, &scale, sizeof scale);
        for (int32_t i = 0; i < n; i++)
            to[x + i] = is_known ? (int8_t)lrintf(from[x + i] * factor) : 0;
    }
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_state_append_params *p = &call->params->state_append;
    const fx_window *w = &call->window;
    const int64_t width = fx_state_row(p->dtype, p->d);
    const int64_t rows = w->y1 - w->y0, pieces = units(call->kernels, call->kernel, call->params, *w, threads);
    int32_t length;
    if (!fx_state_length(call->in[2], p->m, p->capacity, &length))
        return FX_ERR_INDEX;
    const int64_t last = w->y0 + fx_cut_at(rows, pieces, u1);
    for (int64_t row = w->y0 + fx_cut_at(rows, pieces, u0); row < last; row++) {
        const int64_t token = row % p->m, group = row / p->m % p->groups, part = row / p->m / p->groups;
        const fx_operand o = operand_of(p, (int)part);
        const float *from = (const float *)call->in[part] + group * o.s[1] + token * o.s[2];
        void *to = (char *)call->out + ((part * p->groups + group) * p->capacity + length + token) * width;
        if (p->dtype == FX_DTYPE_F16)
            narrow(from, to, p->d);
        else if (p->dtype == FX_DTYPE_I8)
            to_bytes(from, to, p->d);
        else
            memcpy(to, from, (size_t)width);
    }
    return FX_OK;
}

FX_DRIVER(state_append, .traits = FX_TRAIT_ROWS | FX_TRAIT_KEEPS, .element_bytes = element_bytes);
