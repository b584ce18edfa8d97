/* Probabilities of classes: the same rounds in double precision, class by class. */
#include "check.h"

#define CLASSES_MAX 12

static void draw(check_case *c) {
    fx_couple_params *p = &c->params.couple;
    p->rows = check_one_in(c, 3) ? check_int(c, 20, 300) : check_int(c, 1, 9);
    p->classes = check_int(c, 2, CLASSES_MAX);
}

static void fill(check_case *c) {
    float *x = c->in[0];
    for (int64_t i = 0; i < c->in_hi[0] / (int64_t)sizeof(float); i++)
        x[i] = check_one_in(c, 9) ? 1e-7f : 0.5f + 0.499f * check_real(c);
}

/* How probable class i is against j. */
static double share_of(const float *x, int n, int i, int j) {
    const int low = i < j ? i : j, high = i < j ? j : i;
    const double share = x[low * n - low * (low + 1) / 2 + high - low - 1];
    return i < j ? share : 1 - share;
}

static double entry_of(const float *x, int n, int i, int j) {
    double entry = 0;
    if (i != j)
        return -share_of(x, n, i, j) * share_of(x, n, j, i);
    for (int k = 0; k < n; k++)
        entry += k == i ? 0 : share_of(x, n, k, i) * share_of(x, n, k, i);
    return entry;
}

static double sum_of(const float *x, int n, const double *y, int i) {
    double sum = 0;
    for (int j = 0; j < n; j++)
        sum += entry_of(x, n, i, j) * y[j];
    return sum;
}

static int is_done(const float *x, int n, const double *y) {
    double total = 0, most = 0;
    for (int i = 0; i < n; i++)
        total += y[i] * sum_of(x, n, y, i);
    for (int i = 0; i < n; i++)
        most = fmax(most, fabs(sum_of(x, n, y, i) - total));
    return most < 0.005 / n;
}

static void expect(const check_case *c, check_expected *e) {
    const fx_couple_params *p = &c->params.couple;
    const int n = p->classes;
    for (int64_t row = 0; row < p->rows; row++) {
        const float *x = (const float *)c->in[0] + row * (n * (n - 1) / 2);
        double y[CLASSES_MAX];
        for (int i = 0; i < n; i++)
            y[i] = 1.0 / n;
        for (int round = 0; round < 100 && !is_done(x, n, y); round++)
            for (int i = 0; i < n; i++) {
                double total = 0;
                for (int j = 0; j < n; j++)
                    total += y[j] * sum_of(x, n, y, j);
                const double step = (total - sum_of(x, n, y, i)) / entry_of(x, n, i, i);
                y[i] += step;
                for (int j = 0; j < n; j++)
                    y[j] /= 1 + step;
            }
        for (int i = 0; i < n; i++) /* a round more or less, where a difference is near the bound */
            check_set(c, e, row * n + i, y[i], 0.005);
    }
}

const check_op check_couple = {.draw = draw, .fill = fill, .expect = expect};
