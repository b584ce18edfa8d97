/* Padding and cropping, with a constant, by reflection or by the edge; zeros between elements. */
#include "box.h"
#include "move.h"

#include <math.h>
#include <string.h>

static fx_window full_window(const fx_params *u) {
    return (fx_window){0, u->pad.d0, 0, u->pad.d5};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_pad_params *p = &u->pad;
    const int32_t *d = FX_SIX(u, pad, d), *xd = FX_SIX(u, pad, xd), *interior = FX_SIX(u, pad, interior);
    if (kernel != 0 || p->mode < 0 || p->mode >= FX_PAD_COUNT || !fx_is_element(p->elem_bytes) || isnan(p->value))
        return FX_ERR_PARAMS;
    if (!fx_box_fits(xd, FX_SIX(u, pad, xs)) || !fx_box_fits(d, FX_SIX(u, pad, ys)) ||
        !fx_box_is_injective(d, FX_SIX(u, pad, ys)))
        return FX_ERR_PARAMS;
    int64_t inside = 1;
    for (int i = FX_DIMS - 1; i >= 0; i--) {
        const int64_t before = FX_SIX(u, pad, b)[i];
        if (interior[i] < 0 || (interior[i] && p->mode != FX_PAD_CONSTANT) ||
            (before < 0 ? -before : before) > FX_ELEMENTS_MAX / inside)
            return FX_ERR_PARAMS;
        inside *= d[i];
    }
    return FX_OK;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    if (operand == FX_OUTPUT)
        fx_box_extent(FX_DIMS, FX_SIX(u, pad, d), FX_SIX(u, pad, ys), u->pad.elem_bytes, lo, hi);
    else
        fx_box_extent(FX_DIMS, FX_SIX(u, pad, xd), FX_SIX(u, pad, xs), u->pad.elem_bytes, lo, hi);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_six_bytes(FX_SIX(u, pad, d), u->pad.elem_bytes);
}

