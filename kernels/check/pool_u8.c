/* Pools of bytes, element by element. */
#include "bytes.h"

#include <stdio.h>

static void draw(check_case *c) {
    fx_pool_u8_params *p = &c->params.pool_u8;
    p->kind = check_int(c, 0, FX_POOL_COUNT - 1), p->count_include_pad = check_int(c, 0, 1);
    p->n = check_one_in(c, 4) ? check_int(c, 2, 3) : 1;
    p->c = check_one_in(c, 3) ? check_int(c, 60, 150) : check_int(c, 1, 40);
    p->h = check_int(c, 1, 14), p->w = check_int(c, 1, 14);
    p->kh = check_one_in(c, 4) ? p->h : check_int(c, 1, 5), p->kw = check_one_in(c, 4) ? p->w : check_int(c, 1, 5);
    p->sh = check_int(c, 1, 3), p->sw = check_int(c, 1, 3);
    p->dh = check_one_in(c, 4) ? 2 : 1, p->dw = check_one_in(c, 4) ? 2 : 1;
    p->pb = check_int(c, 0, 3), p->pr = check_int(c, 0, 3);
    CHECK_BYTE_WINDOW(c, p);
    p->x_sw = p->c + (check_one_in(c, 3) ? check_int(c, 1, 9) : 0);
    p->x_sh = p->x_sw * p->w + check_int(c, 0, 3), p->x_sn = p->x_sh * p->h;
    p->y_sw = p->c + (check_one_in(c, 3) ? check_int(c, 1, 20) : 0);
    p->y_sh = p->y_sw * p->ow + check_int(c, 0, 3), p->y_sn = p->y_sh * p->oh;
    p->x_zero = check_int(c, 0, 255), p->zero = check_int(c, 0, 255);
    p->lo = (float)-p->zero, p->hi = (float)(255 - p->zero);
    p->scale = check_one_in(c, 2) ? 1 : 2 * check_real(c);
}

static void fill(check_case *c) {
    check_fill_bytes(c, c->in[0], c->in_hi[0]);
}

static unsigned char pixel(const check_case *c, int n, int oy, int ox, int j) {
    const fx_pool_u8_params *p = &c->params.pool_u8;
    int sum = 0, top = 0, inside = 0, padded = 0;
    for (int ky = 0; ky < p->kh; ky++)
        for (int kx = 0; kx < p->kw; kx++) {
            const int iy = oy * p->sh - p->pt + ky * p->dh, ix = ox * p->sw - p->pl + kx * p->dw;
            padded += iy < p->h + p->pb && ix < p->w + p->pr;
            if (iy < 0 || iy >= p->h || ix < 0 || ix >= p->w)
                continue;
            const int v = ((const uint8_t *)c->in[0])[n * p->x_sn + iy * p->x_sh + ix * p->x_sw + j];
            sum += v, inside++, top = v > top ? v : top;
        }
    if (!inside)
        return (unsigned char)p->zero;
    if (p->kind == FX_POOL_MAX)
        return (unsigned char)top;
    const float scale = p->scale / (float)(p->count_include_pad ? padded : inside);
    const float v = (float)(sum - inside * p->x_zero) * scale;
    return (unsigned char)(int)(nearbyint(check_clamped(v, p->lo, p->hi)) + p->zero);
}

static void expect(const check_case *c, check_expected *e) {
    const fx_pool_u8_params *p = &c->params.pool_u8;
    for (int n = 0; n < p->n; n++)
        for (int oy = 0; oy < p->oh; oy++)
            for (int ox = 0; ox < p->ow; ox++)
                for (int j = 0; j < p->c; j++) {
                    const int64_t at = (int64_t)n * p->y_sn + (int64_t)oy * p->y_sh + (int64_t)ox * p->y_sw + j;
                    e->bytes[at] = pixel(c, n, oy, ox, j);
                    e->written[at] = 1;
                }
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const struct {
        int kind, size, c, k, s;
    } shapes[] = {{FX_POOL_MAX, 112, 64, 3, 2}, {FX_POOL_AVG, 56, 256, 2, 2}, {FX_POOL_AVG, 7, 2048, 7, 1}};
    if (i > 2)
        return 0;
    fx_pool_u8_params *p = &c->params.pool_u8;
    *p = (fx_pool_u8_params){.kind = shapes[i].kind, .n = 1, .h = shapes[i].size, .c = shapes[i].c, .dh = 1, .dw = 1};
    p->w = p->h, p->kh = p->kw = shapes[i].k, p->sh = p->sw = shapes[i].s, p->oh = p->ow = (p->h - p->kh) / p->sh + 1;
    p->x_sw = p->y_sw = p->c, p->x_sh = p->c * p->w, p->x_sn = p->x_sh * p->h, p->y_sh = p->c * p->ow;
    p->y_sn = p->y_sh * p->oh, p->scale = 1, p->hi = 255;
    *flops = 0;
    *bytes = (double)p->x_sn + p->y_sn;
    snprintf(name, 64, "%s %d@%d %dx%d/%d", fx_enum_name("pool_kind", p->kind), p->c, p->h, p->kh, p->kw, p->sh);
    return 1;
}

const check_op check_pool_u8 = {.draw = draw, .fill = fill, .expect = expect, .is_exact = 1, .bench = bench};
