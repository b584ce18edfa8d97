/* Regions of pictures, each cut into cells: the mean, or the largest part, of what is read between pixels at some
 * places of each cell. https://onnx.ai/onnx/operators/onnx__RoiAlign.html; the arithmetic is onnxruntime's. */
#include "units.h"

#include <math.h>
#include <string.h>

#define PLACES_MAX 4096    /* along one side of a cell */
#define SIDE_MAX (1 << 24) /* pixels whose numbers a float tells apart */

static fx_window full_window(const fx_params *u) {
    return (fx_window){0, u->roi_align.regions, 0, u->roi_align.c};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_roi_align_params *p = &u->roi_align;
    if (kernel != 0 || p->h > SIDE_MAX || p->w > SIDE_MAX || p->is_max < 0 || p->is_max > 1 || p->is_half < 0 ||
        p->is_half > 1 || p->ratio < 0 || p->ratio > PLACES_MAX || !(fabsf(p->scale) <= 1e30f))
        return FX_ERR_PARAMS;
    const fx_operand x = {{p->n, p->h, p->w, p->c}, {0}}, y = {{p->regions, p->oh, p->ow, p->c}, {0}};
    return fx_operand_fits(x, 0) && fx_operand_fits(y, 0) ? FX_OK : FX_ERR_PARAMS;
}

static int64_t element_bytes(const fx_params *u, int operand) {
    (void)u;
    return operand == 2 ? 8 : 4;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_roi_align_params *p = &u->roi_align;
    *lo = 0;
    *hi = operand == 0   ? (int64_t)p->n * p->h * p->w * p->c * 4
          : operand == 1 ? (int64_t)p->regions * 16
          : operand == 2 ? (int64_t)p->regions * 8
                         : (int64_t)p->regions * p->oh * p->ow * p->c * 4;
}

static int64_t output_bytes(const fx_params *u) {
    return fx_contiguous_bytes(extent, u);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    const fx_roi_align_params *p = &u->roi_align;
    if (w.y0 >= w.y1 || w.c0 >= w.c1)
        return 0;
    return fx_units_of((int64_t)p->regions * p->oh * p->ow, 80 * (int64_t)p->c, threads);
}

/* A side of a region: where its cells begin, how long each is, and how many places of each are read. */
typedef struct side {
    float start, cell, places;
} side;

static side side_of(const fx_roi_align_params *p, float from, float to, int32_t cells) {
    const float shift = p->is_half ? 0.5f : 0, start = from * p->scale - shift;
    float length = to * p->scale - shift - start;
    length = !p->is_half && !(length > 1) ? 1 : length;
    const float cell = length / (float)cells;
    return (side){start, cell, p->ratio ? (float)p->ratio : cell <= 0 ? 0 : ceilf(cell)};
}

/* The two pixels that a place lies between, and the share of the second; 0 where it is far outside. */
static int neighbours(float at, int32_t size, int32_t *low, int32_t *high, float *share) {
    if (!(at >= -1 && at <= (float)size))
        return 0;
    at = at > 0 ? at : 0;
    *low = (int32_t)at < size - 1 ? (int32_t)at : size - 1;
    *high = *low < size - 1 ? *low + 1 : *low;
    *share = *low < size - 1 ? at - (float)*low : 0;
    return 1;
}

/* Adds a pixel's share to a cell, or keeps the larger. */
static void take(float *restrict y, const float *restrict x, int64_t n, float share, int keeps_larger) {
    if (keeps_larger)
        for (int64_t i = 0; i < n; i++)
            y[i] = share * x[i] > y[i] ? share * x[i] : y[i];
    else
        for (int64_t i = 0; i < n; i++)
            y[i] += share * x[i];
}

/* What lies far outside is 0. */
static void take_nothing(float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        y[i] = y[i] > 0 ? y[i] : 0;
}

/* One cell: row `i`, column `j` of a region. */
static void read_cell(const fx_roi_align_params *p, const float *x, side tall, side wide, int64_t i, int64_t j,
                      float *y) {
    const int32_t rows = (int32_t)tall.places, columns = (int32_t)wide.places;
    const float start_h = tall.start + (float)i * tall.cell, start_w = wide.start + (float)j * wide.cell;
    const float share_of_place = rows > 0 && columns > 0 && !p->is_max ? 1 / ((float)rows * (float)columns) : 1;
    int32_t low[2], high[2];
    float part[2];
    for (int64_t k = 0; k < p->c; k++)
        y[k] = p->is_max && rows > 0 && columns > 0 ? -INFINITY : 0;
    for (int32_t place = 0; rows > 0 && columns > 0 && place < rows * columns; place++) {
        const float h = start_h + ((float)(place / columns) + 0.5f) * tall.cell / tall.places;
        const float w = start_w + ((float)(place % columns) + 0.5f) * wide.cell / wide.places;
        const int is_near =
            neighbours(h, p->h, &low[0], &high[0], &part[0]) && neighbours(w, p->w, &low[1], &high[1], &part[1]);
        if (!is_near) {
            if (p->is_max)
                take_nothing(y, p->c);
            continue;
        }
        for (int k = 0; k < 4; k++) {
            const float share = (k / 2 ? part[0] : 1 - part[0]) * (k % 2 ? part[1] : 1 - part[1]);
            const int64_t row = k / 2 ? high[0] : low[0], column = k % 2 ? high[1] : low[1];
            take(y, x + (row * p->w + column) * p->c, p->c, share * share_of_place, p->is_max);
        }
    }
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_roi_align_params *p = &call->params->roi_align;
    const uint32_t count = units(call->kernels, 0, call->params, call->window, threads);
    const int64_t each = (int64_t)p->oh * p->ow, cells = each * p->regions, end = fx_box_cut(cells, count, u1);
    for (int64_t i = fx_box_cut(cells, count, u0); i < end; i++) {
        const float *region = (const float *)call->in[1] + 4 * (i / each);
        const int64_t picture = ((const int64_t *)call->in[2])[i / each];
        const side wide = side_of(p, region[0], region[2], p->ow), tall = side_of(p, region[1], region[3], p->oh);
        if (picture < 0 || picture >= p->n || !(wide.places <= PLACES_MAX && tall.places <= PLACES_MAX))
            return FX_ERR_INDEX;
        read_cell(p, (const float *)call->in[0] + picture * p->h * p->w * p->c, tall, wide, i % each / p->ow, i % p->ow,
                  (float *)call->out + i * p->c);
    }
    return FX_OK;
}

FX_DRIVER(roi_align, .traits = 0, .element_bytes = element_bytes);
