/* Convolution: every kernel against a naive sum over the taps in double precision. */
#include "weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- weights: panels made from, and read back as, w[cout][tap][cin of the group] ---- */

static check_panels panels_of(const fx_conv_params *p) {
    return check_panels_of(p->act, p->wtype, p->sums, (int64_t)p->kh * p->kw * p->cin_panel * FX_NR);
}

/* Groups of 2, 4 or 8 channels, in and out. */
static int can_be_narrow(const fx_conv_params *p) {
    const int wide = p->cin / p->group;
    return p->cin == p->cout && (wide == 2 || wide == 4 || wide == 8);
}

/* Panels of narrow groups: the only ones that read fewer channels than their outputs see. */
static int is_narrow(const fx_conv_params *p) {
    return p->group > 1 && can_be_narrow(p) && p->cin_panel == p->cin / p->group;
}

/* Index of the weight of output `o`, tap `t` and input `i` in its panel. */
static int64_t weight_at(const fx_conv_params *p, int o, int t, int i) {
    if (is_narrow(p))
        return ((int64_t)t * p->cin_panel + i % p->cin_panel) * FX_NR + o % FX_NR;
    const int q = i - fx_conv_panel_cin(p, o / FX_NR), taps = p->kh * p->kw;
    const int first = q / p->cin_block * p->cin_block;
    const int wide = p->cin_panel - first < p->cin_block ? p->cin_panel - first : p->cin_block;
    const int64_t row = (int64_t)first * taps + (int64_t)t * wide + (q - first);
    return row * FX_NR + o % FX_NR;
}

static void fill(check_case *c) {
    const fx_conv_params *p = &c->params.conv;
    for (int i = 0; i < 2; i++)
        if (c->in[i])
            (p->sums == FX_DTYPE_I32 ? check_fill_whole : check_fill)(c, (char *)c->in[i] + c->in_lo[i],
                                                                      c->in_hi[i] - c->in_lo[i]);
    check_fill_panels(c, panels_of(p), fx_op_panels(c->op, &c->params), p->group == 1);
    if (p->group == 1)
        return;
    const int wide = p->cin / p->group, per_group = p->cout / p->group;
    for (int o = 0; o < p->cout; o++)
        for (int t = 0; t < p->kh * p->kw; t++)
            for (int i = 0; i < wide; i++)
                check_set_weight(c, panels_of(p), o, weight_at(p, o, t, o / per_group * wide + i), check_real(c));
}

/* ---- what must come out ---- */

/* Of the bound for a plain sum of the tile's largest magnitude, Winograd's transforms took at most 0.1 (F(2x2, 3x3)),
 * 0.8 (F(4x4, 3x3)) and 1.4 (F(4, 7)) in 4,000 cases a level: small sums amplify less than the bound exaggerates. */
static double amplification(uint32_t kernel) {
    return kernel == FX_CONV_WINO_LINE ? 3 : kernel == FX_CONV_WINO4 ? 2 : 1;
}

static int is_winograd(uint32_t kernel) {
    return kernel == FX_CONV_WINO2 || kernel == FX_CONV_WINO4 || kernel == FX_CONV_WINO_LINE;
}

/* The bits that every level makes of rows rounded to 8 bits, before the residual: byte_kernels.h. */
static float expect_rounded(const check_case *c, const float *pixel, int o) {
    const fx_conv_params *p = &c->params.conv;
    const check_panels panels = panels_of(p);
    const fx_weight_form form = fx_weight_forms[p->wtype];
    float total = 0;
    for (int b = 0; b < p->cin / FX_ROUNDED; b++, pixel += FX_ROUNDED) {
        float most = 0;
        for (int q = 0; q < FX_ROUNDED; q++)
            most = fmaxf(most, fabsf(pixel[q]));
        int sum = 0, of_row = 0;
        for (int q = 0; q < FX_ROUNDED && most >= 1e-30f; q++) {
            const int whole = (int)rintf(pixel[q] * (127 / most));
            const int64_t at = ((int64_t)b * FX_ROUNDED + q) * FX_NR + o % FX_NR;
            sum += whole * check_integer(check_panel_at(c, panels, o, panels.layout.weights), at, p->wtype);
            of_row += whole;
        }
        const float scale = most < 1e-30f ? 0 : most / 127;
        const int64_t at = (int64_t)b * FX_NR + o % FX_NR;
        const void *scales = check_panel_at(c, panels, o, panels.layout.scales);
        total = fmaf((float)sum, (float)check_scale(scales, at, form.scales) * scale, total);
        if (form.minimum)
            total = fmaf((float)check_scale(check_panel_at(c, panels, o, panels.layout.minimum), at, form.minimum),
                         scale * (float)of_row, total);
    }
    return total + *check_panel(c, panels, o);
}

