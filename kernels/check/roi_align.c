/* Regions of pictures, cell by cell; some cases name a picture that is not there and must fail. */
#include "check.h"

#include <math.h>
#include <stdio.h>

static void draw(check_case *c) {
    fx_roi_align_params *p = &c->params.roi_align;
    p->is_max = check_int(c, 0, 1);
    p->is_half = check_int(c, 0, 1);
    p->ratio = check_int(c, 0, 3);
    p->scale = check_one_in(c, 2) ? 1 : 0.5f;
    p->n = check_int(c, 1, 3);
    p->h = check_int(c, 1, 9);
    p->w = check_int(c, 1, 9);
    p->c = check_one_in(c, 2) ? check_int(c, 1, 4) : check_int(c, 5, 40);
    p->regions = check_int(c, 1, 6);
    p->oh = check_int(c, 1, 4);
    p->ow = check_int(c, 1, 4);
}

/* Corners that lead to no place at the edge of what is near. */
static void fill(check_case *c) {
    const fx_roi_align_params *p = &c->params.roi_align;
    check_fill(c, c->in[0], c->in_hi[0]);
    for (int i = 0; i < 4 * p->regions; i++)
        ((float *)c->in[1])[i] = (float)check_int(c, -8, 60) / 4 + 0.013671875f;
    for (int i = 0; i < p->regions; i++)
        ((int64_t *)c->in[2])[i] = check_int(c, 0, p->n - 1);
    if (check_one_in(c, 8))
        ((int64_t *)c->in[2])[check_int(c, 0, p->regions - 1)] = check_one_in(c, 2) ? p->n : -1;
}

static fx_status status(const check_case *c) {
    for (int i = 0; i < c->params.roi_align.regions; i++) {
        const int64_t picture = ((const int64_t *)c->in[2])[i];
        if (picture < 0 || picture >= c->params.roi_align.n)
            return FX_ERR_INDEX;
    }
    return FX_OK;
}

/* The four parts of the value at (h, w) of a channel, which are read from a picture. */
static void parts(const check_case *c, const float *x, double h, double w, int channel, double *part) {
    const fx_roi_align_params *p = &c->params.roi_align;
    const int is_near = h >= -1 && h <= p->h && w >= -1 && w <= p->w;
    h = fmin(fmax(h, 0), p->h - 1);
    w = fmin(fmax(w, 0), p->w - 1);
    for (int k = 0; k < 4; k++) {
        const double row = fmin(floor(h) + k / 2, p->h - 1), column = fmin(floor(w) + k % 2, p->w - 1);
        const double high = k / 2 ? h - floor(h) : 1 - (h - floor(h)), wide = k % 2 ? w - floor(w) : 1 - (w - floor(w));
        part[k] = is_near ? high * wide * x[((int64_t)row * p->w + (int64_t)column) * p->c + channel] : 0;
    }
}

static double cell(const check_case *c, int64_t region, int i, int j, int channel) {
    const fx_roi_align_params *p = &c->params.roi_align;
    const float *r = (const float *)c->in[1] + 4 * region;
    const float *x = (const float *)c->in[0] + ((const int64_t *)c->in[2])[region] * p->h * p->w * p->c;
    const double shift = p->is_half ? 0.5 : 0, least = p->is_half ? -INFINITY : 1;
    const double high = fmax((r[3] - r[1]) * p->scale, least) / p->oh,
                 wide = fmax((r[2] - r[0]) * p->scale, least) / p->ow;
    const int rows = p->ratio ? p->ratio : (int)fmax(0, ceil(high)),
              columns = p->ratio ? p->ratio : (int)fmax(0, ceil(wide));
    double sum = 0, most = -INFINITY;
    for (int a = 0; a < rows; a++)
        for (int b = 0; b < columns; b++) {
            double part[4];
            parts(c, x, r[1] * p->scale - shift + i * high + (a + 0.5) * high / rows,
                  r[0] * p->scale - shift + j * wide + (b + 0.5) * wide / columns, channel, part);
            for (int k = 0; k < 4; k++) {
                sum += part[k];
                most = fmax(most, part[k]);
            }
        }
    return rows * columns == 0 ? 0 : p->is_max ? most : sum / (rows * columns);
}

static void expect(const check_case *c, check_expected *e) {
    const fx_roi_align_params *p = &c->params.roi_align;
    int64_t at = 0;
    for (int64_t region = 0; region < p->regions; region++)
        for (int i = 0; i < p->oh; i++)
            for (int j = 0; j < p->ow; j++)
                for (int k = 0; k < p->c; k++)
                    check_set(c, e, at++, cell(c, region, i, j, k), 1e-4);
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    if (i > 0)
        return 0;
    fx_roi_align_params *p = &c->params.roi_align;
    *p = (fx_roi_align_params){0, 1, 2, 1, 1, 50, 50, 64, 100, 7, 7};
    *flops = 32.0 * p->regions * p->oh * p->ow * p->c;
    *bytes = 4.0 * p->regions * p->oh * p->ow * p->c;
    snprintf(name, 64, "100 regions, 7 x 7 x 64");
    return 1;
}

const check_op check_roi_align = {.draw = draw, .fill = fill, .expect = expect, .bench = bench, .status = status};
