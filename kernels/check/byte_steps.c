/* Steps of bytes, number by number. */
#include "check.h"

#include <math.h>
#include <stdio.h>

static void draw(check_case *c) {
    fx_byte_steps_params *p = &c->params.byte_steps;
    const int way = check_int(c, 0, 2); /* of numbers, to ranges, of ranges */
    p->outer = check_int(c, 1, 9), p->n = check_one_in(c, 4) ? check_int(c, 3000, 20000) : check_int(c, 1, 200);
    p->to_ranges = way == 1, p->of_ranges = way == 2;
}

static void fill(check_case *c) {
    const float shift = (float)check_int(c, -2, 2), factor = check_one_in(c, 9) ? 0 : 1;
    const int has_nan = check_one_in(c, 20);
    const int64_t n = c->in_hi[0] / (int64_t)sizeof(float);
    for (int64_t i = 0; i < n; i++)
        ((float *)c->in[0])[i] = factor * (check_real(c) + shift);
    if (has_nan)
        ((float *)c->in[0])[check_int(c, 0, (int)n - 1)] = NAN;
}

static float joined(float a, float b, int is_most) {
    if (isnan(a) || isnan(b))
        return NAN;
    return is_most ? fmaxf(a, b) : fminf(a, b);
}

static void set(check_expected *e, int64_t at, float v) {
    v = isnan(v) ? NAN : v + 0.0f;
    memcpy(e->bytes + 4 * at, &v, 4);
    memset(e->written + 4 * at, 1, 4);
}

static void expect(const check_case *c, check_expected *e) {
    const fx_byte_steps_params *p = &c->params.byte_steps;
    const int64_t each = (int64_t)p->n * (1 + p->of_ranges);
    float least = 0, most = 0;
    for (int64_t row = 0; row < p->outer; row++) {
        const float *x = (const float *)c->in[0] + row * each;
        if (p->to_ranges)
            least = INFINITY, most = -INFINITY;
        for (int64_t i = 0; i < each; i++) {
            if (!p->of_ranges || i % 2 == 0)
                least = joined(least, x[i], 0);
            if (!p->of_ranges || i % 2 == 1)
                most = joined(most, x[i], 1);
        }
        if (p->to_ranges)
            set(e, 2 * row, least), set(e, 2 * row + 1, most);
    }
    if (p->to_ranges)
        return;
    const float step = most == least ? 1 : (float)((double)(float)(most - least) / 255);
    const double zero = nearbyint((float)(-(double)least / step));
    set(e, 0, step);
    set(e, 1, isnan(zero) ? 0 : (float)zero);
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    if (i > 0)
        return 0;
    c->params.byte_steps = (fx_byte_steps_params){.outer = 1, .n = 200000};
    *flops = 0;
    *bytes = 4.0 * 200000;
    snprintf(name, 64, "of 200000");
    return 1;
}

const check_op check_byte_steps = {.draw = draw, .fill = fill, .expect = expect, .is_exact = 1, .bench = bench};
