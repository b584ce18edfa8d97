/* Attention over state against its formula in double precision, scores and all. */
#include "check.h"
#include "flexnn/half.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t length_of(const check_case *c) {
    return *(const int64_t *)c->in[2];
}

static int fails(const check_case *c) {
    const fx_state_attention_params *p = &c->params.state_attention;
    return length_of(c) < p->is_whole || length_of(c) > p->capacity - (p->is_whole ? 0 : p->m);
}

static void draw(check_case *c) {
    fx_state_attention_params *p = &c->params.state_attention;
    p->dtype = CHECK_PICK(c, FX_DTYPE_F32, FX_DTYPE_F16, FX_DTYPE_I8);
    p->groups = check_int(c, 1, 3);
    p->heads = p->groups * (check_one_in(c, 2) ? 1 : check_int(c, 1, 6));
    p->m = check_one_in(c, 2) ? 1 : check_one_in(c, 4) ? check_int(c, 20, 40) : check_int(c, 1, 9);
    p->capacity = p->m + (check_one_in(c, 3) ? check_int(c, 100, 700) : check_int(c, 0, 60));
    p->d = check_one_in(c, 3) ? 16 * check_int(c, 1, 8) : check_int(c, 1, 40);
    const int32_t gap = check_one_in(c, 3) ? check_int(c, 1, 9) : 0;
    p->q_st = (p->d + gap) * p->heads, p->q_sh = p->d + gap;
    p->y_st = p->d + gap, p->y_sh = (p->d + gap) * p->m;
    p->is_whole = check_one_in(c, 4);
    if (p->is_whole && check_one_in(c, 2))
        p->capacity = check_int(c, 1, p->capacity);
    p->window = !p->is_whole && check_one_in(c, 3) ? check_int(c, 1, p->capacity) : 0;
    p->has_sinks = check_one_in(c, 3);
    p->has_bias = !p->is_whole && !p->has_sinks && check_one_in(c, 2);
    p->softcap = !p->has_bias && check_one_in(c, 3) ? 1 + (float)check_int(c, 0, 30) : 0;
    p->scale = 1 / sqrtf((float)p->d);
}

static void fill(check_case *c) {
    const fx_state_attention_params *p = &c->params.state_attention;
    for (int64_t j = 0; j < c->in_hi[0] / 4; j++)
        ((float *)c->in[0])[j] = 4 * check_real(c);
    const int64_t rows = 2 * (int64_t)p->groups * p->capacity;
    int64_t *length = c->in[2];
    const int32_t own = p->is_whole ? 0 : p->m;
    *length = check_int(c, p->is_whole, p->capacity - own);
    if (check_one_in(c, 10))
        *length = check_one_in(c, 2) ? p->capacity - own + 1 : p->is_whole - 1;
    for (int64_t i = 0; i < rows && p->dtype == FX_DTYPE_I8; i++) { /* rows that no token has must not count */
        int8_t *row = (int8_t *)c->in[1] + i * fx_state_row_bytes(p->d);
        for (int32_t x = 0; x < p->d; x++) {
            const float scale = i % p->capacity >= *length + own ? NAN : (float)check_int(c, 1, 9) / 512;
            row[x] = (int8_t)check_int(c, -127, 127);
            memcpy(row + p->d + x / FX_STATE_BLOCK * 4, &scale, 4);
        }
    }
    for (int64_t i = 0; i < rows * p->d && p->dtype != FX_DTYPE_I8; i++) { /* nor must these */
        const float v = i / p->d % p->capacity >= *length + own ? NAN : check_real(c);
        if (p->dtype == FX_DTYPE_F16)
            ((uint16_t *)c->in[1])[i] = fx_half_from((double)v);
        else
            ((float *)c->in[1])[i] = v;
    }
    for (int64_t j = 0; j < c->in_hi[3] / 4; j++)
        ((float *)c->in[3])[j] = 2 * check_real(c);
}

static fx_status status(const check_case *c) {
    return fails(c) ? FX_ERR_INDEX : FX_OK;
}

static double row_at(const check_case *c, int part, int g, int64_t j, int x) {
    const fx_state_attention_params *p = &c->params.state_attention;
    const int64_t row = ((int64_t)part * p->groups + g) * p->capacity + j, at = row * p->d + x;
    if (p->dtype == FX_DTYPE_I8) {
        const int8_t *bytes = (const int8_t *)c->in[1] + row * fx_state_row_bytes(p->d);
        float scale;
        memcpy(&scale, bytes + p->d + x / FX_STATE_BLOCK * 4, 4);
        return (double)bytes[x] * (double)scale;
    }
    return p->dtype == FX_DTYPE_F16 ? fx_half_to(((const uint16_t *)c->in[1])[at]) : ((const float *)c->in[1])[at];
}

