/* Rows of bytes by the same micro kernels, a row at a time: their checks are against the formulas. */
#include "bytes.h"

#include <stdio.h>
#include <stdlib.h>

static void draw(check_case *c) {
    fx_rows_u8_params *p = &c->params.rows_u8;
    p->rows = check_int(c, 1, 12);
    p->n = check_one_in(c, 4) ? check_int(c, 1, 3000) : check_int(c, 1, 90);
    p->x_s = p->n + (check_one_in(c, 2) ? check_int(c, 0, 20) : 0);
    p->y_s = p->n + (check_one_in(c, 2) ? check_int(c, 0, 20) : 0);
    p->is_softmax = check_one_in(c, 2);
    p->is_rms = !p->is_softmax && check_one_in(c, 3);
    p->has_bias = !p->is_softmax && check_one_in(c, 2);
    p->epsilon = check_one_in(c, 2) ? 1e-5f : 1e-2f;
    p->x_zero = check_int(c, 0, 255), p->zero = p->is_softmax ? 0 : check_int(c, 0, 255);
    p->x_scale = 0.01f + 0.1f * fabsf(check_real(c));
    p->scale = p->is_softmax ? 1.0f / 255 : 0.01f + 0.05f * fabsf(check_real(c));
}

static void fill(check_case *c) {
    check_fill_bytes(c, (char *)c->in[0] + c->in_lo[0], c->in_hi[0] - c->in_lo[0]);
    for (int o = 1; o < 3; o++)
        if (c->in[o])
            check_fill(c, (char *)c->in[o] + c->in_lo[o], c->in_hi[o] - c->in_lo[o]);
}

static void expect(const check_case *c, check_expected *e) {
    const fx_rows_u8_params *p = &c->params.rows_u8;
    float *v = malloc((size_t)p->n * sizeof *v);
    if (!v)
        abort();
    for (int64_t row = 0; row < p->rows; row++) {
        const uint8_t *x = (const uint8_t *)c->in[0] + row * p->x_s;
        for (int32_t j = 0; j < p->n; j++)
            v[j] = (float)(x[j] - p->x_zero) * p->x_scale;
        const fx_softmax softmax = {.x = v, .y = v, .step = 1, .n = p->n, .columns = 1, .rows = 1};
        const fx_layer_norm norm = {.x = v,
                                    .y = v,
                                    .scale = c->in[1],
                                    .bias = p->has_bias ? c->in[2] : NULL,
                                    .n = p->n,
                                    .is_rms = p->is_rms,
                                    .epsilon = p->epsilon};
        p->is_softmax ? c->kernels->softmax_f32(&softmax) : c->kernels->layer_norm_f32(&norm);
        for (int32_t j = 0; j < p->n; j++) {
            const float rounded = rintf(v[j] / p->scale) + (float)p->zero;
            const int64_t at = row * p->y_s + j - c->out_lo;
            e->bytes[at] = (unsigned char)(rounded < 0 ? 0 : rounded > 255 ? 255 : rounded);
            e->written[at] = 1;
        }
    }
    free(v);
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const int shapes[][3] = {{197, 768, 0}, {197, 192, 0}, {12 * 197, 197, 1}};
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    fx_rows_u8_params *p = &c->params.rows_u8;
    *p = (fx_rows_u8_params){.rows = shapes[i][0], .n = shapes[i][1], .is_softmax = shapes[i][2], .epsilon = 1e-5f};
    p->x_s = p->y_s = p->n;
    p->has_bias = !p->is_softmax, p->x_scale = 0.05f, p->scale = p->is_softmax ? 1.0f / 255 : 0.03f;
    *flops = 0;
    *bytes = 2.0 * p->rows * p->n;
    snprintf(name, 64, "%d x %d%s", p->rows, p->n, p->is_softmax ? " softmax" : "");
    return 1;
}

const check_op check_rows_u8 = {.draw = draw, .fill = fill, .expect = expect, .is_exact = 1, .bench = bench};
