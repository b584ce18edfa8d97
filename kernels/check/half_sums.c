/* What convolutions that add up halves must store, bit for bit: the definitions of half_kernels.h, one output after the
 * other. */
#include "half_sums.h"
#include "weights.h"

#include <math.h>

static int is_half(const check_case *c, int operand) {
    return fx_op_element_bytes(c->op, &c->params, operand) == 2;
}

int check_adds_halves(const check_case *c) {
    if (c->op == FX_OP_CONV_F16)
        return c->kernel == FX_CONV_HALF && c->kernels->gemm_f16;
    const fx_dwconv_f16_params *p = &c->params.dwconv_f16;
    return c->op == FX_OP_DWCONV_F16 && c->kernels->halves && (p->f16 & 1) && p->kh * p->kw <= FX_HALF_RUN &&
           (p->wtype == FX_WTYPE_F32 || p->wtype == FX_WTYPE_F16);
}

static double number(const check_case *c, int operand, int64_t at) {
    const void *from = c->in[operand];
    return is_half(c, operand) ? fx_half_to(((const uint16_t *)from)[at]) : ((const float *)from)[at];
}

static double rounded(double v) {
    return fx_half_to(fx_half_from(v));
}

/* A sum as it is added up, and as it is where that is not finite. */
typedef struct sum {
    float total;
    double half, exact;
    int run;
} sum;

static void end_run(sum *s) {
    s->total += (float)s->half;
    s->half = 0, s->run = 0;
}

static void add(sum *s, double x, double stored) {
    s->half = rounded(rounded(x) * rounded(stored) + s->half);
    s->exact += x * stored;
}

static float end(sum *s) {
    end_run(s);
    return isfinite(s->total) ? s->total : (float)s->exact;
}

/* The first channel of the map's pixel under a tap, or -1 outside it. */
#define TAP(p, n, oy, ox, t, at)                                                                                       \
    do {                                                                                                               \
        const int64_t iy = (int64_t)(oy) * (p)->sh - (p)->pt + (t) / (p)->kw * (p)->dh;                                \
        const int64_t ix = (int64_t)(ox) * (p)->sw - (p)->pl + (t) % (p)->kw * (p)->dw;                                \
        const int is_inside = iy >= 0 && iy < (p)->h && ix >= 0 && ix < (p)->w;                                        \
        at = is_inside ? (int64_t)(n) * (p)->x_sn + iy * (p)->x_sh + ix * (p)->x_sw : -1;                              \
    } while (0)

static float conv_sum(const check_case *c, check_panels panels, int n, int oy, int ox, int o) {
    const fx_conv_params *p = &c->params.conv;
    const float bias = *check_panel(c, panels, o);
    const int first = fx_conv_panel_cin(p, o / FX_NR);
    sum s = {.total = bias, .exact = bias};
    int64_t at = o % FX_NR;
    for (int q0 = 0; q0 < p->cin_panel; q0 += p->cin_block) {
        const int wide = p->cin_panel - q0 < p->cin_block ? p->cin_panel - q0 : p->cin_block;
        for (int t = 0; t < p->kh * p->kw; t++) {
            int64_t pixel;
            TAP(p, n, oy, ox, t, pixel);
            for (int q = 0; q < wide; q++, at += FX_NR) {
                const int piece = wide - q < FX_HALF_RUN ? wide - q : FX_HALF_RUN;
                if (q % FX_HALF_RUN == 0 && s.run + piece > FX_HALF_RUN)
                    end_run(&s);
                add(&s, pixel < 0 ? 0 : number(c, 0, pixel + first + q0 + q), check_weight(c, panels, o, at));
                s.run++;
            }
        }
    }
    return end(&s);
}

static float dwconv_sum(const check_case *c, check_panels panels, int n, int oy, int ox, int o) {
    const fx_dwconv_params *p = &c->params.dwconv;
    const float bias = *check_panel(c, panels, o);
    sum s = {.total = bias, .exact = bias};
    for (int t = 0; t < p->kh * p->kw; t++) {
        int64_t pixel;
        TAP(p, n, oy, ox, t, pixel);
        add(&s, pixel < 0 ? 0 : number(c, 0, pixel + o), check_weight(c, panels, o, t * FX_NR + o % FX_NR));
    }
    return end(&s);
}

/* Activations beyond RELU may be off by what float32 is. */
static void set(const check_case *c, check_expected *e, int64_t at, double value, double tolerance) {
    const int64_t i = at - c->out_lo / fx_op_element_bytes(c->op, &c->params, FX_OUTPUT);
    e->value[i] = value, e->tolerance[i] = tolerance, e->written[i] = 1;
}

#define EXPECT(p, channels, weights, sum_of)                                                                           \
    do {                                                                                                               \
        const check_panels panels = check_panels_of((p)->act, (p)->wtype, (p)->sums, (weights) * FX_NR);               \
        for (int64_t i = 0; i < (int64_t)(p)->n * (p)->oh * (p)->ow; i++)                                              \
            for (int o = 0; o < (channels); o++) {                                                                     \
                const int n = (int)(i / (p)->ow / (p)->oh), oy = (int)(i / (p)->ow % (p)->oh),                         \
                          ox = (int)(i % (p)->ow);                                                                     \
                float v = sum_of(c, panels, n, oy, ox, o);                                                             \
                if (c->in[1])                                                                                          \
                    v += (float)number(c, 1, (int64_t)n * (p)->r_sn + (int64_t)oy * (p)->r_sh + ox * (p)->r_sw + o);   \
                const double slope = (p)->act == FX_ACT_PRELU ? check_panel(c, panels, o)[FX_NR] : 0;                  \
                const double made = check_activation((p)->act, v, (p)->alpha, (p)->beta, slope);                       \
                const double off =                                                                                     \
                    (p)->act <= FX_ACT_RELU ? 0 : check_activation_tolerance((p)->act, made, fabs(v) * 1e-7);          \
                set(c, e, (int64_t)n * (p)->y_sn + (int64_t)oy * (p)->y_sh + (int64_t)ox * (p)->y_sw + o, made, off);  \
            }                                                                                                          \
    } while (0)

void check_half_sums(const check_case *c, check_expected *e) {
    if (c->op == FX_OP_CONV_F16) {
        const fx_conv_params *p = &c->params.conv;
        EXPECT(p, p->cout, (int64_t)p->kh * p->kw * p->cin_panel, conv_sum);
    } else {
        const fx_dwconv_params *p = &c->params.dwconv;
        EXPECT(p, p->c, (int64_t)p->kh * p->kw, dwconv_sum);
    }
}
