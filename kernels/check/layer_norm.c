/* Layer normalisation against the formula in double precision. */
#include "check.h"

#include <math.h>
#include <stdio.h>

static void expect(const check_case *c, check_expected *e) {
    const fx_layer_norm_params *p = &c->params.layer_norm;
    const float *scale = c->in[1], *bias = c->in[2];
    for (int32_t row = 0; row < p->rows; row++) {
        const float *x = (const float *)c->in[0] + (int64_t)row * p->x_s;
        double sum = 0, squares = 0, magnitude = 0;
        for (int32_t j = 0; j < p->n; j++) {
            sum += p->is_rms ? 0 : x[j];
            magnitude += fabs(x[j]);
        }
        const double mean = sum / p->n;
        for (int32_t j = 0; j < p->n; j++)
            squares += (x[j] - mean) * (x[j] - mean);
        const double deviation = sqrt(squares / p->n + p->epsilon);
        /* The mean is off by a rounding of each term; relative to the deviation that shifts every element. */
        const double off = (check_sum_tolerance(p->n, magnitude) / p->n + 1e-7 * fabs(mean)) / deviation;
        for (int32_t j = 0; j < p->n; j++) {
            const double v = (x[j] - mean) / deviation * scale[j];
            const double tolerance = fabs(scale[j]) * (off + off * off * fabs(v)) + fabs(v) * (p->n * 0x1p-24 + 5e-7) +
                                     2e-7 * (p->has_bias ? fabs(bias[j]) : 0) + 1e-30;
            check_set(c, e, (int64_t)row * p->y_s + j, v + (p->has_bias ? bias[j] : 0), tolerance);
        }
    }
}

static void draw(check_case *c) {
    fx_layer_norm_params *p = &c->params.layer_norm;
    p->rows = check_int(c, 1, 12);
    p->n = check_one_in(c, 4) ? check_int(c, 1, 3000) : check_int(c, 1, 90);
    p->x_s = p->n + (check_one_in(c, 2) ? check_int(c, 0, 20) : 0);
    p->y_s = p->n + (check_one_in(c, 2) ? check_int(c, 0, 20) : 0);
    p->is_rms = check_one_in(c, 3);
    p->has_bias = check_one_in(c, 2);
    p->epsilon = check_one_in(c, 2) ? 1e-5f : 1e-2f;
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const int shapes[][3] = {{197, 768, 0}, {64, 768, 0}, {1, 768, 0}, {1024, 384, 0}, {64, 2048, 1}};
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    fx_layer_norm_params *p = &c->params.layer_norm;
    *p = (fx_layer_norm_params){.rows = shapes[i][0], .n = shapes[i][1], .is_rms = shapes[i][2], .epsilon = 1e-5f};
    p->x_s = p->y_s = p->n;
    p->has_bias = !p->is_rms;
    *flops = 0;
    *bytes = 8.0 * p->rows * p->n;
    snprintf(name, 64, "%d x %d%s", p->rows, p->n, p->is_rms ? " rms" : "");
    return 1;
}

const check_op check_layer_norm = {.draw = draw, .expect = expect, .bench = bench};
