/* Two operands, broadcast, against the same in double precision. */
#include "boxes.h"

#include <math.h>
#include <stdio.h>

static double apply(int32_t kind, double a, double b) {
    switch (kind) {
    case FX_BINARY_ADD:
        return a + b;
    case FX_BINARY_SUB:
        return a - b;
    case FX_BINARY_MUL:
        return a * b;
    case FX_BINARY_DIV:
        return a / b;
    case FX_BINARY_MAX:
        return isnan(a) || isnan(b) ? NAN : a > b ? a : b;
    case FX_BINARY_MIN:
        return isnan(a) || isnan(b) ? NAN : a < b ? a : b;
    case FX_BINARY_POW:
        return pow(a, b);
    default:
        return a < 0 ? a * b : a;
    }
}

static void expect(const check_case *c, check_expected *e) {
    const fx_binary_params *p = &c->params.binary;
    const float *a = c->in[0], *b = c->in[1];
    check_walk w = {0};
    do {
        /* Rounded once before the activation, as the two passes do it. */
        const double v =
            (float)apply(p->kind, a[check_at(&w, BOX(c, binary, as))], b[check_at(&w, BOX(c, binary, bs))]);
        const double want = isnan(v) ? v : check_activation(p->act, v, p->alpha, p->beta, 0);
        const double near = p->act == FX_ACT_SIGMOID || p->act == FX_ACT_SILU ? 1 + 0.1 * fabs(v) : 1;
        const double tolerance = 2e-6 * (fabs(want) * near + (p->act > FX_ACT_CLIP ? 0.1 * fabs(v) + 0.1 : 0)) + 1e-36;
        check_set(c, e, check_at(&w, BOX(c, binary, ys)), want, isinf(want) ? 0 : tolerance);
    } while (check_step(&w, BOX(c, binary, d)));
}

static void draw(check_case *c) {
    fx_binary_params *p = &c->params.binary;
    p->kind = check_int(c, 0, FX_BINARY_COUNT - 1);
    check_draw_box(c, BOX(c, binary, d), BOX(c, binary, ys));
    check_draw_strides(c, BOX(c, binary, d), BOX(c, binary, as));
    check_draw_strides(c, BOX(c, binary, d), BOX(c, binary, bs));
    do
        p->act = check_one_in(c, 2) ? check_int(c, 0, FX_ACT_COUNT - 1) : FX_ACT_NONE;
    while (p->act == FX_ACT_PRELU);
    p->alpha = check_real(c), p->beta = p->alpha + 1;
}

static void fill(check_case *c) {
    static const float specials[] = {0, -0.0f, 1, 2, INFINITY, -INFINITY, NAN, 1e-40f, 3e38f, -1};
    for (int o = 0; o < 2; o++) {
        float *x = (float *)((char *)c->in[o] + c->in_lo[o]);
        for (int64_t i = 0; i < (c->in_hi[o] - c->in_lo[o]) / 4; i++) {
            x[i] = check_real(c) * (float)CHECK_PICK(c, 1, 4, 12);
            if (check_one_in(c, 12) && c->params.binary.act <= FX_ACT_CLIP)
                x[i] = specials[check_int(c, 0, (int32_t)(sizeof specials / sizeof *specials) - 1)];
        }
        if (o == 1 && c->params.binary.kind == FX_BINARY_POW && check_one_in(c, 3))
            *(float *)c->in[1] = 2;
    }
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const struct {
        const char *name;
        int kind, rows, n, a_row, a_step, b_row, b_step;
    } shapes[] = {{"add", FX_BINARY_ADD, 3136, 64, 64, 1, 64, 1},
                  {"mul by a channel's number", FX_BINARY_MUL, 3136, 64, 64, 1, 0, 1},
                  {"mul by a pixel's number", FX_BINARY_MUL, 3136, 64, 64, 1, 1, 0},
                  {"add a number", FX_BINARY_ADD, 3136, 64, 64, 1, 0, 0},
                  {"power", FX_BINARY_POW, 3136, 64, 64, 1, 64, 1}};
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    fx_binary_params *p = &c->params.binary;
    *p = (fx_binary_params){.kind = shapes[i].kind,
                            .d0 = 1,
                            .d1 = 1,
                            .d2 = 1,
                            .d3 = 1,
                            .d4 = shapes[i].rows,
                            .d5 = shapes[i].n,
                            .as4 = shapes[i].a_row,
                            .as5 = shapes[i].a_step,
                            .bs4 = shapes[i].b_row,
                            .bs5 = shapes[i].b_step,
                            .ys4 = shapes[i].n,
                            .ys5 = 1};
    *flops = 0;
    *bytes = 4.0 * p->d4 * p->d5 * (p->bs4 && p->bs5 ? 3 : 2);
    snprintf(name, 64, "%s, %dx%d", shapes[i].name, p->d4, p->d5);
    return 1;
}

const check_op check_binary = {.draw = draw, .fill = fill, .expect = expect, .bench = bench};
