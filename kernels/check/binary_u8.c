/* Two operands of bytes, element by element. */
#include "boxes.h"
#include "bytes.h"

#include <stdio.h>

static void draw(check_case *c) {
    fx_binary_u8_params *p = &c->params.binary_u8;
    p->kind = CHECK_PICK(c, FX_BINARY_ADD, FX_BINARY_MUL);
    check_draw_box(c, BOX(c, binary_u8, d), BOX(c, binary_u8, ys));
    check_draw_strides(c, BOX(c, binary_u8, d), BOX(c, binary_u8, as));
    check_draw_strides(c, BOX(c, binary_u8, d), BOX(c, binary_u8, bs));
    p->a_zero = check_int(c, 0, 255), p->b_zero = check_int(c, 0, 255), p->zero = check_int(c, 0, 255);
    p->lo = (float)-p->zero, p->hi = (float)(255 - p->zero);
    if (check_one_in(c, 3))
        p->lo *= 0.7f, p->hi *= 0.7f;
    const float size = p->kind == FX_BINARY_MUL ? 0.01f : 1;
    p->a_scale = check_one_in(c, 2) ? size / 2 : 1.5f * size * check_real(c);
    p->b_scale = check_one_in(c, 2) ? 0.5f : 1.5f * check_real(c);
    if (check_one_in(c, 20))
        p->a_scale = CHECK_PICK(c, -1, 1) * (check_one_in(c, 2) ? 3e38f : INFINITY);
}

static void fill(check_case *c) {
    for (int o = 0; o < 2; o++)
        check_fill_bytes(c, (char *)c->in[o] + c->in_lo[o], c->in_hi[o] - c->in_lo[o]);
}

static void expect(const check_case *c, check_expected *e) {
    const fx_binary_u8_params *p = &c->params.binary_u8;
    check_walk w = {0};
    do {
        const int a = ((const uint8_t *)c->in[0])[check_at(&w, BOX(c, binary_u8, as))] - p->a_zero;
        const int b = ((const uint8_t *)c->in[1])[check_at(&w, BOX(c, binary_u8, bs))] - p->b_zero;
        const float v =
            p->kind == FX_BINARY_MUL ? (float)(a * b) * p->a_scale : fmaf((float)a, p->a_scale, (float)b * p->b_scale);
        const int64_t at = check_at(&w, BOX(c, binary_u8, ys)) - c->out_lo;
        e->bytes[at] = (unsigned char)(int)(nearbyint(check_clamped(v, p->lo, p->hi)) + p->zero);
        e->written[at] = 1;
    } while (check_step(&w, BOX(c, binary_u8, d)));
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    if (i > 2)
        return 0;
    fx_binary_u8_params *p = &c->params.binary_u8;
    *p = (fx_binary_u8_params){.kind = i == 2 ? FX_BINARY_MUL : FX_BINARY_ADD, .a_zero = 3, .b_zero = 9};
    p->d0 = p->d1 = p->d2 = p->d3 = 1, p->d4 = 3136, p->d5 = 64;
    p->as4 = p->ys4 = 64, p->as5 = p->bs5 = p->ys5 = 1, p->bs4 = i == 1 ? 0 : 64;
    p->a_scale = p->b_scale = 0.5f, p->zero = 100, p->lo = -100, p->hi = 155;
    *flops = 0;
    *bytes = 3136.0 * 64 * (i == 1 ? 2 : 3);
    snprintf(name, 64, "%s 3136x64", i == 0 ? "add" : i == 1 ? "add to each channel" : "mul");
    return 1;
}

const check_op check_binary_u8 = {.draw = draw, .fill = fill, .expect = expect, .is_exact = 1, .bench = bench};
