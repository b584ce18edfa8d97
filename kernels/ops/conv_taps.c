/* Pointers to the taps of convolutions' output pixels; conv_taps.h describes each function.
 *
 * Where taps lie far apart, pixels are visited by columns that the same taps of a row see, so that tiles have taps that
 * are outside the map for all pixels (measured: 2.6 ms for 9.0 at 256 -> 256, 3x3 with dilation 24, @28^2). */
#include "conv_taps.h"

#include <string.h>

#define COLUMNS_TAPS_MAX 16 /* of a row: finding the sets takes as many steps, for twice as many sets */

/* The first of the sets of columns, right of `begin`, that the same taps of a row see. One set where taps are close. */
static fx_seen_columns columns_from(const fx_conv_params *p, uint32_t kernel, int64_t begin) {
    fx_seen_columns set = {begin, p->ow};
    if (kernel != FX_CONV_DIRECT || p->dw == 1 || p->kw > COLUMNS_TAPS_MAX || p->sums != FX_DTYPE_F32)
        return set;
    for (int64_t kx = 0; kx < p->kw; kx++) {
        const int64_t left = p->pl - kx * p->dw; /* the tap is inside from this column of the strided map on */
        const int64_t enters = fx_div_up(fx_max64(left, 0), p->sw), ends = fx_div_up(fx_max64(left + p->w, 0), p->sw);
        if (enters > begin)
            set.end = fx_min64(set.end, enters);
        if (ends > begin)
            set.end = fx_min64(set.end, ends);
    }
    return set;
}

/* Pointers to one tap of `pixels` pixels of a row: at column `at` of the map for the first one. */
static void point_tap(fx_tap_walk *w, const float *row, int64_t at, int64_t pixels, const float **a) {
    const fx_conv_params *p = w->p;
    int64_t left = 0, right = pixels; /* outside these the tap is outside the map */
    if (!row)
        right = 0;
    else if (at < 0 || at + (pixels - 1) * p->sw >= p->w) {
        right = at < p->w ? fx_min64(fx_div_up(p->w - at, p->sw), pixels) : 0;
        left = at < 0 ? fx_min64(fx_div_up(-at, p->sw), right) : 0;
    }
    w->leaves |= right - left < pixels;
    for (int64_t i = 0; i < left; i++)
        a[i] = w->zeros;
    for (int64_t i = left; i < right; i++)
        a[i] = row + (at + i * p->sw) * p->x_sw;
    for (int64_t i = right; i < pixels; i++)
        a[i] = w->zeros;
}

/* Pointers to the taps of `pixels` pixels of a row, as rows i.. of `rows`; the first tap of the first pixel is at
 * (iy, ix) of the map at x. */
static void point_taps(fx_tap_walk *w, const float *x, int64_t iy, int64_t ix, int64_t pixels, int i, int rows) {
    const fx_conv_params *p = w->p;
    const float **a = w->a + i;
    for (int ky = 0; ky < p->kh; ky++) {
        const int64_t y = iy + (int64_t)ky * p->dh;
        const float *row = y >= 0 && y < p->h ? x + y * p->x_sh : NULL;
        for (int kx = 0; kx < p->kw; kx++, a += rows)
            point_tap(w, row, ix + (int64_t)kx * p->dw, pixels, a);
    }
}

/* One row of taps, gathered. */
static void gather(const fx_conv_params *p, const float *row, int64_t ix, float *to) {
    for (int kx = 0; kx < p->kw; kx++, ix += p->dw, to += p->cin) {
        const int inside = ix >= 0 && ix < p->w;
        const float *from = row + ix * p->x_sw;
        for (int q = 0; q < p->cin; q++)
            to[q] = inside ? from[q] : 0;
    }
}

/* Pointers to the rows of taps, gathering those that are not a run of the input. */
static void point_runs(fx_tap_walk *w, const float *x, int64_t iy, int64_t ix, int i, int rows) {
    const fx_conv_params *p = w->p;
    const float **a = w->a + i;
    const int is_run = w->is_run && ix >= 0 && ix + p->kw <= p->w;
    const int64_t run = (int64_t)p->kw * p->cin;
    float *to = w->gathered + (int64_t)i * p->kh * run;
    for (int ky = 0; ky < p->kh; ky++, a += rows, to += run, iy += p->dh) {
        const float *row = x + iy * p->x_sh;
        if (iy < 0 || iy >= p->h)
            *a = w->zeros, w->leaves = 1;
        else if (is_run)
            *a = row + ix * p->x_sw;
        else {
            gather(p, row, ix, to);
            *a = to;
        }
    }
}

