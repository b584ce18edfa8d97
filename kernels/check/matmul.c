/* Product of two computed matrices against naive sums in double precision. */
#include "check.h"

#include <math.h>
#include <stdio.h>

/* Strides of [rows][columns] matrices in two batch dimensions: plain or transposed, with gaps or without, batches
 * broadcast now and then where is_input. */
typedef struct strides {
    int32_t outer, inner; /* of the batch dimensions */
    int32_t row, column;
} strides;

static strides draw_strides(check_case *c, int32_t rows, int32_t columns, int is_input) {
    const int is_transposed = is_input && check_one_in(c, 3);
    const int32_t gap = check_one_in(c, 3) ? check_int(c, 1, 9) : 0;
    const int32_t step = is_input && check_one_in(c, 6) ? 2 : 1;
    const int32_t line = (is_transposed ? rows : columns) * step + gap;
    const int32_t matrix = line * (is_transposed ? columns : rows), b1 = c->params.matmul.b1;
    strides s = {.row = is_transposed ? step : line, .column = is_transposed ? line : step};
    s.inner = is_input && check_one_in(c, 4) ? 0 : matrix + (check_one_in(c, 4) ? check_int(c, 1, 9) : 0);
    s.outer = is_input && check_one_in(c, 4) ? 0 : matrix * b1 + 9 * b1;
    return s;
}

static void draw(check_case *c) {
    fx_matmul_params *p = &c->params.matmul;
    p->b0 = check_one_in(c, 2) ? 1 : check_int(c, 1, 3);
    p->b1 = check_one_in(c, 2) ? 1 : check_int(c, 1, 4);
    p->m = check_one_in(c, 5) ? check_int(c, 30, 90) : check_int(c, 1, 20);
    p->n = check_one_in(c, 5) ? check_int(c, 33, 120) : check_int(c, 1, 40);
    p->k = check_one_in(c, 8) ? check_int(c, 500, 1200) : check_int(c, 1, 40);
    const strides of_a = draw_strides(c, p->m, p->k, 1), of_b = draw_strides(c, p->k, p->n, 1);
    const strides of_y = draw_strides(c, p->m, p->n, 0);
    p->a_s0 = of_a.outer, p->a_s1 = of_a.inner, p->a_sm = of_a.row, p->a_sk = of_a.column;
    p->b_s0 = of_b.outer, p->b_s1 = of_b.inner, p->b_sk = of_b.row, p->b_sn = of_b.column;
    p->y_s0 = of_y.outer, p->y_s1 = of_y.inner, p->y_sm = of_y.row;
    do
        p->act = check_one_in(c, 2) ? check_int(c, 0, FX_ACT_COUNT - 1) : FX_ACT_NONE;
    while (p->act == FX_ACT_PRELU);
    p->alpha = check_real(c), p->beta = p->alpha + 1;
    p->sums = FX_DTYPE_F32;
    if (check_one_in(c, 3)) {
        p->sums = FX_DTYPE_I32, c->is_exact = 1;
        p->act = FX_ACT_NONE;
    }
}

static void fill(check_case *c) {
    for (int i = 0; i < 2; i++)
        (c->is_exact ? check_fill_whole : check_fill)(c, (char *)c->in[i] + c->in_lo[i], c->in_hi[i] - c->in_lo[i]);
}

static void expect(const check_case *c, check_expected *e) {
    const fx_matmul_params *p = &c->params.matmul;
    for (int64_t i0 = 0; i0 < p->b0; i0++)
        for (int64_t i1 = 0; i1 < p->b1; i1++)
            for (int64_t i = 0; i < p->m; i++)
                for (int64_t j = 0; j < p->n; j++) {
                    const float *a = (const float *)c->in[0] + i0 * p->a_s0 + i1 * p->a_s1 + i * p->a_sm;
                    const float *b = (const float *)c->in[1] + i0 * p->b_s0 + i1 * p->b_s1 + j * p->b_sn;
                    double sum = 0, magnitude = 0;
                    for (int64_t q = 0; q < p->k; q++) {
                        const double product = (double)a[q * p->a_sk] * b[q * p->b_sk];
                        sum += product;
                        magnitude += fabs(product);
                    }
                    const int64_t at = i0 * p->y_s0 + i1 * p->y_s1 + i * p->y_sm + j;
                    if (c->is_exact) {
                        check_set_int(c, e, at, (int64_t)sum);
                        continue;
                    }
                    /* No activation but SiLU and HardSwish (1.1 and 1.5) is steeper than 1; exp adds a little. */
                    check_set(c, e, at, check_activation(p->act, sum, p->alpha, p->beta, 0),
                              (p->act ? 1.5 : 1) * check_sum_tolerance(p->k, magnitude) +
                                  (p->act ? 2e-6 * (1 + fabs(sum)) : 0));
                }
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const struct {
        int heads, m, n, k, is_transposed;
    } shapes[] = {{12, 197, 197, 64, 1}, {12, 197, 64, 197, 0}, {1, 512, 512, 512, 0},
                  {1, 512, 512, 512, 1}, {12, 64, 64, 64, 1},   {12, 1, 1024, 64, 1}};
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    fx_matmul_params *p = &c->params.matmul;
    *p = (fx_matmul_params){.b0 = 1, .b1 = shapes[i].heads, .m = shapes[i].m, .n = shapes[i].n, .k = shapes[i].k};
    p->a_s1 = p->m * p->k, p->a_sm = p->k, p->a_sk = 1;
    p->b_s1 = p->k * p->n, p->b_sk = shapes[i].is_transposed ? 1 : p->n, p->b_sn = shapes[i].is_transposed ? p->k : 1;
    p->y_s1 = p->m * p->n, p->y_sm = p->n;
    *flops = 2.0 * p->b1 * p->m * p->n * p->k;
    *bytes = 4.0 * p->b1 * ((double)p->m * p->k + (double)p->k * p->n + (double)p->m * p->n);
    snprintf(name, 64, "%d x %dx%dx%d%s", p->b1, p->m, p->k, p->n, shapes[i].is_transposed ? " b transposed" : "");
    return 1;
}

const check_op check_matmul = {.draw = draw, .fill = fill, .expect = expect, .bench = bench};
