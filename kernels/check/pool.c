/* Pools against a naive walk over the window in double precision. */
#include "check.h"

#include <math.h>
#include <stdio.h>

/* Output n, oy, ox, channel j: the taps inside the input, and how many of the rest are padding that counts. */
static void expect_one(const check_case *c, check_expected *e, int n, int oy, int ox, int j) {
    const fx_pool_params *p = &c->params.pool;
    const float *x = (const float *)c->in[0] + (int64_t)n * p->x_sn + j;
    double max = -INFINITY, sum = 0, magnitude = 0;
    int count = 0, is_nan = 0, taps = 0;
    for (int ky = 0; ky < p->kh; ky++)
        for (int kx = 0; kx < p->kw; kx++) {
            const int iy = oy * p->sh - p->pt + ky * p->dh, ix = ox * p->sw - p->pl + kx * p->dw;
            const int is_inside = iy >= 0 && iy < p->h && ix >= 0 && ix < p->w;
            const int is_padded = iy >= -p->pt && iy < p->h + p->pb && ix >= -p->pl && ix < p->w + p->pr;
            count += p->count_include_pad ? is_padded : is_inside;
            if (!is_inside)
                continue;
            const double v = x[(int64_t)iy * p->x_sh + (int64_t)ix * p->x_sw];
            is_nan |= isnan(v);
            max = v > max ? v : max;
            sum += v;
            magnitude += fabs(v);
            taps++;
        }
    const int64_t at = n * (int64_t)p->y_sn + oy * (int64_t)p->y_sh + ox * (int64_t)p->y_sw + j;
    if (p->kind == FX_POOL_MAX)
        check_set(c, e, at, is_nan ? NAN : max, 0);
    else
        check_set(c, e, at, taps ? sum / count : 0, taps ? check_sum_tolerance(taps, magnitude) / count : 0);
}

static void expect(const check_case *c, check_expected *e) {
    const fx_pool_params *p = &c->params.pool;
    for (int n = 0; n < p->n; n++)
        for (int oy = 0; oy < p->oh; oy++)
            for (int ox = 0; ox < p->ow; ox++)
                for (int j = 0; j < p->c; j++)
                    expect_one(c, e, n, oy, ox, j);
}

static void draw(check_case *c) {
    fx_pool_params *p = &c->params.pool;
    p->kind = check_int(c, 0, FX_POOL_COUNT - 1);
    p->n = check_one_in(c, 4) ? check_int(c, 2, 3) : 1;
    p->h = check_int(c, 1, 14), p->w = check_int(c, 1, 14), p->c = check_int(c, 1, 80);
    p->kh = check_one_in(c, 5) ? p->h : check_int(c, 1, 5);
    p->kw = check_one_in(c, 5) ? p->w : check_int(c, 1, 5);
    p->sh = check_int(c, 1, 3), p->sw = check_int(c, 1, 3), p->dh = CHECK_PICK(c, 1, 1, 2),
    p->dw = CHECK_PICK(c, 1, 1, 3);
    p->pt = check_int(c, 0, 2), p->pl = check_int(c, 0, 2), p->pb = check_int(c, 0, 2), p->pr = check_int(c, 0, 2);
    p->count_include_pad = check_int(c, 0, 1);
    const int room_h = p->h + p->pt + p->pb - (p->kh - 1) * p->dh - 1;
    const int room_w = p->w + p->pl + p->pr - (p->kw - 1) * p->dw - 1;
    /* One more than fits: what ceil_mode makes. */
    p->oh = room_h < 0 ? 1 : room_h / p->sh + 1 + check_int(c, 0, 1);
    p->ow = room_w < 0 ? 1 : room_w / p->sw + 1 + check_int(c, 0, 1);
    p->x_sw = p->c + (check_one_in(c, 3) ? check_int(c, 1, 20) : 0);
    p->x_sh = p->x_sw * p->w + (check_one_in(c, 5) ? check_int(c, 1, 9) : 0);
    p->x_sn = p->x_sh * p->h + (check_one_in(c, 5) ? check_int(c, 1, 9) : 0);
    p->y_sw = p->c + (check_one_in(c, 3) ? check_int(c, 1, 20) : 0);
    p->y_sh = p->y_sw * p->ow + (check_one_in(c, 5) ? check_int(c, 1, 9) : 0);
    p->y_sn = p->y_sh * p->oh + (check_one_in(c, 5) ? check_int(c, 1, 9) : 0);
}

static void fill(check_case *c) {
    float *x = (float *)c->in[0];
    check_fill(c, x, c->in_hi[0]);
    if (c->params.pool.kind == FX_POOL_MAX && check_one_in(c, 4))
        for (int i = 0; i < 5; i++)
            x[check_int(c, 0, (int32_t)(c->in_hi[0] / 4) - 1)] = i % 2 ? NAN : -INFINITY;
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const struct {
        int kind, size, c, k, s, pad;
    } shapes[] = {{FX_POOL_MAX, 112, 64, 3, 2, 1}, {FX_POOL_MAX, 224, 64, 2, 2, 0}, {FX_POOL_MAX, 28, 480, 3, 2, 0},
                  {FX_POOL_MAX, 14, 512, 3, 1, 1}, {FX_POOL_AVG, 35, 192, 3, 1, 1}, {FX_POOL_AVG, 7, 2048, 7, 1, 0}};
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    fx_pool_params *p = &c->params.pool;
    *p = (fx_pool_params){.kind = shapes[i].kind, .n = 1, .h = shapes[i].size, .w = shapes[i].size, .c = shapes[i].c};
    p->kh = p->kw = shapes[i].k, p->sh = p->sw = shapes[i].s, p->dh = p->dw = 1;
    p->pt = p->pl = p->pb = p->pr = shapes[i].pad;
    p->oh = p->ow = (p->h + 2 * shapes[i].pad - p->kh) / p->sh + 1;
    p->x_sw = p->c, p->x_sh = p->w * p->c, p->x_sn = p->h * p->x_sh;
    p->y_sw = p->c, p->y_sh = p->ow * p->c, p->y_sn = p->oh * p->y_sh;
    *flops = (double)p->oh * p->ow * p->c * p->kh * p->kw;
    *bytes = 4.0 * p->c * ((double)p->h * p->w + (double)p->oh * p->ow);
    snprintf(name, 64, "%s %dx%d %d@%d/%d", fx_enum_name("pool_kind", p->kind), p->kh, p->kw, p->c, p->h, p->sh);
    return 1;
}

const check_op check_pool = {.draw = draw, .fill = fill, .expect = expect, .bench = bench};