static int64_t element_bytes(const fx_params *u, int operand) {
    (void)operand;
    return u->pad.elem_bytes;
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

/* What an element of the fill looks like, in the first elem_bytes bytes. */
static int64_t fill_bits(const fx_pad_params *p) {
    int64_t bits = p->value_int;
    if (p->elem_bytes == 4 && !p->value_int)
        memcpy(&bits, &p->value, sizeof p->value);
    return bits;
}

/* A dimension of a padding; several that are walked as one are one. */
typedef struct axis {
    int64_t d, xd, before, interior, y_at; /* y_at: index where the window begins */
    int64_t each, xs, ys;                  /* elements of an index, xs and ys apart */
} axis;

/* Dimension i of the window. */
static axis axis_of(const fx_params *u, fx_window w, int i) {
    axis a = {.d = FX_SIX(u, pad, d)[i], .xd = FX_SIX(u, pad, xd)[i], .before = FX_SIX(u, pad, b)[i], .each = 1};
    a.interior = FX_SIX(u, pad, interior)[i], a.xs = FX_SIX(u, pad, xs)[i], a.ys = FX_SIX(u, pad, ys)[i];
    if (i == 0)
        a.d = w.y1 - w.y0, a.y_at = w.y0;
    return a;
}

/* The window's dimensions, right-aligned. What is inside a dimension and not padded itself joins it, where that is only
 * counting in larger steps: in constant padding, and where the outer dimension is not padded either. Else the innermost
 * one joins as elements of an index: the channels of a pixel. */
static void find_axes(const fx_params *u, fx_window w, axis *axes) {
    int at = FX_DIMS;
    for (int i = FX_DIMS - 1; i >= 0; i--) {
        const axis a = axis_of(u, w, i);
        axis *in = &axes[at];
        const int is_plain = i > 0 && a.d == a.xd && !a.before && !a.interior;
        const int is_run = at < FX_DIMS && in->d == in->xd && !in->before && !in->interior && !a.interior &&
                           a.xs == in->xs * in->xd && a.ys == in->ys * in->d;
        if (is_run && (is_plain || u->pad.mode == FX_PAD_CONSTANT)) {
            in->before = a.before * in->d;
            in->y_at = a.y_at * in->d;
            in->xd *= a.xd;
            in->d *= a.d;
        } else if (is_run && at == FX_DIMS - 1) {
            *in = (axis){a.d, a.xd, a.before, 0, a.y_at, in->d, in->xs, in->ys};
        } else {
            axes[--at] = a;
        }
    }
    while (at > 0)
        axes[--at] = (axis){.d = 1, .xd = 1, .each = 1};
}

/* Index of x that index `at` of y along an axis shows, or -1: the fill. */
static int64_t source(int32_t mode, const axis *a, int64_t at) {
    const int64_t i = at - a->before;
    if (mode == FX_PAD_CONSTANT) {
        const int64_t step = a->interior + 1;
        return i < 0 || i % step || i / step >= a->xd ? -1 : i / step;
    }
    if (mode == FX_PAD_EDGE || a->xd == 1)
        return i < 0 ? 0 : i < a->xd ? i : a->xd - 1;
    const int64_t period = 2 * (a->xd - 1), back = (i % period + period) % period;
    return back < a->xd ? back : period - back;
}

/* Elements [c, end) of one row of y, from the row of x, or from NULL: a row of fill. */
static void pad_row(const fx_pad_params *p, const axis *a, const char *x, char *y, int64_t c, int64_t end,
                    const void *fill) {
    const int64_t bytes = p->elem_bytes, inside = a->before + a->xd * (a->interior + 1);
    const int is_one = p->mode == FX_PAD_REFLECT || a->each > 1; /* index of x that an index outside it shows */
    while (c < end) {
        const int64_t i = c / a->each, from = x ? source(p->mode, a, i) : -1;
        int64_t to = i + 1, step = a->each > 1 ? a->xs : 0;
        if (!x || (i >= inside && !is_one))
            to = end;
        else if (i < a->before && !is_one)
            to = a->before;
        else if (i >= a->before && i < inside && a->interior == 0)
            to = inside, step = a->xs;
        const int64_t n = (to * a->each < end ? to * a->each : end) - c;
        fx_move(bytes, from < 0 ? fill : x + (from * a->each + c % a->each) * a->xs * bytes, y + c * a->ys * bytes,
                &(fx_lines){1, n, 0, from < 0 ? 0 : step, 0, a->ys});
        c += n;
    }
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_pad_params *p = &call->params->pad;
    const int64_t total = elements(call->params, call->window), fill = fill_bits(p);
    const uint32_t count = units(call->kernels, 0, call->params, call->window, threads);
    const int64_t end = fx_box_cut(total, count, u1);
    axis axes[FX_DIMS];
    find_axes(call->params, call->window, axes);
    const axis *last = &axes[FX_DIMS - 1];
    const int64_t row = last->d * last->each;
    for (int64_t e = fx_box_cut(total, count, u0); e < end;) {
        const int64_t column = e % row, left = row - column < end - e ? row - column : end - e;
        int64_t rest = e / row, x_at = 0, y_at = 0;
        int is_fill = 0;
        for (int i = FX_DIMS - 2; i >= 0; i--) {
            const int64_t at = rest % axes[i].d + axes[i].y_at, from = source(p->mode, &axes[i], at);
            rest /= axes[i].d;
            y_at += at * axes[i].ys;
            x_at += from * axes[i].xs;
            is_fill |= from < 0;
        }
        const int64_t first = column + last->y_at * last->each;
        pad_row(p, last, is_fill ? NULL : (const char *)call->in[0] + x_at * p->elem_bytes,
                (char *)call->out + y_at * p->elem_bytes, first, first + left, &fill);
        e += left;
    }
    return FX_OK;
}

FX_DRIVER(pad, .traits = FX_TRAIT_ROWS, .element_bytes = element_bytes);
