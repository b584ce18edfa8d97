/* Non-maximum suppression, by looking for the best remaining box again and again. */
#include "numbers.h"

#include <math.h>
#include <stdio.h>

static void draw(check_case *c) {
    fx_nms_params *p = &c->params.nms;
    p->batch = check_int(c, 1, 3);
    p->classes = check_int(c, 1, 3);
    p->boxes = check_one_in(c, 3) ? check_int(c, 10, 80) : check_int(c, 1, 10);
    p->most = check_int(c, 1, p->boxes);
    p->is_centered = check_int(c, 0, 1);
    p->has_score = check_int(c, 0, 1);
}

/* Corners on a coarse grid, so that quotients of areas are far from the limit or exact; scores that repeat. */
static void fill(check_case *c) {
    const fx_nms_params *p = &c->params.nms;
    for (int64_t i = 0; i < (int64_t)p->batch * p->boxes * 4; i++)
        ((float *)c->in[0])[i] = (float)check_int(c, i % 4 >= 2 && p->is_centered ? 0 : -4, 8);
    for (int64_t i = 0; i < (int64_t)p->batch * p->classes * p->boxes; i++)
        ((float *)c->in[1])[i] = check_one_in(c, 20) ? NAN : (float)check_int(c, -3, 6);
    *(float *)c->in[2] = (float)check_int(c, 0, 4) * 0.25f;
    if (p->has_score)
        *(float *)c->in[3] = (float)check_int(c, -4, 4);
}

static double overlap(const float *a, const float *b, int is_centered) {
    double common = 1, areas[2] = {1, 1};
    for (int i = 0; i < 2; i++) {
        const double lo_a = is_centered ? a[i] - a[i + 2] / 2 : fmin(a[i], a[i + 2]);
        const double hi_a = is_centered ? a[i] + a[i + 2] / 2 : fmax(a[i], a[i + 2]);
        const double lo_b = is_centered ? b[i] - b[i + 2] / 2 : fmin(b[i], b[i + 2]);
        const double hi_b = is_centered ? b[i] + b[i + 2] / 2 : fmax(b[i], b[i + 2]);
        common *= fmax(0, fmin(hi_a, hi_b) - fmax(lo_a, lo_b));
        areas[0] *= hi_a - lo_a;
        areas[1] *= hi_b - lo_b;
    }
    return common > 0 && areas[0] > 0 && areas[1] > 0 ? common / (areas[0] + areas[1] - common) : 0;
}

#define ABOVE_ALL 1e30

static void expect(const check_case *c, check_expected *e) {
    const fx_nms_params *p = &c->params.nms;
    int64_t found = 0;
    for (int line = 0; line < p->batch * p->classes; line++) {
        const float *boxes = (const float *)c->in[0] + (int64_t)line / p->classes * p->boxes * 4;
        const float *scores = (const float *)c->in[1] + (int64_t)line * p->boxes;
        int kept[80], count = 0;
        double last = ABOVE_ALL;
        for (int last_index = -1; count < p->most;) {
            int best = -1;
            for (int i = 0; i < p->boxes; i++) {
                const int is_next = scores[i] < last || (scores[i] == last && i > last_index);
                if (is_next && (!p->has_score || scores[i] > *(const float *)c->in[3]) &&
                    (best < 0 || scores[i] > scores[best]))
                    best = i;
            }
            if (best < 0)
                break;
            last = scores[best];
            last_index = best;
            int is_apart = 1;
            for (int k = 0; k < count; k++)
                is_apart &= overlap(boxes + 4 * best, boxes + 4 * kept[k], p->is_centered) <= *(const float *)c->in[2];
            if (!is_apart)
                continue;
            kept[count++] = best;
            check_set_index(e, 3 * found, line / p->classes);
            check_set_index(e, 3 * found + 1, line % p->classes);
            check_set_index(e, 3 * found++ + 2, best);
        }
    }
    const int64_t rows = (int64_t)p->batch * p->classes * p->most;
    check_set_index(e, 3 * rows, found);
    check_set_index(e, 3 * rows + 1, 0);
    check_set_index(e, 3 * rows + 2, 0);
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const fx_nms_params shapes[] = {{1, 1, 3000, 300, 0, 1}, {1, 80, 8400, 20, 1, 1}};
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    c->params.nms = shapes[i];
    *flops = 0;
    *bytes = (double)shapes[i].boxes * (16 + 4.0 * shapes[i].classes);
    snprintf(name, 64, "%d boxes, %d classes", shapes[i].boxes, shapes[i].classes);
    return 1;
}

const check_op check_nms = {.draw = draw, .fill = fill, .expect = expect, .is_exact = 1, .bench = bench};
