/* Attention against its formula in double precision, scores and all. */
#include "check.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Rows of `wide` for each of `tokens` and `heads`: token by token, or head by head, with gaps or without. */
typedef struct strides {
    int32_t batch, head, token;
} strides;

static strides draw_strides(check_case *c, int32_t batch, int32_t heads, int32_t tokens, int32_t wide) {
    const int32_t gap = check_one_in(c, 3) ? check_int(c, 1, 9) : 0;
    const int is_by_head = check_one_in(c, 2);
    const int32_t token = is_by_head ? wide + gap : heads * wide + gap;
    return (strides){.batch = batch == 1 && check_one_in(c, 2) ? 0 : (wide + gap) * tokens * heads,
                     .head = is_by_head ? token * tokens : wide,
                     .token = token};
}

static void draw(check_case *c) {
    fx_attention_params *p = &c->params.attention;
    p->batch = check_one_in(c, 2) ? 1 : check_int(c, 1, 3);
    p->groups = check_int(c, 1, 3);
    p->heads = p->groups * (check_one_in(c, 2) ? 1 : check_int(c, 1, 3));
    p->m = check_one_in(c, 6) ? check_int(c, 30, 80) : check_int(c, 1, 9);
    p->n = check_one_in(c, 3) ? check_int(c, 100, 700) : check_int(c, 1, 60);
    p->d = check_one_in(c, 6) ? check_int(c, 65, 200) : check_int(c, 1, 40);
    p->dv = check_one_in(c, 2) ? p->d : check_int(c, 1, 70);
    const strides q = draw_strides(c, p->batch, p->heads, p->m, p->d);
    p->q_sb = q.batch, p->q_sh = q.head, p->q_st = q.token;
    const strides k = draw_strides(c, p->batch, p->groups, p->n, p->d);
    p->k_sb = k.batch, p->k_sh = k.head, p->k_st = k.token;
    const strides v = draw_strides(c, p->batch, p->groups, p->n, p->dv);
    p->v_sb = v.batch, p->v_sh = v.head, p->v_st = v.token;
    const strides y = draw_strides(c, p->batch, p->heads, p->m, p->dv);
    p->y_sb = y.batch, p->y_sh = y.head, p->y_st = y.token;
    p->has_mask = check_one_in(c, 2);
    if (p->has_mask) {
        p->mask_sn = check_one_in(c, 5) ? 0 : 1;
        p->mask_sm = check_one_in(c, 3) ? 0 : p->n;
        p->mask_sh = check_one_in(c, 2) ? 0 : p->n * p->m;
        p->mask_sb = check_one_in(c, 2) ? 0 : p->n * p->m * p->heads;
    }
    p->is_causal = check_one_in(c, 3);
    p->past = p->is_causal && check_one_in(c, 2) ? check_int(c, 0, p->n) : 0;
    p->window = p->is_causal && check_one_in(c, 2) ? check_int(c, 1, p->n) : 0;
    p->softcap = check_one_in(c, 3) ? 1 + (float)check_int(c, 0, 30) : 0;
    p->scale = check_one_in(c, 3) ? check_real(c) : 1 / sqrtf((float)p->d);
}

static void fill(check_case *c) {
    const fx_attention_params *p = &c->params.attention;
    const float wide = (float)CHECK_PICK(c, 1, 1, 6);
    for (int i = 0; i < 4; i++) {
        float *x = (float *)((char *)c->in[i] + c->in_lo[i]);
        const int64_t count = c->in[i] ? (c->in_hi[i] - c->in_lo[i]) / (int64_t)sizeof(float) : 0;
        for (int64_t j = 0; j < count; j++)
            x[j] = check_real(c) * (i == 2 ? 1 : wide);
    }
    if (!p->has_mask || check_one_in(c, 2))
        return;
    float *mask = c->in[3];
    const int32_t count = (int32_t)(c->in_hi[3] / 4);
    const int is_by_rows = check_one_in(c, 2); /* hidden ends of rows, or keys here and there */
    const float hidden = check_one_in(c, 2) ? -INFINITY : -FLT_MAX;
    for (int32_t j = 0, end = 0; j < count; j++) {
        if (j % p->n == 0)
            end = check_int(c, 0, p->n);
        if (is_by_rows ? j % p->n >= end : check_one_in(c, 3))
            mask[j] = hidden;
    }
}

