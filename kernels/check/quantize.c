/* Quantisation, element by element in double precision. */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int32_t type_of_zero(const fx_quantize_params *p) {
    return p->to == FX_DTYPE_F32 ? p->from : p->to;
}

static void draw(check_case *c) {
    fx_quantize_params *p = &c->params.quantize;
    const int way = check_int(c, 0, 2); /* quantise, restore, quantise sums */
    p->from = way == 0 ? FX_DTYPE_F32 : way == 1 ? CHECK_PICK(c, FX_DTYPE_U8, FX_DTYPE_I8, FX_DTYPE_I32) : FX_DTYPE_I32;
    p->to = way == 1 ? FX_DTYPE_F32 : CHECK_PICK(c, FX_DTYPE_U8, FX_DTYPE_I8);
    p->outer = check_int(c, 1, 6), p->n = check_one_in(c, 2) ? 1 : check_int(c, 2, 9);
    p->inner = check_one_in(c, 3) ? check_int(c, 100, 2000) : check_int(c, 1, 30);
    p->has_zero = check_int(c, 0, 1);
    p->has_bias = way == 2 && check_one_in(c, 2);
    p->is_measured = way == 0 && p->to == FX_DTYPE_U8 && check_one_in(c, 2);
    if (p->is_measured)
        p->n = 1, p->has_zero = 0;
    if (way == 2 && check_one_in(c, 2))
        p->inner = 1;
    if (check_one_in(c, 2)) {
        p->row = CHECK_PICK(c, 1, p->inner, p->n * p->inner);
        p->y_s = p->row + check_int(c, 0, 5);
    }
}

/* A number near halves of a scale: its quotient is one, or rounds to one, or lies beside one. */
static float near_half(check_case *c, float scale) {
    const float v = 0.5f * (float)check_int(c, -700, 700) * scale;
    return check_one_in(c, 2) ? v : nextafterf(v, check_one_in(c, 2) ? INFINITY : -INFINITY);
}

/* Half the time scales are powers of two, and numbers halves of them: quotients are exact, ties occur. */
static void fill(check_case *c) {
    const fx_quantize_params *p = &c->params.quantize;
    const int is_even = check_one_in(c, 2);
    const float scale = check_one_in(c, 2) ? 2.0f / 255 : (check_real(c) + 1.001f) * ldexpf(1, check_int(c, -90, 90));
    for (int o = 0; o < 4; o++) {
        const int is_float = o == 1 || (o == 0 && p->from == FX_DTYPE_F32);
        const int is_wide =
            is_float || o == 3 || (o == 0 && p->from == FX_DTYPE_I32) || (o == 2 && type_of_zero(p) == FX_DTYPE_I32);
        for (int64_t i = 0; i < c->in_hi[o] / (is_wide ? 4 : 1); i++) {
            if (o == 1)
                ((float *)c->in[o])[i] = is_even ? ldexpf(1, check_int(c, -3, 3)) : scale;
            else if (is_float && !is_even && !check_one_in(c, 30))
                ((float *)c->in[o])[i] = near_half(c, scale);
            else if (is_float)
                ((float *)c->in[o])[i] =
                    check_one_in(c, 30) ? CHECK_PICK(c, -1, 1) * INFINITY : 0.0625f * (float)check_int(c, -6000, 6000);
            else if (is_wide && o != 2)
                ((int32_t *)c->in[o])[i] = check_one_in(c, 20)     ? CHECK_PICK(c, INT32_MIN, INT32_MAX)
                                           : p->to == FX_DTYPE_F32 ? check_int(c, -100000, 100000)
                                                                   : check_int(c, -300, 300);
            else if (is_wide)
                ((int32_t *)c->in[o])[i] = check_int(c, -100, 100);
            else
                ((uint8_t *)c->in[o])[i] = (uint8_t)check_int(c, 0, 255);
        }
    }
    if (p->is_measured)
        ((float *)c->in[1])[1] = (float)check_int(c, 0, 255);
}

static int32_t integer_at(const void *x, int32_t dtype, int64_t at) {
    return dtype == FX_DTYPE_U8   ? ((const uint8_t *)x)[at]
           : dtype == FX_DTYPE_I8 ? ((const int8_t *)x)[at]
                                  : ((const int32_t *)x)[at];
}

static void expect(const check_case *c, check_expected *e) {
    const fx_quantize_params *p = &c->params.quantize;
    const int32_t type = type_of_zero(p);
    const int64_t total = (int64_t)p->outer * p->n * p->inner;
    for (int64_t i = 0; i < total; i++) {
        const int64_t slice = i / p->inner % p->n, at = p->row ? i / p->row * p->y_s + i % p->row : i;
        const double scale = ((const float *)c->in[1])[slice];
        const double zero = p->is_measured ? ((const float *)c->in[1])[1]
                            : p->has_zero  ? integer_at(c->in[2], type, slice)
                                           : 0;
        if (p->to == FX_DTYPE_F32) {
            const float y = (float)((float)(integer_at(c->in[0], type, i) - zero) * scale);
            memcpy(e->bytes + at * 4, &y, 4);
            memset(e->written + at * 4, 1, 4);
            continue;
        }
        float steps; /* rounded as a division and a product of floats are */
        if (p->from == FX_DTYPE_I32) {
            const uint32_t bias = p->has_bias ? (uint32_t)((const int32_t *)c->in[3])[slice] : 0;
            steps = (float)((float)(int32_t)(((const uint32_t *)c->in[0])[i] + bias) * scale);
        } else {
            steps = (float)(((const float *)c->in[0])[i] / scale);
        }
        const double v = nearbyint(steps) + zero;
        const double lo = type == FX_DTYPE_U8 ? 0 : -128, hi = lo + 255;
        e->bytes[at] = (unsigned char)(int)(v < lo ? lo : v > hi ? hi : v);
        e->written[at] = 1;
    }
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    if (i > 3)
        return 0;
    const int32_t u8 = FX_DTYPE_U8, f32 = FX_DTYPE_F32, i32 = FX_DTYPE_I32;
    const fx_quantize_params shapes[] = {{f32, u8, 1, 1, 200000, 1, 0, 0, 0, 0},
                                         {u8, f32, 1, 1, 200000, 1, 0, 0, 0, 0},
                                         {i32, u8, 1, 1, 200000, 1, 0, 0, 0, 0},
                                         {i32, u8, 200000 / 64, 64, 1, 1, 1, 0, 0, 0}};
    static const char *const names[] = {"quantize", "dequantize", "quantize sums", "quantize sums of 64 channels"};
    c->params.quantize = shapes[i];
    *flops = 0;
    *bytes = 5.0 * 200000;
    snprintf(name, 64, "%s 200000", names[i]);
    return 1;
}

const check_op check_quantize = {.draw = draw, .fill = fill, .expect = expect, .is_exact = 1, .bench = bench};
