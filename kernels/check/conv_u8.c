/* Convolution of 8-bit activations, product by product. */
#include "bytes.h"

#include <stdio.h>

static int64_t run_of(const fx_conv_u8_params *p) {
    return p->is_by_rows ? (int64_t)p->kw * p->cin : p->cin;
}

static int64_t bytes_of(const fx_conv_u8_params *p) {
    return fx_byte_panel_head(p->to) + (int64_t)p->kh * (p->is_by_rows ? 1 : p->kw) * ((run_of(p) + 3) / 4 * 4) * FX_NR;
}

/* What fills up the fours is 0, and no part of the sums of weights. */
static void clear_ends(check_case *c) {
    const fx_conv_u8_params *p = &c->params.conv_u8;
    const int64_t run = run_of(p), whole = (run + 3) / 4 * 4, head = fx_byte_panel_head(p->to);
    for (int32_t i = 0; i < (p->cout + FX_NR - 1) / FX_NR; i++) {
        char *panel = (char *)c->weight + i * bytes_of(p);
        for (int64_t b = 0; b < bytes_of(p) - head; b++)
            if (b / FX_FOUR_BYTES * 4 % whole + b % 4 >= run) {
                ((int32_t *)(void *)panel)[FX_NR + b / 4 % FX_NR] -= ((int8_t *)panel)[head + b];
                panel[head + b] = 0;
            }
    }
}

static void fill(check_case *c) {
    const fx_conv_u8_params *p = &c->params.conv_u8;
    for (int o = 0; o < 2; o++)
        if (c->in[o])
            check_fill_bytes(c, c->in[o], c->in_hi[o]);
    if (p->is_dynamic && p->has_residual)
        for (int64_t i = 0; i < c->in_hi[2] / 4; i++)
            ((float *)c->in[2])[i] = check_real(c);
    check_fill_steps(c, p->is_dynamic);
    check_fill_byte_panels(c, (p->cout + FX_NR - 1) / FX_NR, bytes_of(p), p->to, (double)p->kh * p->kw * p->cin,
                           check_one_in(c, 2));
    clear_ends(c);
}

/* Index of the weight of tap t and input q behind a panel's head. */
static int64_t weight_at(const fx_conv_u8_params *p, int o, int t, int q) {
    const int64_t fours = (run_of(p) + 3) / 4, at = p->is_by_rows ? (int64_t)(t % p->kw) * p->cin + q : q;
    const int64_t run = p->is_by_rows ? t / p->kw : t;
    return ((run * fours + at / 4) * FX_NR + o % FX_NR) * 4 + at % 4;
}

static int64_t sum_of(const check_case *c, const int8_t *w, int n, int oy, int ox, int o) {
    const fx_conv_u8_params *p = &c->params.conv_u8;
    const int zero = check_zero(c, p->is_dynamic, p->x_zero);
    int64_t sum = 0;
    for (int t = 0; t < p->kh * p->kw; t++) {
        const int64_t iy = (int64_t)oy * p->sh - p->pt + t / p->kw * p->dh;
        const int64_t ix = (int64_t)ox * p->sw - p->pl + t % p->kw * p->dw;
        const int inside = iy >= 0 && iy < p->h && ix >= 0 && ix < p->w;
        const uint8_t *pixel = (const uint8_t *)c->in[0] + (int64_t)n * p->x_sn + iy * p->x_sh + ix * p->x_sw;
        for (int q = 0; q < p->cin; q++)
            sum += (int64_t)(inside ? pixel[q] : zero) * w[weight_at(p, o, t, q)];
    }
    return sum;
}

static void expect(const check_case *c, check_expected *e) {
    const fx_conv_u8_params *p = &c->params.conv_u8;
    const fx_byte_finish finish = CHECK_FINISH_OF(p);
    for (int n = 0; n < p->n; n++)
        for (int oy = 0; oy < p->oh; oy++)
            for (int ox = 0; ox < p->ow; ox++)
                for (int o = 0; o < p->cout; o++) {
                    const char *panel = (const char *)c->weight + o / FX_NR * bytes_of(p);
                    const int32_t *words = (const int32_t *)(const void *)panel + o % FX_NR;
                    const float *scale = (const float *)(const void *)panel + 2 * FX_NR + o % FX_NR;
                    const int8_t *w = (const int8_t *)panel + fx_byte_panel_head(p->to);
                    int64_t sum = words[0] + sum_of(c, w, n, oy, ox, o);
                    float factor = scale[0];
                    if (p->is_dynamic) {
                        sum -= (int64_t)check_zero(c, p->is_dynamic, 0) * words[FX_NR];
                        factor *= *(const float *)c->in[1];
                    }
                    const uint8_t *r = (const uint8_t *)c->in[1] + (int64_t)n * p->r_sn + (int64_t)oy * p->r_sh +
                                       (int64_t)ox * p->r_sw + o;
                    const int64_t at = (int64_t)n * p->y_sn + (int64_t)oy * p->y_sh + (int64_t)ox * p->y_sw + o;
                    if (p->is_dynamic && p->has_residual) {
                        const float *added = (const float *)c->in[2] + (r - (const uint8_t *)c->in[1]);
                        const float v = (float)((double)(float)(int32_t)(uint32_t)(uint64_t)sum * factor);
                        const float y = check_clamped((float)((double)v + scale[FX_NR]), p->lo, p->hi);
                        check_set_float(c, e, at, check_clamped((float)((double)y + *added), p->sum_lo, p->sum_hi));
                        continue;
                    }
                    check_set_finished(c, e, &finish, at, sum,
                                       (float[]){factor, p->to == FX_DTYPE_F32 ? scale[FX_NR] : 0},
                                       p->has_residual ? r : NULL);
                }
}