/* Output (n, oy, ox, o) of rows rounded to 8 bits. */
static void expect_rounded_output(const check_case *c, check_expected *e, int n, int oy, int ox, int o) {
    const fx_conv_params *p = &c->params.conv;
    const float *x = c->in[0], *r = c->in[1], *panel = check_panel(c, panels_of(p), o);
    const int64_t row = (int64_t)n * p->x_sn + (int64_t)oy * p->sh * p->x_sh;
    float v = expect_rounded(c, x + row + (int64_t)ox * p->sw * p->x_sw, o);
    if (r)
        v += r[(int64_t)n * p->r_sn + (int64_t)oy * p->r_sh + (int64_t)ox * p->r_sw + o];
    const double made = check_activation(p->act, v, p->alpha, p->beta, p->act == FX_ACT_PRELU ? panel[FX_NR] : 0);
    check_set(c, e, (int64_t)n * p->y_sn + (int64_t)oy * p->y_sh + (int64_t)ox * p->y_sw + o, made,
              p->act == FX_ACT_NONE ? 0 : check_activation_tolerance(p->act, made, fabs(v) * 1e-7));
}

/* A sum of products, and of their magnitudes. */
typedef struct sums {
    double sum, magnitude;
} sums;

/* w: the weights of output o, those of a tap after each other. */
static sums sums_of(const check_case *c, const double *w, int n, int oy, int ox, int o) {
    const fx_conv_params *p = &c->params.conv;
    const float *x = c->in[0], *r = c->in[1];
    const int wide = p->cin / p->group, first = o / (p->cout / p->group) * wide;
    sums s = {.sum = *check_panel(c, panels_of(p), o)};
    s.magnitude = fabs(s.sum);
    for (int t = 0; t < p->kh * p->kw; t++, w += wide) {
        const int64_t iy = (int64_t)oy * p->sh - p->pt + t / p->kw * p->dh;
        const int64_t ix = (int64_t)ox * p->sw - p->pl + t % p->kw * p->dw;
        if (iy < 0 || iy >= p->h || ix < 0 || ix >= p->w)
            continue;
        const float *pixel = x + (int64_t)n * p->x_sn + iy * p->x_sh + ix * p->x_sw + first;
        for (int i = 0; i < wide; i++) {
            s.sum += pixel[i] * w[i];
            s.magnitude += fabs(pixel[i] * w[i]);
        }
    }
    if (r) {
        s.sum += r[(int64_t)n * p->r_sn + (int64_t)oy * p->r_sh + (int64_t)ox * p->r_sw + o];
        s.magnitude += fabs(s.sum);
    }
    return s;
}

/* Sets an output; largest: the least magnitude that its error depends on. */
static void expect_output(const check_case *c, check_expected *e, int64_t at, int o, sums s, double largest) {
    const fx_conv_params *p = &c->params.conv;
    if (c->is_exact) {
        check_set_int(c, e, at, (int64_t)s.sum);
        return;
    }
    const double slope = p->act == FX_ACT_PRELU ? check_panel(c, panels_of(p), o)[FX_NR] : 0;
    const double value = check_activation(p->act, s.sum, p->alpha, p->beta, slope);
    const double bound = amplification(c->kernel) *
                         check_sum_tolerance((int64_t)p->kh * p->kw * (p->cin / p->group), fmax(largest, s.magnitude));
    check_set(c, e, at, value, check_activation_tolerance(p->act, value, bound));
}

