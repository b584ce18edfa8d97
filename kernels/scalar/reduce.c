/* The definition of reduce_f32 (kernels.h). Runs of FX_REDUCE_RUN terms are added up apart, so that errors stay small.
 */
#include "flexnn/kernels.h"

#include <math.h>

static float start(int32_t kind) {
    switch (kind) {
    case FX_REDUCE_MAX:
    case FX_REDUCE_LOG_SUM_EXP:
        return -INFINITY;
    case FX_REDUCE_MIN:
        return INFINITY;
    case FX_REDUCE_PROD:
        return 1;
    default:
        return 0;
    }
}

/* What v adds to the sums. */
static float term(int32_t kind, float v) {
    switch (kind) {
    case FX_REDUCE_L1:
        return fabsf(v);
    case FX_REDUCE_L2:
    case FX_REDUCE_SUM_SQUARE:
        return v * v;
    default:
        return v;
    }
}

static float joined(int32_t kind, float a, float v) {
    switch (kind) {
    case FX_REDUCE_MAX:
    case FX_REDUCE_LOG_SUM_EXP:
        return v > a || v != v ? v : a;
    case FX_REDUCE_MIN:
        return v < a || v != v ? v : a;
    case FX_REDUCE_PROD:
        return a * v;
    default:
        return a + v;
    }
}

static float finished(int32_t kind, float a, int32_t n) {
    switch (kind) {
    case FX_REDUCE_MEAN:
        return a / (float)n;
    case FX_REDUCE_L2:
        return sqrtf(a);
    case FX_REDUCE_LOG_SUM:
        return logf(a);
    default:
        return a;
    }
}

void FX_SYMBOL(reduce_f32)(const fx_reduce *r) {
    for (int32_t j = 0; j < r->columns; j++) {
        const float *x = r->x + j;
        float a = start(r->kind);
        for (int32_t q0 = 0; q0 < r->n; q0 += FX_REDUCE_RUN) {
            const int32_t q1 = r->n - q0 < FX_REDUCE_RUN ? r->n : q0 + FX_REDUCE_RUN;
            float run = start(r->kind);
            for (int32_t q = q0; q < q1; q++)
                run = joined(r->kind, run, term(r->kind, x[q * r->step]));
            a = joined(r->kind, a, run);
        }
        if (r->kind == FX_REDUCE_LOG_SUM_EXP && !isinf(a)) {
            float sum = 0;
            for (int32_t q = 0; q < r->n; q++)
                sum += expf(x[q * r->step] - a);
            a += logf(sum);
        }
        r->y[j] = finished(r->kind, a, r->n);
    }
}
