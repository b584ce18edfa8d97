/* Local response normalisation against ONNX's formula in double precision. */
#include "check.h"

#include <math.h>
#include <stdio.h>

static void expect(const check_case *c, check_expected *e) {
    const fx_lrn_params *p = &c->params.lrn;
    for (int row = 0; row < p->rows; row++) {
        const float *x = (const float *)c->in[0] + (int64_t)row * p->x_s;
        for (int j = 0; j < p->c; j++) {
            const int first = j - (p->size - 1) / 2, last = j + p->size / 2;
            double sum = 0;
            for (int i = first < 0 ? 0 : first; i <= last && i < p->c; i++)
                sum += (double)x[i] * x[i];
            const double base = p->bias + (double)p->alpha / p->size * sum, y = x[j] * pow(base, -p->beta);
            const double relative = (p->size + 8) * 0x1p-24 * fabs(p->beta) + 1e-6 + 4e-7 * fabs(p->beta * log(base));
            check_set(c, e, (int64_t)row * p->y_s + j, y, relative * fabs(y));
        }
    }
}

static void draw(check_case *c) {
    fx_lrn_params *p = &c->params.lrn;
    p->rows = check_int(c, 1, 20), p->c = check_int(c, 1, 70);
    p->size = check_one_in(c, 4) ? check_int(c, 1, 150) : check_int(c, 1, 7);
    p->x_s = p->c + (check_one_in(c, 3) ? check_int(c, 1, 20) : 0);
    p->y_s = p->c + (check_one_in(c, 3) ? check_int(c, 1, 20) : 0);
    p->alpha = check_one_in(c, 2) ? 1e-4f : fabsf(check_real(c)) * 3;
    p->beta = check_one_in(c, 2) ? 0.75f : check_real(c) * 2;
    p->bias = check_one_in(c, 2) ? 1 : fabsf(check_real(c)) + 0.5f;
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const int shapes[][2] = {{56 * 56, 64}, {56 * 56, 192}, {27 * 27, 256}};
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    fx_lrn_params *p = &c->params.lrn;
    *p = (fx_lrn_params){.rows = shapes[i][0], .c = shapes[i][1], .size = 5, .alpha = 1e-4f, .beta = 0.75f, .bias = 1};
    p->x_s = p->y_s = p->c;
    *flops = 0;
    *bytes = 8.0 * p->rows * p->c;
    snprintf(name, 64, "%d of %d", p->rows, p->c);
    return 1;
}

const check_op check_lrn = {.draw = draw, .expect = expect, .bench = bench};