/* Winograd mixes the pixels of a tile: the error depends on the largest of them, not on this pixel; a first pass looks
 * for it. Weights are decoded once for all pixels. */
static void expect(const check_case *c, check_expected *e) {
    const fx_conv_params *p = &c->params.conv;
    const int wide = p->cin / p->group, decoded = p->sums == FX_DTYPE_I8 ? 0 : wide, taps = p->kh * p->kw;
    double largest = 0, *w = calloc((size_t)(taps * wide), sizeof *w);
    if (!w)
        abort();
    for (int pass = !is_winograd(c->kernel); pass < 2; pass++)
        for (int o = 0; o < p->cout; o++) {
            for (int t = 0; t < taps; t++)
                for (int i = 0; i < decoded; i++) {
                    const int64_t at = weight_at(p, o, t, o / (p->cout / p->group) * wide + i);
                    w[t * wide + i] = check_weight(c, panels_of(p), o, at);
                }
            for (int n = 0; n < p->n; n++)
                for (int oy = 0; oy < p->oh; oy++)
                    for (int ox = 0; ox < p->ow; ox++) {
                        if (p->sums == FX_DTYPE_I8) {
                            expect_rounded_output(c, e, n, oy, ox, o);
                            continue;
                        }
                        const sums s = sums_of(c, w, n, oy, ox, o);
                        const int64_t at = (int64_t)n * p->y_sn + (int64_t)oy * p->y_sh + (int64_t)ox * p->y_sw + o;
                        if (pass == 0)
                            largest = fmax(largest, s.magnitude);
                        else
                            expect_output(c, e, at, o, s, largest);
                    }
        }
    free(w);
}

/* ---- cases ---- */

static int conv_cin_panel(const fx_conv_params *p) {
    int most = 0;
    for (int c0 = 0; c0 < p->cout; c0 += FX_NR) {
        const int per_group = p->cout / p->group, last = (c0 + FX_NR < p->cout ? c0 + FX_NR : p->cout) - 1;
        const int groups = last / per_group - c0 / per_group + 1;
        most = groups > most ? groups : most;
    }
    return most * (p->cin / p->group);
}

static void set_strides(check_case *c, fx_conv_params *p) {
    p->x_sw = check_one_in(c, 12) ? 2048 : p->cin + (check_one_in(c, 3) ? check_int(c, 1, 9) : 0);
    p->x_sh = p->x_sw * p->w + (check_one_in(c, 5) ? check_int(c, 1, 9) : 0);
    p->x_sn = p->x_sh * p->h + (check_one_in(c, 5) ? check_int(c, 1, 9) : 0);
    p->y_sw = p->cout + (check_one_in(c, 3) ? check_int(c, 1, 20) : 0);
    p->y_sh = p->y_sw * p->ow + (check_one_in(c, 5) ? check_int(c, 1, 9) : 0);
    p->y_sn = p->y_sh * p->oh + (check_one_in(c, 5) ? check_int(c, 1, 9) : 0);
    p->r_sw = p->cout + (check_one_in(c, 3) ? check_int(c, 1, 20) : 0);
    p->r_sh = p->r_sw * p->ow;
    p->r_sn = p->r_sh * p->oh;
}

/* Sums of integers now and then, where they are legal. */
static void draw_sums(check_case *c, fx_conv_params *p) {
    p->sums = FX_DTYPE_F32;
    const int64_t terms = (int64_t)p->kh * p->kw * p->cin_panel;
    if (is_winograd(c->kernel) || c->kernel == FX_CONV_PLANAR || !check_one_in(c, 3) || (is_narrow(p) && terms > 256))
        return;
    p->sums = FX_DTYPE_I32, c->is_exact = 1;
    p->has_residual = 0, p->act = FX_ACT_NONE;
    if (p->group == 1 && check_one_in(c, 8)) { /* sums that a float does not hold */
        p->cin = p->cin_panel = check_int(c, 600, 1500), p->h = p->w = p->oh = p->ow = check_int(c, 1, 3);
        p->cin_block = c->kernel == FX_CONV_IM2COL ? p->cin : check_int(c, 1, 700);
        p->sh = p->sw = 1;
        set_strides(c, p);
    }
}

