/* Product of two computed matrices of bytes, product by product. */
#include "bytes.h"

#include <stdio.h>

static void draw(check_case *c) {
    fx_matmul_u8_params *p = &c->params.matmul_u8;
    p->b0 = check_one_in(c, 2) ? 1 : check_int(c, 1, 3), p->b1 = check_one_in(c, 2) ? 1 : check_int(c, 1, 4);
    p->m = check_one_in(c, 5) ? check_int(c, 30, 90) : check_int(c, 1, 20);
    p->n = check_one_in(c, 5) ? check_int(c, 33, 120) : check_int(c, 1, 40);
    p->k = check_one_in(c, 8) ? check_int(c, 500, 1200) : check_int(c, 1, 40);
    const int32_t gap = check_one_in(c, 3) ? check_int(c, 1, 9) : 0, step = check_one_in(c, 6) ? 2 : 1;
    const int turned = check_one_in(c, 2), plain = !check_one_in(c, 5);
    p->a_sk = plain ? step : p->m + gap, p->a_sm = plain ? p->k * step + gap : 1;
    p->a_s1 = p->m * p->k * 2 + 2000, p->a_s0 = check_one_in(c, 4) ? 0 : p->a_s1 * p->b1;
    p->b_sk = turned ? 1 : p->n * step + gap, p->b_sn = turned ? p->k + gap : step;
    p->b_s1 = check_one_in(c, 4) ? 0 : p->k * p->n * 2 + 12000, p->b_s0 = p->b_s1 * p->b1;
    p->y_sm = p->n + gap, p->y_s1 = p->y_sm * p->m, p->y_s0 = p->y_s1 * p->b1;
    p->a_zero = check_one_in(c, 3) ? 0 : check_int(c, 0, 255), p->b_zero = check_int(c, 0, 255);
    p->to = check_one_in(c, 3) ? FX_DTYPE_F32 : FX_DTYPE_U8, p->zero = check_int(c, 0, 255);
    p->lo = p->to == FX_DTYPE_F32 ? -INFINITY : (float)-p->zero;
    p->hi = p->to == FX_DTYPE_F32 ? INFINITY : (float)(255 - p->zero);
    p->scale = check_one_in(c, 2) ? 0.001953125f : 0.02f * check_real(c) / sqrtf((float)p->k);
}

static void fill(check_case *c) {
    for (int i = 0; i < 2; i++)
        check_fill_bytes(c, (char *)c->in[i] + c->in_lo[i], c->in_hi[i] - c->in_lo[i]);
}

static void expect(const check_case *c, check_expected *e) {
    const fx_matmul_u8_params *p = &c->params.matmul_u8;
    const fx_byte_finish finish = {.to = p->to, .zero = p->zero, .lo = p->lo, .hi = p->hi};
    for (int64_t i0 = 0; i0 < p->b0; i0++)
        for (int64_t i1 = 0; i1 < p->b1; i1++)
            for (int64_t i = 0; i < p->m; i++)
                for (int64_t j = 0; j < p->n; j++) {
                    const uint8_t *a = (const uint8_t *)c->in[0] + i0 * p->a_s0 + i1 * p->a_s1 + i * p->a_sm;
                    const uint8_t *b = (const uint8_t *)c->in[1] + i0 * p->b_s0 + i1 * p->b_s1 + j * p->b_sn;
                    int64_t sum = 0;
                    for (int64_t q = 0; q < p->k; q++)
                        sum += (a[q * p->a_sk] - p->a_zero) * (b[q * p->b_sk] - p->b_zero);
                    check_set_finished(c, e, &finish, i0 * p->y_s0 + i1 * p->y_s1 + i * p->y_sm + j, sum, p->scale, 0,
                                       NULL);
                }
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const struct {
        int heads, m, n, k, is_turned;
    } shapes[] = {{12, 197, 197, 64, 1}, {12, 197, 64, 197, 0}, {1, 512, 512, 512, 0}};
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    fx_matmul_u8_params *p = &c->params.matmul_u8;
    *p = (fx_matmul_u8_params){.b0 = 1, .b1 = shapes[i].heads, .m = shapes[i].m, .n = shapes[i].n, .k = shapes[i].k};
    p->a_s1 = p->m * p->k, p->a_sm = p->k, p->a_sk = 1;
    p->b_s1 = p->k * p->n, p->b_sk = shapes[i].is_turned ? 1 : p->n, p->b_sn = shapes[i].is_turned ? p->k : 1;
    p->y_s1 = p->m * p->n, p->y_sm = p->n;
    p->a_zero = 120, p->b_zero = 110, p->scale = 0.01f, p->to = FX_DTYPE_U8, p->hi = 255;
    *flops = 2.0 * p->b1 * p->m * p->n * p->k;
    *bytes = p->b1 * ((double)p->m * p->k + (double)p->k * p->n + (double)p->m * p->n);
    snprintf(name, 64, "%d x %dx%dx%d%s", p->b1, p->m, p->k, p->n, shapes[i].is_turned ? " b transposed" : "");
    return 1;
}

const check_op check_matmul_u8 = {.draw = draw, .fill = fill, .expect = expect, .is_exact = 1, .bench = bench};
