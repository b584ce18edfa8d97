/* Resizing by weighted sums of many neighbours: cubic, and antialiased. Rows are summed first, into a row of the
 * input's width, whose pixels are summed then. */
#include "resize.h"
#include "units.h"

#include <math.h>

#define TAPS_MAX 256 /* neighbours of a pixel along an axis */

/* How one axis is resized: `in` and `out` are whole lengths. */
typedef struct axis {
    int32_t in, out, taps;
    float scale;
} axis;

/* Neighbours count that are nearer than this. */
static double reach_of(const fx_resample_params *p, float scale) {
    const double wide = p->is_antialiased && scale < 1 ? 1 / (double)scale : 1;
    return (p->is_cubic ? 2 : 1) * wide;
}

static axis axis_of(const fx_resample_params *p, int32_t in, int32_t out, float scale) {
    const double taps = in == out && scale == 1 ? 1 : ceil(2 * reach_of(p, scale));
    return (axis){in, out, (int32_t)fmin(taps, TAPS_MAX + 1), scale};
}

static axis rows_of(const fx_resample_params *p) {
    return axis_of(p, p->all_h ? p->all_h : p->h, p->all_oh ? p->all_oh : p->oh, p->scale_h);
}

static axis columns_of(const fx_resample_params *p) {
    return axis_of(p, p->w, p->ow, p->scale_w);
}

static fx_window full_window(const fx_params *u) {
    return (fx_window){0, u->resample.n * u->resample.oh, 0, u->resample.c};
}

static fx_operand operand_of(const fx_resample_params *p, int operand) {
    if (operand == 0)
        return (fx_operand){{p->n, p->h, p->w, p->c}, {p->x_sn, p->x_sh, p->x_sw, 1}};
    return (fx_operand){{p->n, p->oh, p->ow, p->c}, {p->y_sn, p->y_sh, p->y_sw, 1}};
}

/* Where output i lies, and the first of the places that count for it, which may be outside. A place far outside has the
 * edge's value, as one just beyond the neighbours has. */
static double first_of(const fx_resample_params *p, axis a, int32_t i, double *x) {
    if (a.taps == 1)
        return *x = i;
    const double reach = reach_of(p, a.scale);
    *x = fmin(fmax(fx_resize_source(p->coord, i, a.in, a.out, a.scale), -1 - reach), a.in + reach);
    return floor(*x - reach) + 1;
}

static int64_t inside(double place, int32_t in) {
    return (int64_t)fmin(fmax(place, 0), in - 1);
}

/* Whether the rows that are read lie in x, of a part of a map. */
static int has_rows(const fx_resample_params *p) {
    if (!p->all_oh && !p->all_h)
        return p->y_row == 0 && p->x_row == 0;
    if (p->y_row < 0 || p->x_row < 0 || (int64_t)p->y_row + p->oh > p->all_oh || p->h < 1 ||
        (int64_t)p->x_row + p->h > p->all_h)
        return 0;
    const axis a = rows_of(p);
    double x;
    const int64_t low = inside(first_of(p, a, p->y_row, &x), a.in);
    const int64_t high = inside(first_of(p, a, p->y_row + p->oh - 1, &x) + a.taps - 1, a.in);
    return low >= p->x_row && high < (int64_t)p->x_row + p->h;
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_resample_params *p = &u->resample;
    if (kernel != 0 || p->is_cubic < 0 || p->is_cubic > 1 || p->is_antialiased < 0 || p->is_antialiased > 1 ||
        p->is_exclusive < 0 || p->is_exclusive > 1 || p->coord < 0 || p->coord >= FX_COORD_COUNT || p->n < 1 ||
        p->oh < 1 || (int64_t)p->n * p->oh > INT32_MAX || !isfinite(p->a))
        return FX_ERR_PARAMS;
    if (!(p->scale_h > 0) || !(p->scale_w > 0) || isinf(p->scale_h) || isinf(p->scale_w))
        return FX_ERR_PARAMS;
    if (!fx_operand_fits(operand_of(p, 0), 0) || !fx_operand_fits(operand_of(p, FX_OUTPUT), 1))
        return FX_ERR_PARAMS;
    return rows_of(p).taps <= TAPS_MAX && columns_of(p).taps <= TAPS_MAX && has_rows(p) ? FX_OK : FX_ERR_PARAMS;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    fx_operand_extent(operand_of(&u->resample, operand), lo, hi);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_operand_bytes(operand_of(&u->resample, FX_OUTPUT));
}