/* What that kernel computes: few output channels, no residual, rows of some length. */
static void draw_planar(check_case *c, fx_conv_params *p) {
    p->group = 1;
    p->cin = p->cin_panel = p->cin_block = check_one_in(c, 4) ? check_int(c, 9, 40) : check_int(c, 1, 8);
    p->cout = check_int(c, 1, FX_PLANAR_COLUMNS);
    p->w = check_one_in(c, 16) ? check_int(c, 500, 1200) : check_int(c, 1, 150);
    p->kw = check_one_in(c, 8) ? check_int(c, 20, 80) : p->kw;
    if (p->dh * p->sw * p->kh * p->cin > 400) /* rows of more than 2 MiB are left to others */
        p->dh = p->sw = 1;
    const int room = p->w + p->pl + check_int(c, 0, 3) - (p->kw - 1) * p->dw - 1;
    p->ow = room < 0 ? 1 : room / p->sw + 1;
    set_strides(c, p);
}

/* Channels that fit to the blocks of a form: the last block of a run that is all of the panel may be a short one. */
static void draw_blocks(check_case *c, fx_conv_params *p) {
    const int block = fx_weight_forms[p->wtype].block, shared = fx_weight_forms[p->wtype].shared;
    const int fits = fx_form_fits(p->wtype, (int64_t)p->kh * p->kw, p->cin_panel, p->cin_block);
    if (is_narrow(p) || p->group > 1) {
        p->group = 1, p->cout = check_int(c, 1, 50);
        p->cin_panel = p->cin;
    } else if (fits && p->sums == FX_DTYPE_F32) {
        return;
    }
    const int multiple = shared ? shared * check_int(c, 1, 3) : block * check_int(c, 1, 4);
    p->cin = p->cin_panel =
        p->kh * p->kw > 1 || shared || fx_weight_forms[p->wtype].bits == 5 ? multiple : multiple + check_int(c, 0, 20);
    p->cin_block = c->kernel == FX_CONV_IM2COL ? p->cin : CHECK_PICK(c, block, 2 * block, p->cin);
    p->sums = FX_DTYPE_F32, c->is_exact = 0;
    if (c->kernel == FX_CONV_PLANAR && !fx_conv_kernel_fits(FX_CONV_PLANAR, p))
        c->kernel = FX_CONV_DIRECT;
    set_strides(c, p);
}

/* Rows rounded to 8 bits: one tap without pads, whole blocks. */
static void draw_rounded(check_case *c, fx_conv_params *p) {
    p->sums = FX_DTYPE_I8;
    do
        p->wtype = check_int(c, 0, FX_WTYPE_COUNT - 1);
    while (!fx_multiplies_rounded(p->wtype));
    p->group = p->kh = p->kw = p->dh = p->dw = 1, p->pt = p->pl = 0;
    p->cin = p->cin_panel = p->cin_block = FX_ROUNDED * check_int(c, 1, 6);
    p->cout = check_int(c, 1, 70);
    p->oh = (p->h - 1) / p->sh + 1, p->ow = (p->w - 1) / p->sw + 1;
    set_strides(c, p);
}

