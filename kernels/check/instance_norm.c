/* Instance normalisation against its formula in double precision. */
#include "check.h"

#include <math.h>
#include <stdio.h>

static void expect_channel(const check_case *c, check_expected *e, int n, int j) {
    const fx_instance_norm_params *p = &c->params.instance_norm;
    const int64_t at = (int64_t)n * p->hw * p->c + j;
    const float *x = (const float *)c->in[0] + at;
    const double scale = ((const float *)c->in[1])[j], bias = ((const float *)c->in[2])[j];
    double mean = 0, variance = 0, magnitude = 0;
    for (int i = 0; i < p->hw; i++)
        mean += x[(int64_t)i * p->c], magnitude += fabs(x[(int64_t)i * p->c]);
    mean /= p->hw;
    for (int i = 0; i < p->hw; i++)
        variance += (x[(int64_t)i * p->c] - mean) * (x[(int64_t)i * p->c] - mean);
    variance = variance / p->hw + p->epsilon;
    const double factor = scale / sqrt(variance);
    const double off_mean = check_sum_tolerance(p->hw, magnitude) / p->hw;
    for (int i = 0; i < p->hw; i++) {
        const double y = (x[(int64_t)i * p->c] - mean) * factor;
        const double relative = (p->hw + 16) * 0x1p-24 + off_mean * off_mean / variance;
        check_set(c, e, at + (int64_t)i * p->c, y + bias,
                  2 * off_mean * fabs(factor) + relative * fabs(y) +
                      3e-7 * (fabs(y) + fabs(bias) + fabs(mean * factor)));
    }
}

static void expect(const check_case *c, check_expected *e) {
    const fx_instance_norm_params *p = &c->params.instance_norm;
    for (int n = 0; n < p->n; n++)
        for (int j = 0; j < p->c; j++)
            expect_channel(c, e, n, j);
}

static void draw(check_case *c) {
    fx_instance_norm_params *p = &c->params.instance_norm;
    p->n = check_int(c, 1, 4), p->c = check_one_in(c, 3) ? 1 << check_int(c, 0, 3) : check_int(c, 1, 150);
    p->hw = check_one_in(c, 3) ? check_int(c, 1, p->c > 8 ? 700 : 20000) : check_int(c, 1, 30);
    p->epsilon = check_one_in(c, 2) ? 1e-5f : 1e-2f;
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const int shapes[][2] = {{112 * 112, 64}, {28 * 28, 256}, {224 * 224, 3}, {64 * 56 * 56, 1}};
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    fx_instance_norm_params *p = &c->params.instance_norm;
    *p = (fx_instance_norm_params){.n = 1, .hw = shapes[i][0], .c = shapes[i][1], .epsilon = 1e-5f};
    *flops = 0;
    *bytes = 16.0 * p->hw * p->c; /* x three times, y once */
    snprintf(name, 64, "%d of %d", p->hw, p->c);
    return 1;
}

const check_op check_instance_norm = {.draw = draw, .expect = expect, .bench = bench};
