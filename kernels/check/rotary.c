/* Rotary embedding against its formula in double precision. */
#include "check.h"

#include <math.h>
#include <stdio.h>

static void draw(check_case *c) {
    fx_rotary_params *p = &c->params.rotary;
    p->batch = check_int(c, 1, 3);
    p->heads = check_int(c, 1, 4);
    p->tokens = check_int(c, 1, 9);
    p->turned = 2 * (check_one_in(c, 3) ? check_int(c, 1, 70) : check_int(c, 1, 12));
    p->d = p->turned + (check_one_in(c, 3) ? check_int(c, 0, 20) : 0);
    p->is_interleaved = check_one_in(c, 3);
    p->second = !p->is_interleaved && check_one_in(c, 2) ? p->turned / 2 : 0;
    const int32_t gap = check_one_in(c, 3) ? check_int(c, 1, 9) : 0, wide = p->d + gap;
    const int is_by_head = check_one_in(c, 2);
    p->x_st = is_by_head ? wide : wide * p->heads;
    p->x_sh = is_by_head ? wide * p->tokens : wide;
    p->x_sb = p->y_sb = wide * p->tokens * p->heads;
    const int is_turned = check_one_in(c, 2); /* y has the other order of tokens and heads */
    p->y_st = is_by_head != is_turned ? wide : wide * p->heads;
    p->y_sh = is_by_head != is_turned ? wide * p->tokens : wide;
    p->c_st = p->turned / 2 + p->second + gap;
    p->c_sh = check_one_in(c, 2) ? 0 : p->c_st * p->tokens;
    p->c_sb = check_one_in(c, 2) ? 0 : p->c_st * p->tokens * p->heads;
}

static void expect(const check_case *c, check_expected *e) {
    const fx_rotary_params *p = &c->params.rotary;
    const int32_t half = p->turned / 2;
    for (int64_t row = 0; row < (int64_t)p->batch * p->heads * p->tokens; row++) {
        const int64_t t = row % p->tokens, h = row / p->tokens % p->heads, b = row / p->tokens / p->heads;
        const int64_t angle = b * p->c_sb + h * p->c_sh + t * p->c_st, to = b * p->y_sb + h * p->y_sh + t * p->y_st;
        const float *x = (const float *)c->in[0] + b * p->x_sb + h * p->x_sh + t * p->x_st;
        const float *cosines = (const float *)c->in[1] + angle, *sines = (const float *)c->in[2] + angle;
        for (int32_t i = 0; i < p->d; i++) {
            if (i >= p->turned) {
                check_set(c, e, to + i, x[i], 0);
                continue;
            }
            const int is_later = p->is_interleaved ? i % 2 : i >= half;
            const int32_t other = p->is_interleaved ? i ^ 1 : is_later ? i - half : i + half;
            const int32_t at = p->is_interleaved ? i / 2 : is_later ? i - half + p->second : i;
            const double own = (double)x[i] * cosines[at], turned = (double)x[other] * sines[at];
            check_set(c, e, to + i, is_later ? own + turned : own - turned,
                      (fabs(own) + fabs(turned)) * 0x1p-22 + 1e-30);
        }
    }
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const int shapes[][3] = {{8, 64, 64}, {32, 512, 128}, {32, 1, 128}};
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    fx_rotary_params *p = &c->params.rotary;
    *p = (fx_rotary_params){.batch = 1, .heads = shapes[i][0], .tokens = shapes[i][1], .d = shapes[i][2]};
    p->turned = p->d;
    p->second = p->d / 2;
    p->x_sh = p->d, p->x_st = p->d * p->heads;
    p->y_sh = p->d * p->tokens, p->y_st = p->d;
    p->c_st = p->d;
    *flops = 0;
    *bytes = 8.0 * p->heads * p->tokens * p->d;
    snprintf(name, 64, "%d x %dx%d", p->heads, p->tokens, p->d);
    return 1;
}

const check_op check_rotary = {.draw = draw, .expect = expect, .bench = bench};