static void draw(check_case *c) {
    fx_conv_params *p = &c->params.conv;
    c->kernel = (uint32_t)check_int(c, 0, FX_CONV_PLANAR);
    const int winograd = is_winograd(c->kernel);
    p->n = check_one_in(c, 4) ? check_int(c, 2, 3) : 1;
    p->group = winograd || c->kernel == FX_CONV_IM2COL || check_one_in(c, 2) ? 1 : check_int(c, 1, 9);
    p->cin = p->group * (check_one_in(c, 4) ? check_int(c, 16, 80) : check_int(c, 1, 19));
    p->cout = p->group * (check_one_in(c, 4) ? check_int(c, 16, 70) : check_int(c, 1, 20));
    if (p->group > 1 && p->cin > 100)
        p->cin = p->group * 3;
    const int narrow = p->group > 1 && check_one_in(c, 3);
    if (narrow) {
        p->group = check_int(c, 2, 17);
        p->cin = p->cout = p->group * CHECK_PICK(c, 2, 4, 8);
    }
    p->kh = winograd ? 3 : CHECK_PICK(c, 1, 1, 1, 3, 3, 5, 2, 7);
    p->kw = winograd ? 3 : check_one_in(c, 2) ? p->kh : check_int(c, 1, 5);
    if (c->kernel == FX_CONV_WINO_LINE) {
        p->kh = 1, p->kw = CHECK_PICK(c, 3, 5, 7);
        if (check_one_in(c, 2))
            p->kh = p->kw, p->kw = 1;
    }
    p->sh = winograd ? 1 : CHECK_PICK(c, 1, 1, 2, 3);
    p->sw = winograd ? 1 : check_one_in(c, 4) ? check_int(c, 1, 4) : p->sh;
    p->dh = winograd ? 1 : CHECK_PICK(c, 1, 1, 1, 2, 3, 8);
    p->dw = winograd ? 1 : check_one_in(c, 4) ? check_int(c, 1, 3) : p->dh;
    p->h = check_int(c, 1, 17), p->w = check_int(c, 1, 17);
    const int pad = p->dh > 3 ? 2 * p->dh : 3; /* taps far apart: many are outside the map for whole tiles */
    p->pt = check_int(c, 0, pad), p->pl = check_int(c, 0, pad);
    const int pb = check_int(c, 0, pad), pr = check_int(c, 0, pad);
    const int room_h = p->h + p->pt + pb - (p->kh - 1) * p->dh - 1,
              room_w = p->w + p->pl + pr - (p->kw - 1) * p->dw - 1;
    p->oh = room_h < 0 ? 1 : room_h / p->sh + 1;
    p->ow = room_w < 0 ? 1 : room_w / p->sw + 1;
    p->cin_panel = p->group == 1 ? p->cin : narrow ? p->cin / p->group : conv_cin_panel(p);
    p->cin_block = c->kernel == FX_CONV_IM2COL ? p->cin + check_int(c, 0, 3) : check_int(c, 1, p->cin_panel);
    p->nr = FX_NR;
    set_strides(c, p);
    p->has_residual = check_one_in(c, 3);
    p->act = check_one_in(c, 2) ? check_int(c, 0, FX_ACT_COUNT - 1) : check_int(c, 0, FX_ACT_CLIP);
    p->alpha = check_real(c), p->beta = p->alpha + 1;
    p->tile_block = winograd ? check_int(c, 1, 30) : 0;
    if (c->kernel == FX_CONV_PLANAR)
        draw_planar(c, p);
    p->wtype = check_one_in(c, 2) ? FX_WTYPE_F32 : check_int(c, 0, FX_WTYPE_COUNT - 1);
    if (c->kernel == FX_CONV_DIRECT && check_one_in(c, 4)) {
        draw_rounded(c, p);
        return;
    }
    draw_sums(c, p);
    if (fx_weight_forms[p->wtype].shared && (p->kh * p->kw > 1 || c->kernel == FX_CONV_PLANAR))
        p->wtype = FX_WTYPE_Q4M;
    if (check_has_blocks(p->wtype))
        draw_blocks(c, p);
}

/* ---- shapes to time ---- */

#define FORM 16
#define ROUNDED (32 * FORM) /* rows */
_Static_assert(FORM > FX_CONV_COUNT, "a kernel and a form in one number");

