/* Fourier transforms against the sums that define them, in double precision. */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const double turn = 6.283185307179586476925;

static int32_t small(int32_t n) {
    for (int32_t r = 2; r < 98; r++)
        while (n % r == 0)
            n /= r;
    return n == 1;
}

static int32_t size_of(int32_t n) {
    int32_t size = 1;
    while (size < 2 * n - 1)
        size *= 2;
    return small(n) ? n : size;
}

static void draw(check_case *c) {
    fx_fourier_params *p = &c->params.fourier;
    p->n = check_one_in(c, 4) ? CHECK_PICK(c, 97, 101, 103, 128, 202, 240, 243, 256, 400) : check_int(c, 1, 64);
    p->size = check_one_in(c, 20) ? size_of(101) : size_of(p->n);
    if (p->size < 2 * p->n - 1)
        p->size = size_of(p->n);
    p->outer = check_int(c, 1, 4);
    p->inner = check_one_in(c, 2) ? 1 : check_int(c, 2, 5);
    p->x_parts = check_int(c, 1, 2);
    p->inverse = check_int(c, 0, 1);
    p->y_parts = p->inverse && p->x_parts == 2 ? check_int(c, 1, 2) : 2;
    p->bins = p->y_parts == 1 || check_one_in(c, 2) ? p->n : check_int(c, 1, p->n);
    p->has_window = check_one_in(c, 2);
    p->frames = check_one_in(c, 2) ? 1 : check_int(c, 2, 6);
    p->hop = check_int(c, 1, 20);
    const int32_t whole = (p->frames - 1) * p->hop + p->n;
    p->samples = p->has_window || p->frames > 1 ? whole + check_int(c, 0, 5) : check_int(c, 1, p->n + 5);
}

static void put(float *at, double angle, double scale) {
    at[0] = (float)(cos(angle) * scale);
    at[1] = (float)(sin(angle) * scale);
}

/* The table: cosines and sines, and of a longer transform the chirp and its conjugate's spectrum. */
static void fill(check_case *c) {
    const fx_fourier_params *p = &c->params.fourier;
    check_fill(c, c->in[0], c->in_hi[0]);
    if (c->in[2])
        check_fill(c, c->in[2], c->in_hi[2]);
    float *table = c->in[1], *chirp = table + 2 * p->size, *spectrum = chirp + 2 * p->n;
    for (int32_t i = 0; i < p->size; i++)
        put(table + 2 * i, -turn * i / p->size, 1);
    if (p->size == p->n)
        return;
    for (int64_t i = 0; i < p->n; i++)
        put(chirp + 2 * i, -turn / 2 * (double)(i * i % (2 * p->n)) / p->n, 1);
    for (int64_t k = 0; k < p->size; k++) {
        double re = 0, im = 0;
        for (int64_t i = 1 - p->n; i < p->n; i++) {
            const double angle = turn / 2 * (double)(i * i % (2 * p->n)) / p->n;
            const double back = -turn * (double)(k * ((i + p->size) % p->size) % p->size) / p->size;
            re += cos(angle + back), im += sin(angle + back);
        }
        spectrum[2 * k] = (float)(re / p->size), spectrum[2 * k + 1] = (float)(im / p->size);
    }
}

/* Part of element i of a signal that begins at x; elements are `step` apart. */
static double element(const check_case *c, const float *x, int64_t step, int32_t i, int part) {
    const fx_fourier_params *p = &c->params.fourier;
    const int is_half = p->y_parts == 1, is_mirrored = is_half && i > p->n / 2;
    const int32_t at = is_mirrored ? p->n - i : i;
    if (at >= p->samples || part >= p->x_parts || (is_half && part && at * 2 % p->n == 0))
        return 0;
    const double v = x[at * step + part] * (p->has_window ? (double)((const float *)c->in[2])[at] : 1);
    return is_mirrored && part ? -v : v;
}

static void expect_signal(const check_case *c, check_expected *e, const float *x, int64_t y) {
    const fx_fourier_params *p = &c->params.fourier;
    const int64_t step = (int64_t)p->inner * p->x_parts;
    for (int32_t k = 0; k < p->bins; k++) {
        double sum[2] = {0, 0}, size = 0;
        for (int32_t i = 0; i < p->n; i++) {
            const double angle = (p->inverse ? turn : -turn) * (double)((int64_t)i * k % p->n) / p->n;
            const double re = element(c, x, step, i, 0), im = element(c, x, step, i, 1);
            sum[0] += re * cos(angle) - im * sin(angle);
            sum[1] += re * sin(angle) + im * cos(angle);
            size += re * re + im * im;
        }
        const double scale = p->inverse ? 1.0 / p->n : 1;
        for (int part = 0; part < p->y_parts; part++)
            check_set(c, e, y + (int64_t)k * p->inner * p->y_parts + part, sum[part] * scale,
                      1e-7 + scale * 8e-6 * sqrt(size + 1e-6) * (p->size == p->n ? 1 : 3));
    }
}

static void expect(const check_case *c, check_expected *e) {
    const fx_fourier_params *p = &c->params.fourier;
    for (int32_t o = 0; o < p->outer; o++)
        for (int32_t f = 0; f < p->frames; f++)
            for (int32_t i = 0; i < p->inner; i++)
                expect_signal(c, e,
                              (const float *)c->in[0] +
                                  (((int64_t)o * p->samples + (int64_t)f * p->hop) * p->inner + i) * p->x_parts,
                              (((int64_t)o * p->frames + f) * p->bins * p->inner + i) * p->y_parts);
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const fx_fourier_params shapes[] = {{1, 16000, 1, 98, 160, 400, 400, 201, 1, 2, 0, 1},
                                               {1, 16000, 1, 61, 256, 512, 512, 257, 1, 2, 0, 1},
                                               {1, 16384, 1, 1, 1, 16384, 16384, 16384, 2, 2, 0, 0}};
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    const fx_fourier_params *p = &c->params.fourier;
    c->params.fourier = shapes[i];
    *flops = 5.0 * p->frames * p->n * log2(p->n) * p->x_parts / 2;
    *bytes = 4.0 * p->frames * p->bins * 2;
    snprintf(name, 64, "%d transforms of %d", p->frames, p->n);
    return 1;
}

const check_op check_fourier = {.draw = draw, .fill = fill, .expect = expect, .bench = bench};
