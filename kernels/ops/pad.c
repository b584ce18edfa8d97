/* Padding and cropping, with a constant, by reflection or by the edge; zeros between elements. */
#include "box.h"
#include "move.h"

#include <math.h>
#include <string.h>

#define LAST (FX_DIMS - 1)

static fx_window full_window(const fx_params *u) { return (fx_window){0, u->pad.d0, 0, u->pad.d5}; }

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_pad_params *p = &u->pad;
    const int32_t *d = FX_SIX(u, pad, d), *xd = FX_SIX(u, pad, xd), *interior = FX_SIX(u, pad, interior);
    if (kernel != 0 || p->mode < 0 || p->mode >= FX_PAD_COUNT || !fx_is_element(p->elem_bytes) || isnan(p->value))
        return FX_ERR_PARAMS;
    if (!fx_box_fits(xd, FX_SIX(u, pad, xs)) || !fx_box_fits(d, FX_SIX(u, pad, ys)) ||
        !fx_box_is_injective(d, FX_SIX(u, pad, ys)))
        return FX_ERR_PARAMS;
    for (int i = 0; i < FX_DIMS; i++)
        if (interior[i] < 0 || (interior[i] && p->mode != FX_PAD_CONSTANT))
            return FX_ERR_PARAMS;
    return FX_OK;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    if (operand == FX_OUTPUT)
        fx_box_extent(FX_DIMS, FX_SIX(u, pad, d), FX_SIX(u, pad, ys), lo, hi);
    else
        fx_box_extent(FX_DIMS, FX_SIX(u, pad, xd), FX_SIX(u, pad, xs), lo, hi);
    *lo *= u->pad.elem_bytes;
    *hi *= u->pad.elem_bytes;
}

/* Elements of the window's rows. */
static int64_t elements(const fx_params *u, fx_window w) {
    const int32_t *d = FX_SIX(u, pad, d);
    int64_t n = w.y1 - w.y0;
    for (int i = 1; i < FX_DIMS; i++)
        n *= d[i];
    return n;
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    return w.y0 >= w.y1 || w.c0 >= w.c1 ? 0 : fx_box_units(elements(u, w) * 2 * u->pad.elem_bytes, threads);
}

/* Index of x that index `at` of y along a dimension shows, or -1: the fill. */
static int64_t source(int32_t mode, int64_t at, int32_t before, int32_t size, int32_t interior) {
    const int64_t i = at - before;
    if (mode == FX_PAD_CONSTANT) {
        const int64_t step = (int64_t)interior + 1;
        return i < 0 || i % step || i / step >= size ? -1 : i / step;
    }
    if (mode == FX_PAD_EDGE || size == 1)
        return i < 0 ? 0 : i < size ? i : size - 1;
    const int64_t period = 2 * ((int64_t)size - 1), back = (i % period + period) % period;
    return back < size ? back : period - back;
}

/* What an element of the fill looks like, in the first elem_bytes bytes. */
static int64_t fill_bits(const fx_pad_params *p) {
    int64_t bits = p->value_int;
    if (p->elem_bytes == 4 && !p->value_int)
        memcpy(&bits, &p->value, sizeof p->value);
    return bits;
}

/* Columns [c, end) of one row of y, from the row of x, or from NULL: a row of fill. */
static void pad_row(const fx_params *u, const char *x, char *y, int64_t c, int64_t end, const void *fill) {
    const fx_pad_params *p = &u->pad;
    const int64_t bytes = p->elem_bytes, ys = p->ys5;
    while (c < end) {
        const int64_t from = x ? source(p->mode, c, p->b5, p->xd5, p->interior5) : -1;
        int64_t n = 1, step = 0;
        if (!x) {
            n = end - c;
        } else if (c < p->b5) {
            n = p->mode == FX_PAD_REFLECT ? 1 : p->b5 - c;
        } else if (c - p->b5 < p->xd5 && p->interior5 == 0) {
            n = p->xd5 - (c - p->b5);
            step = p->xs5;
        } else if (c - (int64_t)p->b5 >= (int64_t)p->xd5 * (p->interior5 + 1LL) && p->mode != FX_PAD_REFLECT) {
            n = end - c;
        }
        n = n < end - c ? n : end - c;
        fx_move(bytes, from < 0 ? fill : x + from * p->xs5 * bytes, y + c * ys * bytes, 1, n, 0, step, 0, ys);
        c += n;
    }
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_params *u = call->params;
    const fx_pad_params *p = &u->pad;
    const int32_t *d = FX_SIX(u, pad, d), *xd = FX_SIX(u, pad, xd), *b = FX_SIX(u, pad, b), *xs = FX_SIX(u, pad, xs),
                  *ys = FX_SIX(u, pad, ys), *interior = FX_SIX(u, pad, interior);
    const int64_t total = elements(u, call->window), fill = fill_bits(p);
    const uint32_t count = units(call->kernels, 0, u, call->window, threads);
    const int64_t end = fx_box_cut(total, count, u1);
    for (int64_t e = fx_box_cut(total, count, u0); e < end;) {
        const int64_t column = e % d[LAST], left = d[LAST] - column < end - e ? d[LAST] - column : end - e;
        int64_t rest = e / d[LAST], x_at = 0, y_at = 0;
        int is_fill = 0;
        for (int i = LAST - 1; i >= 0; i--) {
            const int64_t at = i ? rest % d[i] : rest + call->window.y0;
            const int64_t from = source(p->mode, at, b[i], xd[i], interior[i]);
            rest /= d[i];
            y_at += at * ys[i];
            x_at += from * xs[i];
            is_fill |= from < 0;
        }
        pad_row(u, is_fill ? NULL : (const char *)call->in[0] + x_at * p->elem_bytes,
                (char *)call->out + y_at * p->elem_bytes, column, column + left, &fill);
        e += left;
    }
    return FX_OK;
}

const fx_op_impl fx_pad_impl = {
    .traits = FX_TRAIT_ROWS,
    .full_window = full_window,
    .check = check,
    .extent = extent,
    .units = units,
    .run = run,
};