/* Scores of keys [first, last); returns how far their exponentials may be off, relatively. */
static double scores(const check_case *c, int h, int i, int64_t first, int64_t last, double *score) {
    const fx_state_attention_params *p = &c->params.state_attention;
    const float *q = (const float *)c->in[0] + (int64_t)h * p->q_sh + (int64_t)i * p->q_st;
    double off = 0;
    for (int64_t j = first; j < last; j++) {
        double sum = 0, magnitude = 0;
        for (int x = 0; x < p->d; x++) {
            const double product = q[x] * row_at(c, 0, h / (p->heads / p->groups), j, x);
            sum += product;
            magnitude += fabs(product);
        }
        sum *= p->scale;
        score[j] = p->softcap != 0 ? p->softcap * tanh(sum / p->softcap) : sum;
        off = fmax(off, p->scale * check_sum_tolerance(p->d, magnitude) + 0x1p-20 * (fabs(sum) + p->softcap + 1));
        if (p->has_bias)
            score[j] += ((const float *)c->in[3])[(int64_t)h * p->capacity + p->capacity - 1 - (length_of(c) + i - j)];
    }
    return off;
}

static void expect_row(const check_case *c, check_expected *e, int h, int i, double *score) {
    const fx_state_attention_params *p = &c->params.state_attention;
    const int64_t last = length_of(c) + (p->is_whole ? 0 : i + 1),
                  first = p->window && last > p->window ? last - p->window : 0;
    const double sink = p->has_sinks ? ((const float *)c->in[3])[h] : -INFINITY;
    const double off = scores(c, h, i, first, last, score) + 1e-6;
    double max = sink, total;
    for (int64_t j = first; j < last; j++)
        max = fmax(max, score[j]);
    total = exp(sink - max);
    for (int64_t j = first; j < last; j++)
        total += score[j] = exp(score[j] - max);
    for (int x = 0; x < p->d; x++) {
        double sum = 0, magnitude = 0;
        for (int64_t j = first; j < last; j++) {
            const double v = score[j] * row_at(c, 1, h / (p->heads / p->groups), j, x);
            sum += v;
            magnitude += fabs(v);
        }
        check_set(c, e, (int64_t)h * p->y_sh + (int64_t)i * p->y_st + x, sum / total,
                  (check_sum_tolerance(2 * (last - first), magnitude) + 4 * off * magnitude) / total + 1e-30);
    }
}

static void expect(const check_case *c, check_expected *e) {
    const fx_state_attention_params *p = &c->params.state_attention;
    double *score = malloc((size_t)p->capacity * sizeof *score);
    for (int h = 0; h < p->heads && !fails(c); h++)
        for (int i = 0; i < p->m; i++)
            expect_row(c, e, h, i, score);
    free(score);
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const int shapes[][5] = {{9, 3, 1, 64, FX_DTYPE_F32},  {9, 3, 1, 64, FX_DTYPE_F16},
                                    {9, 3, 1, 64, FX_DTYPE_I8},   {32, 8, 1, 128, FX_DTYPE_F16},
                                    {32, 8, 1, 128, FX_DTYPE_I8}, {9, 3, 32, 64, FX_DTYPE_F16},
                                    {9, 3, 32, 64, FX_DTYPE_I8}};
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    fx_state_attention_params *p = &c->params.state_attention;
    *p = (fx_state_attention_params){.heads = shapes[i][0], .groups = shapes[i][1], .m = shapes[i][2]};
    p->d = shapes[i][3];
    p->dtype = shapes[i][4];
    p->capacity = 1024;
    p->q_sh = p->y_sh = p->d;
    p->q_st = p->y_st = p->d * p->heads;
    p->scale = 1 / sqrtf((float)p->d);
    *flops = 4.0 * p->heads * p->m * p->capacity * p->d;
    *bytes = 2.0 * p->groups * p->capacity;
    *bytes *= (double)(p->dtype == FX_DTYPE_I8 ? fx_state_row_bytes(p->d) : p->d * fx_dtype_bytes(p->dtype));
    snprintf(name, 64, "%d/%d x %dx%dx%d %s", p->heads, p->groups, p->m, p->capacity, p->d,
             p->dtype == FX_DTYPE_F32   ? "f32"
             : p->dtype == FX_DTYPE_F16 ? "f16"
                                        : "s8");
    return 1;
}

const check_op check_state_attention = {.draw = draw, .fill = fill, .expect = expect, .status = status, .bench = bench};