static void draw(check_case *c) {
    fx_conv_u8_params *p = &c->params.conv_u8;
    c->is_exact = 1;
    p->n = check_one_in(c, 4) ? check_int(c, 2, 3) : 1;
    p->cin = check_one_in(c, 3) ? check_int(c, 16, 150) : check_int(c, 1, 19);
    p->cout = check_one_in(c, 3) ? check_int(c, 16, 100) : check_int(c, 1, 40);
    p->kh = CHECK_PICK(c, 1, 1, 1, 3, 3, 5, 2, 7), p->kw = check_one_in(c, 2) ? p->kh : check_int(c, 1, 5);
    p->sh = CHECK_PICK(c, 1, 1, 2, 3), p->sw = check_one_in(c, 4) ? check_int(c, 1, 4) : p->sh;
    p->dh = CHECK_PICK(c, 1, 1, 1, 2, 3), p->dw = check_one_in(c, 4) ? check_int(c, 1, 3) : p->dh;
    p->is_by_rows = check_one_in(c, 3);
    if (p->is_by_rows)
        p->dw = 1;
    p->h = check_int(c, 1, 17), p->w = check_int(c, 1, 17);
    CHECK_BYTE_WINDOW(c, p);
    if (check_one_in(c, 5)) { /* a product of rows, some of them deep */
        p->kh = p->kw = p->sh = p->sw = p->dh = p->dw = p->w = p->ow = 1, p->pt = p->pl = 0, p->oh = p->h;
        p->cin = check_int(c, 1, 2000);
    }
    p->nr = FX_NR;
    CHECK_BYTE_STRIDES(c, p, p->cin, p->cout);
    p->x_zero = check_int(c, 0, 255);
    CHECK_DRAW_FINISH(c, p);
    p->is_dynamic = p->to == FX_DTYPE_F32 ? check_int(c, 0, 2) : 0;
    p->has_residual |= p->is_dynamic == 2 && check_one_in(c, 2);
    if (p->is_dynamic && p->has_residual)
        p->sum_lo = check_one_in(c, 2) ? -INFINITY : -1, p->sum_hi = check_one_in(c, 2) ? INFINITY : 1;
}

static const struct {
    int h, w, cin, cout, k, s, has_residual;
} shapes[] = {
    {56, 56, 64, 64, 3, 1, 0},    {28, 28, 128, 128, 3, 1, 0},  {28, 28, 256, 256, 3, 1, 0},
    {14, 14, 256, 256, 3, 1, 0},  {14, 14, 512, 512, 3, 1, 0},  {7, 7, 512, 512, 3, 1, 0},
    {56, 56, 64, 256, 1, 1, 0},   {56, 56, 256, 64, 1, 1, 0},   {14, 14, 1024, 256, 1, 1, 0},
    {14, 14, 256, 1024, 1, 1, 0}, {7, 7, 2048, 512, 1, 1, 0},   {112, 112, 16, 96, 1, 1, 0},
    {112, 112, 32, 16, 1, 1, 0},  {56, 56, 144, 24, 1, 1, 0},   {28, 28, 32, 192, 1, 1, 0},
    {14, 14, 384, 64, 1, 1, 0},   {7, 7, 160, 960, 1, 1, 0},    {224, 224, 3, 64, 7, 2, 0},
    {224, 224, 3, 32, 3, 2, 0},   {197, 1, 768, 3072, 1, 1, 0}, {1, 1, 2048, 1000, 1, 1, 0},
    {1, 1, 4096, 4096, 1, 1, 0},  {8, 1, 1024, 1024, 1, 1, 0},  {56, 56, 64, 256, 1, 1, 1},
    {28, 28, 128, 512, 1, 1, 1},  {14, 14, 256, 1024, 1, 1, 1},
};

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    fx_conv_u8_params *p = &c->params.conv_u8;
    const int pad = shapes[i].k / 2;
    *p = (fx_conv_u8_params){.n = 1, .h = shapes[i].h, .w = shapes[i].w, .cin = shapes[i].cin, .cout = shapes[i].cout};
    p->kh = p->kw = shapes[i].k, p->sh = p->sw = shapes[i].s, p->dh = p->dw = 1, p->pt = p->pl = pad;
    p->oh = (p->h + 2 * pad - p->kh) / p->sh + 1, p->ow = (p->w + 2 * pad - p->kw) / p->sw + 1, p->nr = FX_NR;
    p->x_sw = p->cin, p->x_sh = p->w * p->cin, p->x_sn = p->h * p->x_sh;
    p->y_sw = p->cout, p->y_sh = p->ow * p->cout, p->y_sn = p->oh * p->y_sh;
    p->is_by_rows = p->cin < 4, p->x_zero = 128, p->to = FX_DTYPE_U8;
    p->lo = 0, p->hi = 255;
    if ((p->has_residual = shapes[i].has_residual)) {
        p->r_sw = p->y_sw, p->r_sh = p->y_sh, p->r_sn = p->y_sn;
        p->v_scale = p->r_scale = 0.5f, p->sum_hi = 255;
    }
    *flops = 2.0 * p->oh * p->ow * p->cout * p->kh * p->kw * p->cin;
    *bytes = (double)p->h * p->w * p->cin + (double)p->oh * p->ow * p->cout + (double)p->kh * p->kw * p->cin * p->cout;
    snprintf(name, 64, "%dx%d %d->%d@%dx%d/%d%s", p->kh, p->kw, p->cin, p->cout, p->h, p->w, p->sh,
             p->has_residual ? "+" : "");
    return 1;
}

const check_op check_conv_u8 = {.draw = draw, .fill = fill, .expect = expect, .is_exact = 1, .bench = bench};