static void expect_row(const check_case *c, check_expected *e, int b, int h, int i, double *score) {
    const fx_attention_params *p = &c->params.attention;
    const int g = h / (p->heads / p->groups);
    const float *q = (const float *)c->in[0] + (int64_t)b * p->q_sb + (int64_t)h * p->q_sh + (int64_t)i * p->q_st;
    const float *k = (const float *)c->in[1] + (int64_t)b * p->k_sb + (int64_t)g * p->k_sh;
    const float *v = (const float *)c->in[2] + (int64_t)b * p->v_sb + (int64_t)g * p->v_sh;
    double max = -INFINITY, total = 0, off = 0;
    for (int j = 0; j < p->n; j++) {
        double sum = 0, magnitude = 0, mask = 0;
        for (int x = 0; x < p->d; x++) {
            const double product = (double)q[x] * k[(int64_t)j * p->k_st + x];
            sum += product;
            magnitude += fabs(product);
        }
        if (p->has_mask)
            mask = ((const float *)c->in[3])[(int64_t)b * p->mask_sb + (int64_t)h * p->mask_sh +
                                             (int64_t)i * p->mask_sm + (int64_t)j * p->mask_sn];
        const int64_t last = p->is_causal ? (int64_t)i + p->past : p->n;
        const int is_hidden = j > last || (p->window && j + (int64_t)p->window <= last);
        sum *= p->scale;
        sum = p->softcap != 0 ? p->softcap * tanh(sum / p->softcap) : sum;
        score[j] = is_hidden ? -INFINITY : mask < -1e30 ? mask : sum + mask; /* a float loses the sum */
        max = fmax(max, score[j]);
        if (score[j] >= -1e30) /* the largest error of a score is a relative one of its exponential */
            off = fmax(off, fabs(p->scale) * check_sum_tolerance(p->d, magnitude) + 0x1p-22 * (fabs(score[j]) + 1) +
                                0x1p-20 * p->softcap);
    }
    for (int j = 0; j < p->n; j++) {
        score[j] = exp(score[j] - max);
        total += score[j];
    }
    off += 0x1p-22 * (max < -1e30 ? 1 : fabs(max) + 1) + 1e-6;
    for (int x = 0; x < p->dv; x++) {
        double sum = 0, magnitude = 0;
        for (int j = 0; j < p->n; j++) {
            sum += score[j] * v[(int64_t)j * p->v_st + x];
            magnitude += fabs(score[j] * v[(int64_t)j * p->v_st + x]);
        }
        const double tolerance = (check_sum_tolerance(2 * p->n, magnitude) + 4 * off * magnitude) / total + 1e-30;
        const int64_t at = (int64_t)b * p->y_sb + (int64_t)h * p->y_sh + (int64_t)i * p->y_st + x;
        if (max == -INFINITY) /* nothing seen */
            check_set(c, e, at, 0, 0);
        else
            check_set(c, e, at, sum / total, tolerance);
    }
}

static void expect(const check_case *c, check_expected *e) {
    const fx_attention_params *p = &c->params.attention;
    double *score = malloc((size_t)p->n * sizeof *score);
    for (int b = 0; b < p->batch; b++)
        for (int h = 0; h < p->heads; h++)
            for (int i = 0; i < p->m; i++)
                expect_row(c, e, b, h, i, score);
    free(score);
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const int shapes[][5] = {{12, 197, 197, 64, 0},   {12, 64, 64, 64, 1},  {12, 1024, 1024, 64, 0},
                                    {12, 1024, 1024, 64, 1}, {12, 1, 1024, 64, 0}, {1, 4096, 4096, 512, 0}};
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    fx_attention_params *p = &c->params.attention;
    *p = (fx_attention_params){.batch = 1, .heads = shapes[i][0], .groups = shapes[i][0], .m = shapes[i][1]};
    p->n = shapes[i][2];
    p->d = p->dv = shapes[i][3];
    p->q_sh = p->k_sh = p->v_sh = p->y_sh = p->d;
    p->q_st = p->k_st = p->v_st = p->y_st = p->d * p->heads;
    p->is_causal = shapes[i][4];
    p->scale = 1 / sqrtf((float)p->d);
    *flops = 4.0 * p->heads * p->m * p->n * p->d * (p->is_causal ? 0.5 * (p->m + 1) / p->m : 1);
    *bytes = 8.0 * p->heads * p->d * ((double)p->m + p->n);
    snprintf(name, 64, "%d x %dx%dx%d%s", p->heads, p->m, p->n, p->d, p->is_causal ? " causal" : "");
    return 1;
}

const check_op check_attention = {.draw = draw, .fill = fill, .expect = expect, .bench = bench};