/* Input pixels [ix, ix + pixels) of a row, zeros outside the map. */
static void copy_strip(const fx_conv_params *p, const float *row, int64_t ix, int64_t pixels, float *to) {
    const int64_t left = fx_min64(ix < 0 ? -ix : 0, pixels);
    const int64_t right = fx_min64(fx_max64(p->w - ix, left), pixels);
    memset(to, 0, (size_t)(left * p->cin) * sizeof(float));
    if (p->x_sw == p->cin && right > left)
        memcpy(to + left * p->cin, row + (ix + left) * p->x_sw, (size_t)((right - left) * p->cin) * sizeof(float));
    else
        for (int64_t i = left; i < right; i++)
            for (int64_t q = 0; q < p->cin; q++)
                to[i * p->cin + q] = row[(ix + i) * p->x_sw + q];
    memset(to + right * p->cin, 0, (size_t)((pixels - right) * p->cin) * sizeof(float));
}

/* Pointers to the rows of taps of a strip of output pixels, copying those that leave the map or are not contiguous. */
static void point_strips(const fx_tap_walk *w, const float *x, int64_t iy, int64_t ix, int rows) {
    const fx_conv_params *p = w->p;
    const int64_t pixels = fx_strip_pixels(p, rows);
    const int is_inside = w->is_run && ix >= 0 && ix + pixels <= p->w;
    float *to = w->gathered;
    for (int ky = 0; ky < p->kh; ky++, iy += p->dh) {
        const float *row = iy >= 0 && iy < p->h ? x + iy * p->x_sh : NULL;
        if (!row || is_inside) {
            w->a[ky] = row ? row + ix * p->x_sw : NULL;
            continue;
        }
        copy_strip(p, row, ix, pixels, to);
        w->a[ky] = to;
        to += pixels * p->cin;
    }
}

/* Moves to a row of the window. */
static void go_to_row(fx_tap_walk *w, int64_t row) {
    w->row = row;
    w->batch = row / w->p->oh;
    w->oy = row % w->p->oh;
}

void fx_taps_start(fx_tap_walk *w, int64_t pixel) {
    const fx_window *win = &w->window;
    const int64_t rows = win->y1 - win->y0;
    w->columns = columns_from(w->p, w->kernel, 0);
    while (w->columns.end < w->p->ow && pixel >= rows * (w->columns.end - w->columns.begin)) {
        pixel -= rows * (w->columns.end - w->columns.begin);
        w->columns = columns_from(w->p, w->kernel, w->columns.end);
    }
    const int64_t wide = w->columns.end - w->columns.begin;
    go_to_row(w, win->y0 + pixel / wide);
    w->ox = w->columns.begin + pixel % wide;
}

/* Moves to the first pixel of the columns' next row, or of the next columns. */
static void end_row(fx_tap_walk *w) {
    const fx_window *win = &w->window;
    if (w->row + 1 == win->y1 && w->columns.end < w->p->ow) {
        w->columns = columns_from(w->p, w->kernel, w->columns.end);
        go_to_row(w, win->y0);
    } else if (w->row++, ++w->oy == w->p->oh)
        w->oy = 0, w->batch++;
    w->ox = w->columns.begin;
}

/* Taps of which no pixel is inside the map have no pointer. */
static void drop_taps(const fx_tap_walk *w, int rows) {
    const int64_t taps = w->kernel == FX_CONV_DIRECT ? (int64_t)w->p->kh * w->p->kw : w->p->kh;
    const float **a = w->a;
    for (int64_t t = 0; t < taps; t++, a += rows) {
        int i = 0;
        while (i < rows && a[i] == w->zeros)
            i++;
        if (i == rows)
            *a = NULL;
    }
}

/* The next `rows` pixels. */
void fx_taps_of_tile(fx_tap_walk *w, int rows) {
    const fx_conv_params *p = w->p;
    w->leaves = 0;
    for (int i = 0; i < rows;) {
        const float *x = w->x + w->batch * p->x_sn;
        float *y = w->y + w->batch * p->y_sn + w->oy * p->y_sh + w->ox * p->y_sw;
        const int64_t iy = w->oy * p->sh - p->pt;
        int64_t ix = w->ox * p->sw - p->pl;
        const int first = i, last = (int)fx_min64(rows, i + w->columns.end - w->ox);
        if (w->is_stepped)
            point_strips(w, x, iy, ix, rows);
        else if (w->is_single && w->kernel == FX_CONV_DIRECT)
            for (int j = first; j < last; j++, ix += p->sw)
                w->a[j] = x + iy * p->x_sh + ix * p->x_sw;
        else if (w->kernel == FX_CONV_DIRECT)
            point_taps(w, x, iy, ix, last - first, first, rows);
        else
            for (int j = first; j < last; j++, ix += p->sw)
                point_runs(w, x, iy, ix, j, rows);
        for (int j = first; j < last; j++, y += p->y_sw)
            w->c[j] = y;
        if (w->r) {
            const float *r = w->r + w->batch * p->r_sn + w->oy * p->r_sh + w->ox * p->r_sw;
            for (int j = first; j < last; j++, r += p->r_sw)
                w->r_row[j] = r;
        }
        i = last;
        w->ox += last - first;
        if (w->ox == w->columns.end)
            end_row(w);
    }
    if (w->leaves && p->sums == FX_DTYPE_F32)
        drop_taps(w, rows);
}
