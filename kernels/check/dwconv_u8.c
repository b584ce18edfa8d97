/* Depthwise convolution of 8-bit activations, product by product. */
#include "bytes.h"

#include <stdio.h>

static int64_t bytes_of(const fx_dwconv_u8_params *p) {
    return fx_byte_panel_head(p->to) + (int64_t)p->kw * ((p->kh + 3) / 4) * FX_FOUR_BYTES;
}

static void fill(check_case *c) {
    const fx_dwconv_u8_params *p = &c->params.dwconv_u8;
    for (int o = 0; o < 2; o++)
        if (c->in[o])
            check_fill_bytes(c, c->in[o], c->in_hi[o]);
    check_fill_steps(c, p->is_dynamic);
    check_fill_byte_panels(c, (p->c + FX_NR - 1) / FX_NR, bytes_of(p), p->to, p->kh * p->kw, 1);
    const int64_t head = fx_byte_panel_head(p->to); /* what fills up the fours is 0 */
    for (int64_t b = 0; b < c->weight_bytes; b++)
        if (b % bytes_of(p) >= head) {
            const int64_t at = b % bytes_of(p) - head;
            int32_t *sums = (int32_t *)(void *)((char *)c->weight + b / bytes_of(p) * bytes_of(p)) + FX_NR;
            if (at / FX_FOUR_BYTES % ((p->kh + 3) / 4) * 4 + at % 4 >= p->kh) {
                sums[at / 4 % FX_NR] -= ((int8_t *)c->weight)[b];
                ((char *)c->weight)[b] = 0;
            }
        }
}

static void expect(const check_case *c, check_expected *e) {
    const fx_dwconv_u8_params *p = &c->params.dwconv_u8;
    const fx_byte_finish finish = CHECK_FINISH_OF(p);
    for (int n = 0; n < p->n; n++)
        for (int oy = 0; oy < p->oh; oy++)
            for (int ox = 0; ox < p->ow; ox++)
                for (int o = 0; o < p->c; o++) {
                    const char *panel = (const char *)c->weight + o / FX_NR * bytes_of(p);
                    const float *scale = (const float *)(const void *)panel + 2 * FX_NR + o % FX_NR;
                    const int8_t *w = (const int8_t *)panel + fx_byte_panel_head(p->to) + (int64_t)o % FX_NR * 4;
                    const int zero = check_zero(c, p->is_dynamic, p->x_zero);
                    const int32_t *words = (const int32_t *)(const void *)panel + o % FX_NR;
                    int64_t sum = words[0] - (p->is_dynamic ? (int64_t)zero * words[FX_NR] : 0);
                    for (int ky = 0; ky < p->kh; ky++)
                        for (int kx = 0; kx < p->kw; kx++) {
                            const int64_t iy = (int64_t)oy * p->sh - p->pt + ky * p->dh;
                            const int64_t ix = (int64_t)ox * p->sw - p->pl + kx * p->dw;
                            const int inside = iy >= 0 && iy < p->h && ix >= 0 && ix < p->w;
                            const int64_t at = (int64_t)n * p->x_sn + iy * p->x_sh + ix * p->x_sw + o;
                            sum += (inside ? ((const uint8_t *)c->in[0])[at] : zero) *
                                   w[(kx * ((p->kh + 3) / 4) + ky / 4) * FX_FOUR_BYTES + ky % 4];
                        }
                    const uint8_t *r = (const uint8_t *)c->in[1] + (int64_t)n * p->r_sn + (int64_t)oy * p->r_sh +
                                       (int64_t)ox * p->r_sw + o;
                    const int64_t at = (int64_t)n * p->y_sn + (int64_t)oy * p->y_sh + (int64_t)ox * p->y_sw + o;
                    const float factor = p->is_dynamic ? scale[0] * *(const float *)c->in[1] : scale[0];
                    check_set_finished(c, e, &finish, at, sum,
                                       (float[]){factor, p->to == FX_DTYPE_F32 ? scale[FX_NR] : 0},
                                       p->has_residual ? r : NULL);
                }
}

static void draw(check_case *c) {
    fx_dwconv_u8_params *p = &c->params.dwconv_u8;
    c->is_exact = 1;
    p->n = check_one_in(c, 4) ? check_int(c, 2, 3) : 1;
    p->c = check_one_in(c, 3) ? check_int(c, 16, 150) : check_int(c, 1, 40);
    p->kh = CHECK_PICK(c, 3, 3, 3, 5, 5, 7, 1, 2, 4, 9), p->kw = check_one_in(c, 2) ? p->kh : check_int(c, 1, 7);
    p->sh = CHECK_PICK(c, 1, 1, 2, 3), p->sw = check_one_in(c, 4) ? check_int(c, 1, 4) : p->sh;
    p->dh = CHECK_PICK(c, 1, 1, 1, 2, 3), p->dw = check_one_in(c, 4) ? check_int(c, 1, 3) : p->dh;
    p->h = check_int(c, 1, 17), p->w = check_one_in(c, 8) ? check_int(c, 60, 140) : check_int(c, 1, 17);
    CHECK_BYTE_WINDOW(c, p);
    p->nr = FX_NR;
    CHECK_BYTE_STRIDES(c, p, p->c, p->c);
    p->x_zero = check_int(c, 0, 255);
    CHECK_DRAW_FINISH(c, p);
    p->is_dynamic = p->to == FX_DTYPE_F32 ? check_int(c, 0, 2) : 0;
}

static const struct {
    int h, c, k, s;
} shapes[] = {{112, 32, 3, 1}, {112, 96, 3, 2}, {56, 144, 3, 1}, {28, 192, 3, 1},
              {14, 384, 3, 1}, {7, 960, 3, 1},  {56, 144, 5, 2}, {28, 240, 5, 1}};

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    fx_dwconv_u8_params *p = &c->params.dwconv_u8;
    *p = (fx_dwconv_u8_params){.n = 1, .h = shapes[i].h, .w = shapes[i].h, .c = shapes[i].c, .dh = 1, .dw = 1};
    p->kh = p->kw = shapes[i].k, p->sh = p->sw = shapes[i].s, p->pt = p->pl = p->kh / 2, p->nr = FX_NR;
    p->oh = p->ow = (p->h - 1) / p->sh + 1;
    p->x_sw = p->y_sw = p->c, p->x_sh = p->w * p->c, p->x_sn = p->h * p->x_sh;
    p->y_sh = p->ow * p->c, p->y_sn = p->oh * p->y_sh;
    p->x_zero = 128, p->to = FX_DTYPE_U8, p->lo = 0, p->hi = 255;
    *flops = 2.0 * p->oh * p->ow * p->c * p->kh * p->kw;
    *bytes = (double)p->h * p->w * p->c + (double)p->oh * p->ow * p->c;
    snprintf(name, 64, "%dx%d %d@%dx%d/%d", p->kh, p->kw, p->c, p->h, p->w, p->sh);
    return 1;
}

const check_op check_dwconv_u8 = {.draw = draw, .fill = fill, .expect = expect, .is_exact = 1, .bench = bench};