static const struct {
    int h, w, cin, cout, k, s, group, kernel; /* of stored weights: kernel + FORM * wtype */
} bench_shapes[] = {
    {56, 56, 64, 64, 3, 1, 1, FX_CONV_DIRECT},
    {28, 28, 256, 256, 3, 1, 1, FX_CONV_DIRECT},
    {14, 14, 512, 512, 3, 1, 1, FX_CONV_DIRECT},
    {7, 7, 512, 512, 3, 1, 1, FX_CONV_DIRECT},
    {56, 56, 64, 64, 3, 1, 1, FX_CONV_WINO4},
    {28, 28, 256, 256, 3, 1, 1, FX_CONV_WINO4},
    {14, 14, 512, 512, 3, 1, 1, FX_CONV_WINO4},
    {7, 7, 512, 512, 3, 1, 1, FX_CONV_WINO4},
    {224, 224, 64, 64, 3, 1, 1, FX_CONV_WINO4},
    {56, 56, 64, 64, 3, 1, 1, FX_CONV_WINO2},
    {28, 28, 256, 256, 3, 1, 1, FX_CONV_WINO2},
    {14, 14, 512, 512, 3, 1, 1, FX_CONV_WINO2},
    {7, 7, 512, 512, 3, 1, 1, FX_CONV_WINO2},
    {224, 224, 3, 64, 7, 2, 1, FX_CONV_IM2COL},
    {224, 224, 3, 64, 7, 2, 1, FX_CONV_DIRECT},
    {224, 224, 3, 64, 3, 1, 1, FX_CONV_IM2COL},
    {224, 224, 3, 32, 3, 2, 1, FX_CONV_IM2COL},
    {64, 257, 1, 32, 3, 1, 1, FX_CONV_IM2COL},
    {80, 160, 3, 32, 3, 1, 1, FX_CONV_IM2COL},
    {172, 264, 8, 8, 7, 1, 1, FX_CONV_IM2COL},
    {172, 264, 8, 8, 7, 1, 1, FX_CONV_PLANAR},
    {128, 62, 12, 12, 7, 1, 1, FX_CONV_IM2COL},
    {128, 62, 12, 12, 7, 1, 1, FX_CONV_DIRECT},
    {128, 62, 12, 12, 7, 1, 1, FX_CONV_PLANAR},
    {128, 62, 32, 8, 3, 1, 1, FX_CONV_PLANAR},
    {172, 264, 8, 1, 5, 1, 1, FX_CONV_IM2COL},
    {172, 264, 8, 1, 5, 1, 1, FX_CONV_PLANAR},
    {172, 88, 32, 1, 5, 1, 1, FX_CONV_PLANAR},
    {224, 224, 16, 3, 3, 1, 1, FX_CONV_PLANAR},
    {224, 224, 1, 4, 3, 1, 1, FX_CONV_PLANAR},
    {56, 56, 64, 256, 1, 1, 1, FX_CONV_DIRECT},
    {14, 14, 1024, 256, 1, 1, 1, FX_CONV_DIRECT},
    {14, 14, 256, 1024, 1, 1, 1, FX_CONV_DIRECT},
    {7, 7, 2048, 512, 1, 1, 1, FX_CONV_DIRECT},
    {112, 112, 16, 96, 1, 1, 1, FX_CONV_DIRECT},
    {112, 112, 32, 16, 1, 1, 1, FX_CONV_DIRECT},
    {56, 56, 144, 24, 1, 1, 1, FX_CONV_DIRECT},
    {28, 28, 32, 192, 1, 1, 1, FX_CONV_DIRECT},
    {14, 14, 384, 64, 1, 1, 1, FX_CONV_DIRECT},
    {147, 147, 128, 128, 1, 1, 1, FX_CONV_DIRECT},
    {74, 74, 256, 256, 1, 1, 1, FX_CONV_DIRECT},
    {19, 19, 728, 728, 1, 1, 1, FX_CONV_DIRECT},
    {7, 7, 160, 960, 1, 1, 1, FX_CONV_DIRECT},
    {56, 56, 128, 128, 3, 1, 32, FX_CONV_DIRECT},
    {56, 56, 256, 256, 3, 2, 32, FX_CONV_DIRECT},
    {28, 28, 256, 256, 3, 1, 32, FX_CONV_DIRECT},
    {56, 56, 64, 64, 3, 1, 32, FX_CONV_DIRECT},
    {28, 28, 128, 128, 5, 1, 32, FX_CONV_DIRECT},
    {14, 14, 512, 512, 3, 1, 32, FX_CONV_DIRECT},
    {1, 1, 4096, 4096, 1, 1, 1, FX_CONV_DIRECT},
    {1, 1, 25088, 4096, 1, 1, 1, FX_CONV_DIRECT},
    {1, 1, 8192, 4096, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_F32},
    {1, 1, 8192, 4096, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_F16},
    {1, 1, 8192, 4096, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_S8},
    {1, 1, 8192, 4096, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_S8B},
    {1, 1, 8192, 4096, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_Q4},
    {1, 1, 8192, 4096, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_Q4M},
    {1, 1, 8192, 4096, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_Q4MF},
    {1, 1, 576, 1536, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_S8B},
    {1, 1, 576, 1536, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_Q4},
    {1, 1, 576, 1536, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_Q4M},
    {1, 1, 1536, 576, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_S8B},
    {1, 1, 1536, 576, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_Q4},
    {1, 1, 1536, 576, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_Q4M},
    {1, 1, 8192, 4096, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_Q4K},
    {1, 1, 8192, 4096, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_Q5},
    {1, 1, 8192, 4096, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_Q5K},
    {1, 1, 8192, 4096, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_Q6K},
    {1, 1, 8192, 4096, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_S8MF},
    {1, 1, 8192, 4096, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_S8B16F},
    {1, 4, 8192, 4096, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_Q4K},
    {1, 4, 8192, 4096, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_Q6K},
    {1, 4, 8192, 4096, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_Q4M},
    {1, 1, 576, 49152, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_S8B},
    {1, 1, 576, 49152, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_Q4},
    {1, 1, 576, 49152, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_Q4M},
    {1, 1, 576, 1536, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_S8B + ROUNDED},
    {1, 1, 576, 1536, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_Q4 + ROUNDED},
    {1, 1, 576, 1536, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_Q4M + ROUNDED},
    {1, 8, 576, 1536, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_S8B},
    {1, 8, 576, 1536, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_S8B + ROUNDED},
    {1, 8, 576, 1536, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_Q4},
    {1, 8, 576, 1536, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_Q4 + ROUNDED},
    {1, 8, 576, 1536, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_Q4M},
    {1, 8, 576, 1536, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_Q4M + ROUNDED},
    {1, 32, 576, 1536, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_S8B},
    {1, 32, 576, 1536, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_S8B + ROUNDED},
    {1, 32, 576, 1536, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_Q4},
    {1, 32, 576, 1536, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_Q4 + ROUNDED},
    {1, 32, 576, 1536, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_Q4M},
    {1, 32, 576, 1536, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_Q4M + ROUNDED},
    {1, 4, 8192, 4096, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_F32},
    {1, 4, 8192, 4096, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_Q4},
    {1, 7, 8192, 4096, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_S8},
    {1, 10, 1024, 4096, 1, 1, 1, FX_CONV_DIRECT},
    {1, 16, 1024, 4096, 1, 1, 1, FX_CONV_DIRECT},
    {1, 24, 1024, 4096, 1, 1, 1, FX_CONV_DIRECT},
    {1, 50, 1024, 4096, 1, 1, 1, FX_CONV_DIRECT},
    {28, 28, 256, 256, 3, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_F16},
    {28, 28, 256, 256, 3, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_S8},
    {28, 28, 256, 256, 3, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_Q4},
    {1, 400, 384, 1536, 1, 1, 1, FX_CONV_DIRECT + FORM * FX_WTYPE_S8},
    {28, 28, 256, 256, 3, 1, 1, FX_CONV_WINO4 + FORM * FX_WTYPE_F16},
    {28, 28, 256, 256, 3, 1, 1, FX_CONV_WINO4 + FORM * FX_WTYPE_S8},
    {14, 14, 512, 512, 3, 1, 1, FX_CONV_WINO4 + FORM * FX_WTYPE_S8},
};

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    if (i >= (int)(sizeof bench_shapes / sizeof *bench_shapes))
        return 0;
    fx_conv_params *p = &c->params.conv;
    const int pad = bench_shapes[i].k / 2;
    *p = (fx_conv_params){.n = 1,
                          .h = bench_shapes[i].h,
                          .w = bench_shapes[i].w,
                          .cin = bench_shapes[i].cin,
                          .cout = bench_shapes[i].cout};
    p->kh = p->kw = bench_shapes[i].k, p->sh = p->sw = bench_shapes[i].s, p->dh = p->dw = 1, p->pt = p->pl = pad;
    p->oh = (p->h + 2 * pad - p->kh) / p->sh + 1, p->ow = (p->w + 2 * pad - p->kw) / p->sw + 1;
    p->group = bench_shapes[i].group, p->nr = FX_NR, p->act = FX_ACT_RELU;
    p->cin_panel = p->group == 1 ? p->cin : can_be_narrow(p) ? p->cin / p->group : conv_cin_panel(p);
    p->cin_block = p->cin_panel < 64 ? p->cin_panel : 64;
    p->x_sw = p->cin, p->x_sh = p->w * p->cin, p->x_sn = p->h * p->x_sh;
    p->y_sw = p->cout, p->y_sh = p->ow * p->cout, p->y_sn = p->oh * p->y_sh;
    c->kernel = (uint32_t)bench_shapes[i].kernel % FORM;
    p->tile_block = 64;
    const int form = bench_shapes[i].kernel % ROUNDED / FORM, is_rounded = bench_shapes[i].kernel >= ROUNDED;
    p->wtype = form;
    p->sums = is_rounded ? FX_DTYPE_I8 : FX_DTYPE_F32;
    *flops = 2.0 * p->oh * p->ow * p->cout * p->kh * p->kw * (p->cin / p->group);
    *bytes = 4.0 * ((double)p->h * p->w * p->cin + (double)p->oh * p->ow * p->cout) +
             (double)fx_panel_layout_of(p->act, p->wtype, (int64_t)p->kh * p->kw * p->cin_panel * FX_NR).bytes *
                 p->cout / FX_NR;
    static const char *const forms[] = {
        [FX_WTYPE_F32] = "",       [FX_WTYPE_F16] = " f16",       [FX_WTYPE_S8] = " s8",     [FX_WTYPE_S8B] = " s8b",
        [FX_WTYPE_S8BF] = " s8bf", [FX_WTYPE_Q4] = " q4",         [FX_WTYPE_Q4F] = " q4f",   [FX_WTYPE_Q4M] = " q4m",
        [FX_WTYPE_Q4MF] = " q4mf", [FX_WTYPE_S8B16F] = " s8b16f", [FX_WTYPE_S8MF] = " s8mf", [FX_WTYPE_Q5] = " q5",
        [FX_WTYPE_Q5M] = " q5m",   [FX_WTYPE_Q4K] = " q4k",       [FX_WTYPE_Q5K] = " q5k",   [FX_WTYPE_Q6K] = " q6k",
    };
    snprintf(name, 64, "%dx%d %d->%d@%dx%d/%d g%d kernel %d%s%s", p->kh, p->kw, p->cin, p->cout, p->h, p->w, p->sh,
             p->group, bench_shapes[i].kernel % FORM, forms[form], is_rounded ? " rounded" : "");
    return 1;
}

/* Of 3x3 convolutions of 512 channels; docs/decisions/0022. Over the largest of 25,000 outputs a fifth more than was
 * measured with sums in runs (vec/run_sums.h; Winograd's channels in chains of 64 or 32), where one chain would
 * err 2.2e-6, 0.9e-6 and 2.8e-6; of 60 outputs the figures that the kernels are held to. */
static void error_max(const check_case *c, double *error, double *sampled) {
    const fx_conv_params *p = &c->params.conv;
    if (p->cin != 512 || p->kh != 3 || p->group != 1)
        return;
    *error = c->kernel == FX_CONV_WINO4 ? 1.4e-6 : c->kernel == FX_CONV_WINO2 ? 3.3e-7 : 2.9e-7;
    *sampled = c->kernel == FX_CONV_WINO4 ? 1.1e-6 : c->kernel == FX_CONV_WINO2 ? 2.5e-7 : 2.2e-7;
}

const check_op check_conv = {.draw = draw, .fill = fill, .expect = expect, .bench = bench, .error_max = error_max};
