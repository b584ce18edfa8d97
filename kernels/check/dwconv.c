/* Depthwise convolution against a naive sum over the taps in double precision. */
#include "weights.h"

#include <math.h>
#include <stdio.h>

static check_panels panels_of(const fx_dwconv_params *p) {
    return check_panels_of(p->act, p->wtype, p->sums, (int64_t)p->kh * p->kw * FX_NR);
}

static void fill(check_case *c) {
    for (int i = 0; i < 2; i++)
        if (c->in[i])
            (c->is_exact ? check_fill_whole : check_fill)(c, (char *)c->in[i] + c->in_lo[i], c->in_hi[i] - c->in_lo[i]);
    check_fill_panels(c, panels_of(&c->params.dwconv), fx_op_panels(c->op, &c->params), 1);
}

static void expect(const check_case *c, check_expected *e) {
    const fx_dwconv_params *p = &c->params.dwconv;
    const float *x = c->in[0], *r = c->in[1];
    const check_panels panels = panels_of(p);
    for (int n = 0; n < p->n; n++)
        for (int oy = 0; oy < p->oh; oy++)
            for (int ox = 0; ox < p->ow; ox++)
                for (int o = 0; o < p->c; o++) {
                    const float *panel = check_panel(c, panels, o);
                    double sum = panel[0], magnitude = fabs(sum);
                    for (int t = 0; t < p->kh * p->kw; t++) {
                        const int64_t iy = (int64_t)oy * p->sh - p->pt + t / p->kw * p->dh;
                        const int64_t ix = (int64_t)ox * p->sw - p->pl + t % p->kw * p->dw;
                        if (iy < 0 || iy >= p->h || ix < 0 || ix >= p->w)
                            continue;
                        const double product = (double)x[n * (int64_t)p->x_sn + iy * p->x_sh + ix * p->x_sw + o] *
                                               check_weight(c, panels, o, t * FX_NR + o % FX_NR);
                        sum += product;
                        magnitude += fabs(product);
                    }
                    const int64_t at = n * (int64_t)p->y_sn + oy * (int64_t)p->y_sh + ox * (int64_t)p->y_sw + o;
                    if (c->is_exact) {
                        check_set_int(c, e, at, (int64_t)sum);
                        continue;
                    }
                    if (r)
                        sum += r[n * (int64_t)p->r_sn + oy * (int64_t)p->r_sh + ox * (int64_t)p->r_sw + o];
                    const double slope = p->act == FX_ACT_PRELU ? panel[FX_NR] : 0;
                    const double value = check_activation(p->act, sum, p->alpha, p->beta, slope);
                    const double bound = check_sum_tolerance(p->kh * p->kw, magnitude + fabs(sum));
                    check_set(c, e, at, value, check_activation_tolerance(p->act, value, bound));
                }
}

