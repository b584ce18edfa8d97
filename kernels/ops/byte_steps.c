/* Steps and zero point of the bytes that floats become: params_bytes.h has the formulas.
 * https://onnx.ai/onnx/operators/onnx__DynamicQuantizeLinear.html. */
#include "bytes.h"
#include "units.h"

#include <math.h>

#define RUN 4096 /* floats that stay in a first-level cache until their most is found, too */

static fx_window full_window(const fx_params *u) {
    const fx_byte_steps_params *p = &u->byte_steps;
    return (fx_window){0, p->to_ranges ? p->outer : 1, 0, 1};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_byte_steps_params *p = &u->byte_steps;
    if (kernel != 0 || p->outer < 1 || p->n < 1 || p->of_ranges < 0 || p->of_ranges > 1 || p->to_ranges < 0 ||
        p->to_ranges > 1 - p->of_ranges)
        return FX_ERR_PARAMS;
    return (int64_t)p->outer * p->n <= FX_ELEMENTS_MAX ? FX_OK : FX_ERR_PARAMS;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_byte_steps_params *p = &u->byte_steps;
    const int64_t pairs = p->to_ranges ? p->outer : 1, numbers = (int64_t)p->outer * p->n * (1 + p->of_ranges);
    *lo = 0;
    *hi = (operand == 0 ? numbers : 2 * pairs) * (int64_t)sizeof(float);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_contiguous_bytes(extent, u);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    const int64_t bytes = (int64_t)sizeof(float) * u->byte_steps.n;
    return fx_units_of(w.c0 < w.c1 ? w.y1 - w.y0 : 0, bytes, threads);
}

/* The least and the most of n numbers, or with a step of 2 of n pairs of them, and of those at `range`. */
static void widen(const fx_kernels *k, const float *x, int64_t n, int64_t step, float range[2]) {
    for (int64_t some; n > 0; n -= some, x += some * step) {
        some = fx_min64(n, RUN);
        for (int end = 0; end < 2; end++) {
            float both[2] = {range[end]};
            const int32_t kind = end ? FX_REDUCE_MAX : FX_REDUCE_MIN;
            k->reduce_f32(&(fx_reduce){x + end * (step - 1), both + 1, step, kind, (int32_t)some, 1});
            k->reduce_f32(&(fx_reduce){both, range + end, 1, kind, 2, 1});
        }
    }
}

/* One NaN for all and one zero: levels differ in which they find. */
static float plain(float v) {
    return isnan(v) ? NAN : v + 0.0f;
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_byte_steps_params *p = &call->params->byte_steps;
    const fx_kernels *k = call->kernels;
    const float *x = call->in[0];
    float *y = call->out;
    if (p->to_ranges) {
        const int64_t pieces = units(k, call->kernel, call->params, call->window, threads);
        const int64_t end = call->window.y0 + fx_cut_at(call->window.y1 - call->window.y0, pieces, u1);
        int64_t row = call->window.y0 + fx_cut_at(call->window.y1 - call->window.y0, pieces, u0);
        for (; row < end; row++) {
            float range[2] = {INFINITY, -INFINITY};
            widen(k, x + row * p->n, p->n, 1, range);
            y[2 * row] = plain(range[0]), y[2 * row + 1] = plain(range[1]);
        }
        return FX_OK;
    }
    float range[2] = {0, 0};
    widen(k, x, (int64_t)p->outer * p->n, 1 + p->of_ranges, range);
    const float step = range[1] == range[0] ? 1 : (range[1] - range[0]) / 255, zero = rintf(-range[0] / step);
    y[0] = plain(step);
    y[1] = zero > 0 ? fminf(zero, 255) : 0;
    return FX_OK;
}

FX_DRIVER(byte_steps, .traits = 0);
