/* Rows appended to state, byte for byte; some cases have no room for them and must fail. */
#include "check.h"
#include "flexnn/half.h"

#include <math.h>
#include <stdio.h>

static int64_t length_of(const check_case *c) {
    return *(const int64_t *)c->in[2];
}

static int fails(const check_case *c) {
    const fx_state_append_params *p = &c->params.state_append;
    return length_of(c) < 0 || length_of(c) > p->capacity - p->m;
}

static void draw(check_case *c) {
    fx_state_append_params *p = &c->params.state_append;
    p->dtype = CHECK_PICK(c, FX_DTYPE_F32, FX_DTYPE_F16, FX_DTYPE_I8);
    p->groups = check_int(c, 1, 4);
    p->m = check_one_in(c, 3) ? 1 : check_int(c, 1, 9);
    p->capacity = p->m + check_int(c, 0, 20);
    p->d = check_int(c, 1, 40);
    const int32_t gap = check_one_in(c, 3) ? check_int(c, 1, 9) : 0;
    p->k_st = (p->d + gap) * p->groups, p->k_sh = p->d + gap;
    p->v_st = p->d + gap, p->v_sh = (p->d + gap) * p->m;
}

static void fill(check_case *c) {
    const fx_state_append_params *p = &c->params.state_append;
    for (int i = 0; i < 2; i++)
        for (int64_t j = 0; j < c->in_hi[i] / 4; j++) {
            const int32_t shift = check_int(c, -40, 20);
            ((float *)c->in[i])[j] = check_one_in(c, 20) ? (check_one_in(c, 2) ? INFINITY : NAN)
                                                         : ldexpf(check_real(c), check_one_in(c, 2) ? 0 : shift);
        }
    int64_t *length = c->in[2];
    *length = check_int(c, 0, p->capacity - p->m);
    if (check_one_in(c, 8))
        *length = check_one_in(c, 2) ? p->capacity - p->m + 1 : -1;
}

static fx_status status(const check_case *c) {
    return fails(c) ? FX_ERR_INDEX : FX_OK;
}

/* A row of bytes: the scale of a block in float32, and numbers to the nearest multiple of it, by its reciprocal. */
static void expect_bytes(const float *from, unsigned char *to, int32_t d) {
    for (int32_t x = 0; x < d; x++) {
        const int32_t first = x / FX_STATE_BLOCK * FX_STATE_BLOCK, last = first + FX_STATE_BLOCK;
        float scale = 0;
        for (int32_t i = first; i < last && i < d; i++)
            scale = isfinite(from[i]) && isfinite(scale) ? fmaxf(scale, fabsf(from[i]) / 127) : NAN;
        const float factor = 1 / scale;
        to[x] = scale > 0 && factor < INFINITY ? (unsigned char)(int8_t)nearbyintf(from[x] * factor) : 0;
        memcpy(to + d + first / FX_STATE_BLOCK * 4, &scale, 4);
    }
}

static void expect_row(const float *from, unsigned char *to, int32_t dtype, int32_t d) {
    for (int32_t x = 0; x < d && dtype == FX_DTYPE_F16; x++) {
        uint16_t half = fx_half_from((double)from[x]);
        if (from[x] != from[x]) /* its sign stays */
            half = (uint16_t)((half & 0x8000) | 0x7e00);
        memcpy(to + 2 * x, &half, 2);
    }
    if (dtype == FX_DTYPE_F32)
        memcpy(to, from, 4 * (size_t)d);
    if (dtype == FX_DTYPE_I8)
        expect_bytes(from, to, d);
}

static void expect(const check_case *c, check_expected *e) {
    const fx_state_append_params *p = &c->params.state_append;
    const int64_t width = p->dtype == FX_DTYPE_I8 ? fx_state_row_bytes(p->d) : p->d * fx_dtype_bytes(p->dtype);
    if (fails(c))
        return;
    for (int64_t i = 0; i < 2 * (int64_t)p->groups * p->m; i++) {
        const int64_t t = i % p->m, g = i / p->m % p->groups, part = i / p->m / p->groups;
        const float *from = part ? (const float *)c->in[1] + g * p->v_sh + t * p->v_st
                                 : (const float *)c->in[0] + g * p->k_sh + t * p->k_st;
        const int64_t at = ((part * p->groups + g) * p->capacity + length_of(c) + t) * width;
        expect_row(from, (unsigned char *)e->bytes + at, p->dtype, p->d);
        memset(e->written + at, 1, (size_t)width);
    }
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const int shapes[][3] = {{3, 1, 64}, {8, 32, 128}};
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    fx_state_append_params *p = &c->params.state_append;
    *p = (fx_state_append_params){.dtype = FX_DTYPE_F16, .groups = shapes[i][0], .capacity = 256, .m = shapes[i][1]};
    p->d = shapes[i][2];
    p->k_sh = p->v_sh = p->d;
    p->k_st = p->v_st = p->d * p->groups;
    *flops = 0;
    *bytes = 12.0 * p->groups * p->m * p->d;
    snprintf(name, 64, "%d x %dx%d", p->groups, p->m, p->d);
    return 1;
}

const check_op check_state_append = {
    .draw = draw, .fill = fill, .expect = expect, .is_exact = 1, .status = status, .bench = bench};