/* Places and shares of the columns, then of a row, then a row of the input's width. */
static int64_t places_of(const fx_resample_params *p) {
    return (int64_t)columns_of(p).taps * p->ow + rows_of(p).taps;
}

static int64_t workspace(const fx_kernels *k, uint32_t kernel, const fx_params *u) {
    (void)k, (void)kernel;
    const int64_t each = (int64_t)(sizeof(int64_t) + sizeof(float));
    return fx_round_up(places_of(&u->resample) * each + (int64_t)u->resample.w * u->resample.c * 4, 64);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    const fx_resample_params *p = &u->resample;
    const int64_t sums = (int64_t)rows_of(p).taps * p->w + (int64_t)columns_of(p).taps * p->ow;
    return fx_units_of(w.y1 - w.y0, sums * (w.c1 - w.c0), threads);
}

/* What a neighbour counts at distance d. */
static double share_of(const fx_resample_params *p, double d) {
    const double a = p->a;
    d = fabs(d);
    if (!p->is_cubic)
        return d < 1 ? 1 - d : 0;
    if (d <= 1)
        return ((a + 2) * d - (a + 3)) * d * d + 1;
    return d < 2 ? ((d - 5) * d + 8) * a * d - 4 * a : 0;
}

/* Places, in steps of `step` from row or column `from` on, and shares of what counts for output i. */
static void place(const fx_resample_params *p, axis a, int32_t i, int64_t from, int64_t step, int64_t *at,
                  float *share) {
    double x, sum = 0, own[TAPS_MAX];
    const double first = first_of(p, a, i, &x), narrow = (p->is_cubic ? 2 : 1) / reach_of(p, a.scale);
    for (int32_t t = 0; t < a.taps; t++) {
        const double to = first + t;
        const int is_out = p->is_exclusive && (to < 0 || to > a.in - 1);
        own[t] = is_out ? 0 : share_of(p, (to - x) * narrow);
        sum += own[t];
        at[t] = (inside(to, a.in) - from) * step;
    }
    for (int32_t t = 0; t < a.taps; t++)
        share[t] = (float)(own[t] / sum);
}

/* A row of the input's width, of `channels` from x on: the sum of rows. */
static void sum_rows(const fx_call *call, fx_blend *b, int32_t channels) {
    const fx_resample_params *p = &call->params->resample;
    const int is_dense = p->x_sw == channels && (int64_t)p->w * channels <= INT32_MAX;
    b->pixels = 1;
    b->channels = is_dense ? p->w * channels : channels;
    for (int32_t i = 0; i < (is_dense ? 1 : p->w); i++, b->x += p->x_sw, b->y += channels)
        call->kernels->blend_f32(b);
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_resample_params *p = &call->params->resample;
    const fx_window *w = &call->window;
    const axis rows = rows_of(p), columns = columns_of(p);
    const int32_t channels = w->c1 - w->c0;
    const int64_t pieces = units(call->kernels, call->kernel, call->params, *w, threads), places = places_of(p);
    int64_t *at = call->workspace, *row_at = at + places - rows.taps;
    float *share = (float *)(at + places), *row_share = share + places - rows.taps, *row = share + places;
    for (int32_t i = 0; i < p->ow; i++)
        place(p, columns, i, 0, channels, at + (int64_t)i * columns.taps, share + (int64_t)i * columns.taps);
    const int64_t last = w->y0 + fx_cut_at(w->y1 - w->y0, pieces, u1);
    for (int64_t y = w->y0 + fx_cut_at(w->y1 - w->y0, pieces, u0); y < last; y++) {
        const int64_t batch = y / p->oh, oy = y % p->oh;
        place(p, rows, (int32_t)oy + p->y_row, p->x_row, p->x_sh, row_at, row_share);
        const float *map = (const float *)call->in[0] + batch * p->x_sn + w->c0;
        fx_blend b = {.x = map, .at = row_at, .share = row_share, .taps = rows.taps, .y = row};
        sum_rows(call, &b, channels);
        float *to = (float *)call->out + batch * p->y_sn + oy * p->y_sh + w->c0;
        b = (fx_blend){.x = row, .at = at, .share = share, .taps = columns.taps, .y = to, .y_pixel = p->y_sw};
        b.pixels = p->ow;
        b.channels = channels;
        call->kernels->blend_f32(&b);
    }
    return FX_OK;
}

FX_DRIVER(resample, .traits = FX_TRAIT_ROWS | FX_TRAIT_CHANNELS, .workspace = workspace);