static void draw(check_case *c) {
    fx_dwconv_params *p = &c->params.dwconv;
    p->n = check_one_in(c, 4) ? check_int(c, 2, 3) : 1;
    p->c = check_one_in(c, 2) ? check_int(c, 1, 40) : CHECK_PICK(c, 16, 32, 48, 24);
    p->kh = CHECK_PICK(c, 3, 3, 5, 5, 1, 2, 7);
    p->kw = check_one_in(c, 4) ? check_int(c, 1, 6) : p->kh;
    p->sh = CHECK_PICK(c, 1, 1, 2, 2, 3);
    p->sw = check_one_in(c, 4) ? check_int(c, 1, 3) : p->sh;
    p->dh = CHECK_PICK(c, 1, 1, 1, 2, 3);
    p->dw = CHECK_PICK(c, 1, 1, 1, 1, 2, 3);
    p->h = check_int(c, 1, 15), p->w = check_one_in(c, 8) ? check_int(c, 60, 150) : check_int(c, 1, 30);
    p->pt = check_int(c, 0, 3), p->pl = check_int(c, 0, 3);
    const int pb = check_int(c, 0, 3), pr = check_int(c, 0, 3);
    const int room_h = p->h + p->pt + pb - (p->kh - 1) * p->dh - 1,
              room_w = p->w + p->pl + pr - (p->kw - 1) * p->dw - 1;
    p->oh = room_h < 0 ? 1 : room_h / p->sh + 1;
    p->ow = room_w < 0 ? 1 : room_w / p->sw + 1;
    p->nr = FX_NR;
    p->x_sw = p->c + (check_one_in(c, 3) ? check_int(c, 1, 20) : 0);
    p->x_sh = p->x_sw * p->w + (check_one_in(c, 5) ? check_int(c, 1, 9) : 0);
    p->x_sn = p->x_sh * p->h + (check_one_in(c, 5) ? check_int(c, 1, 9) : 0);
    p->y_sw = p->c + (check_one_in(c, 3) ? check_int(c, 1, 20) : 0);
    p->y_sh = p->y_sw * p->ow + (check_one_in(c, 5) ? check_int(c, 1, 9) : 0);
    p->y_sn = p->y_sh * p->oh + (check_one_in(c, 5) ? check_int(c, 1, 9) : 0);
    p->has_residual = check_one_in(c, 3);
    p->r_sw = p->c + (check_one_in(c, 3) ? check_int(c, 1, 20) : 0), p->r_sh = p->r_sw * p->ow,
    p->r_sn = p->r_sh * p->oh;
    p->act = check_one_in(c, 2) ? check_int(c, 0, FX_ACT_COUNT - 1) : check_int(c, 0, FX_ACT_CLIP);
    p->alpha = check_real(c), p->beta = p->alpha + 1;
    p->wtype = check_one_in(c, 2) ? FX_WTYPE_F32 : check_int(c, 0, FX_WTYPE_S8);
    p->sums = FX_DTYPE_F32;
    if (check_one_in(c, 3)) {
        p->sums = FX_DTYPE_I32, c->is_exact = 1;
        p->has_residual = 0, p->act = FX_ACT_NONE;
    }
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const struct {
        int size, c, k, s;
    } shapes[] = {{112, 64, 3, 1}, {56, 128, 3, 1}, {28, 256, 3, 1}, {14, 512, 3, 1}, {7, 1024, 3, 1},
                  {112, 96, 3, 2}, {56, 144, 3, 2}, {28, 192, 3, 2}, {14, 576, 3, 2}, {28, 240, 5, 1},
                  {14, 480, 5, 1}, {56, 144, 5, 2}, {28, 64, 7, 1},  {14, 480, 3, 1}, {147, 128, 3, 1}};
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    fx_dwconv_params *p = &c->params.dwconv;
    const int pad = shapes[i].k / 2;
    *p = (fx_dwconv_params){.n = 1, .h = shapes[i].size, .w = shapes[i].size, .c = shapes[i].c, .nr = FX_NR};
    p->kh = p->kw = shapes[i].k, p->sh = p->sw = shapes[i].s, p->dh = p->dw = 1, p->pt = p->pl = pad;
    p->oh = p->ow = (p->h + 2 * pad - p->kh) / p->sh + 1;
    p->x_sw = p->c, p->x_sh = p->w * p->c, p->x_sn = p->h * p->x_sh;
    p->y_sw = p->c, p->y_sh = p->ow * p->c, p->y_sn = p->oh * p->y_sh;
    p->act = FX_ACT_RELU;
    *flops = 2.0 * p->oh * p->ow * p->c * p->kh * p->kw;
    *bytes = 4.0 * p->c * ((double)p->h * p->w + (double)p->oh * p->ow);
    snprintf(name, 64, "%dx%d %d@%d/%d", p->kh, p->kw, p->c, p->h, p->sh);
    return 1;
}

const check_op check_dwconv = {.draw = draw, .fill = fill, .expect = expect, .bench = bench};
