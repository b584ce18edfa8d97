/* Discrete Fourier transforms of any length. Stockham's algorithm with radices 4, 2, 3, 5 and any prime; a length with
 * a large prime goes through a convolution of a longer one (Bluestein). Real and imaginary parts lie apart, and several
 * transforms side by side, so that every butterfly is a loop over neighbours. Two real signals are one complex one. */
#include "units.h"

#include <string.h>

#define LANES 8              /* transforms side by side */
#define LANES_SIZE 8192      /* at most this long */
#define LENGTH_MAX (1 << 26) /* of a transform */
#define PRIME_MAX 97         /* of the radices */

static int is_half(const fx_fourier_params *p) {
    return p->y_parts == 1; /* half a spectrum to a real signal */
}

/* Elements of the input that a transform reads. */
static int32_t reads(const fx_fourier_params *p) {
    const int32_t wanted = is_half(p) ? p->n / 2 + 1 : p->n;
    return wanted < p->samples ? wanted : p->samples;
}

static int64_t table_floats(const fx_fourier_params *p) {
    return 2 * (p->size == p->n ? (int64_t)p->n : 2 * (int64_t)p->size + p->n);
}

static fx_window full_window(const fx_params *u) {
    return (fx_window){0, u->fourier.outer, 0, u->fourier.bins};
}

static int has_small_primes(int32_t n) {
    for (int32_t r = 2; r <= PRIME_MAX; r++)
        while (n % r == 0)
            n /= r;
    return n == 1;
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_fourier_params *p = &u->fourier;
    if (kernel != 0 || p->outer < 1 || p->samples < 1 || p->inner < 1 || p->frames < 1 || p->hop < 1 || p->n < 1 ||
        p->bins < 1 || p->bins > p->n || p->n > LENGTH_MAX || p->inverse < 0 || p->inverse > 1)
        return FX_ERR_PARAMS;
    if (p->x_parts < 1 || p->x_parts > 2 || p->y_parts < 1 || p->y_parts > 2 || p->has_window < 0 || p->has_window > 1)
        return FX_ERR_PARAMS;
    if (is_half(p) && (p->x_parts != 2 || p->bins != p->n || !p->inverse))
        return FX_ERR_PARAMS;
    const int is_direct = p->size == p->n;
    if (!is_direct && (p->size > 2 * LENGTH_MAX || p->size < 2 * p->n - 1))
        return FX_ERR_PARAMS;
    if (!has_small_primes(p->size) || (p->frames - 1) > (p->samples - reads(p)) / p->hop)
        return FX_ERR_PARAMS;
    const int64_t each = FX_ELEMENTS_MAX / 2 / p->inner;
    return p->outer <= each / p->samples && p->outer <= each / p->frames / p->bins ? FX_OK : FX_ERR_PARAMS;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_fourier_params *p = &u->fourier;
    const int64_t rows = (int64_t)p->outer * p->inner;
    const int64_t floats = operand == 0   ? rows * p->samples * p->x_parts
                           : operand == 1 ? table_floats(p)
                           : operand == 2 ? (p->has_window ? p->n : 0)
                                          : rows * p->frames * p->bins * p->y_parts;
    *lo = 0;
    *hi = floats * (int64_t)sizeof(float);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_contiguous_bytes(extent, u);
}

/* Signals, and how many of them one lane transforms. */
static int64_t signals_of(const fx_fourier_params *p) {
    return (int64_t)p->outer * p->frames * p->inner;
}

static int32_t each_lane(const fx_fourier_params *p) {
    return p->x_parts == 1 ? 2 : 1;
}

static int32_t lanes_of(const fx_fourier_params *p) {
    return p->size <= LANES_SIZE && signals_of(p) > each_lane(p) ? LANES : 1;
}

/* Real and imaginary parts [size][lanes]. */
typedef struct plane {
    float *re, *im;
} plane;

typedef struct workspace {
    plane a, b;
    int64_t bytes;
} workspace;

static workspace workspace_at(void *base, const fx_fourier_params *p) {
    const int64_t floats = (int64_t)p->size * lanes_of(p);
    int64_t at = 0;
    workspace s;
    FX_TAKE(s.a.re, base, at, floats);
    FX_TAKE(s.a.im, base, at, floats);
    FX_TAKE(s.b.re, base, at, floats);
    FX_TAKE(s.b.im, base, at, floats);
    s.bytes = at;
    return s;
}

static int64_t workspace_bytes(const fx_kernels *k, uint32_t kernel, const fx_params *u) {
    (void)k, (void)kernel;
    return workspace_at(NULL, &u->fourier).bytes;
}

static int64_t groups_of(const fx_fourier_params *p) {
    return fx_div_up(signals_of(p), (int64_t)lanes_of(p) * each_lane(p));
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    const fx_fourier_params *p = &u->fourier;
    if (w.y0 >= w.y1 || w.c0 >= w.c1)
        return 0;
    return fx_units_of(groups_of(p), (int64_t)p->size * lanes_of(p) * 32, threads);
}

/* ---- one stage ---- */

/* A stage splits transforms of length r * m into r of length m. `wide` neighbours share a twiddle. w: cosines and sines
 * of -2 pi i / size; those of the length r * m are `step` apart. */
typedef struct stage {
    const float *w;
    int64_t r, m, wide, step, size;
} stage;

typedef struct turn {
    float re, im;
} turn;

static inline turn turn_at(const stage *s, int64_t i) {
    return (turn){s->w[2 * i], s->w[2 * i + 1]};
}

/* y = (re, im) w */
#define STORE(y, at, vr, vi, w)                                                                                        \
    do {                                                                                                               \
        const float vr_ = (vr), vi_ = (vi);                                                                            \
        (y).re[at] = vr_ * (w).re - vi_ * (w).im;                                                                      \
        (y).im[at] = vr_ * (w).im + vi_ * (w).re;                                                                      \
    } while (0)

static void radix2(const stage *s, plane x, plane y) {
    const float *restrict xr = x.re, *restrict xi = x.im;
    float *restrict yr = y.re, *restrict yi = y.im;
    const plane z = {yr, yi};
    const int64_t n = s->wide, far = s->m * n;
    for (int64_t p = 0; p < s->m; p++) {
        const turn w = turn_at(s, p * s->step);
        const int64_t from = p * n, to = 2 * p * n;
        for (int64_t q = 0; q < n; q++) {
            const float ar = xr[from + q], ai = xi[from + q], br = xr[from + far + q], bi = xi[from + far + q];
            yr[to + q] = ar + br;
            yi[to + q] = ai + bi;
            STORE(z, to + n + q, ar - br, ai - bi, w);
        }
    }
}

static void radix3(const stage *s, plane x, plane y) {
    const float *restrict xr = x.re, *restrict xi = x.im;
    float *restrict yr = y.re, *restrict yi = y.im;
    const plane z = {yr, yi};
    const int64_t n = s->wide, far = s->m * n;
    const float sine = 0.86602540378443864676f;
    for (int64_t p = 0; p < s->m; p++) {
        const turn w1 = turn_at(s, p * s->step), w2 = turn_at(s, 2 * p * s->step);
        const int64_t from = p * n, to = 3 * p * n;
        for (int64_t q = 0; q < n; q++) {
            const int64_t i = from + q;
            const float sr = xr[i + far] + xr[i + 2 * far], si = xi[i + far] + xi[i + 2 * far];
            const float dr = sine * (xi[i + far] - xi[i + 2 * far]), di = sine * (xr[i + 2 * far] - xr[i + far]);
            const float mr = xr[i] - 0.5f * sr, mi = xi[i] - 0.5f * si;
            yr[to + q] = xr[i] + sr;
            yi[to + q] = xi[i] + si;
            STORE(z, to + n + q, mr + dr, mi + di, w1);
            STORE(z, to + 2 * n + q, mr - dr, mi - di, w2);
        }
    }
}

static void radix4(const stage *s, plane x, plane y) {
    const float *restrict xr = x.re, *restrict xi = x.im;
    float *restrict yr = y.re, *restrict yi = y.im;
    const plane z = {yr, yi};
    const int64_t n = s->wide, far = s->m * n;
    for (int64_t p = 0; p < s->m; p++) {
        const turn w1 = turn_at(s, p * s->step), w2 = turn_at(s, 2 * p * s->step), w3 = turn_at(s, 3 * p * s->step);
        const int64_t from = p * n, to = 4 * p * n;
        for (int64_t q = 0; q < n; q++) {
            const int64_t i = from + q;
            const float ar = xr[i] + xr[i + 2 * far], ai = xi[i] + xi[i + 2 * far];
            const float br = xr[i] - xr[i + 2 * far], bi = xi[i] - xi[i + 2 * far];
            const float cr = xr[i + far] + xr[i + 3 * far], ci = xi[i + far] + xi[i + 3 * far];
            const float dr = xi[i + far] - xi[i + 3 * far], di = xr[i + 3 * far] - xr[i + far];
            yr[to + q] = ar + cr;
            yi[to + q] = ai + ci;
            STORE(z, to + n + q, br + dr, bi + di, w1);
            STORE(z, to + 2 * n + q, ar - cr, ai - ci, w2);
            STORE(z, to + 3 * n + q, br - dr, bi - di, w3);
        }
    }
}

static void radix5(const stage *s, plane x, plane y) {
    const float *restrict xr = x.re, *restrict xi = x.im;
    float *restrict yr = y.re, *restrict yi = y.im;
    const plane z = {yr, yi};
    const int64_t n = s->wide, far = s->m * n;
    const float c1 = 0.30901699437494742410f, c2 = -0.80901699437494742410f;
    const float s1 = 0.95105651629515357212f, s2 = 0.58778525229247312917f;
    for (int64_t p = 0; p < s->m; p++) {
        turn w[5];
        for (int64_t j = 1; j < 5; j++)
            w[j] = turn_at(s, j * p * s->step);
        const int64_t from = p * n, to = 5 * p * n;
        for (int64_t q = 0; q < n; q++) {
            const int64_t i = from + q;
            const float ar = xr[i + far] + xr[i + 4 * far], ai = xi[i + far] + xi[i + 4 * far];
            const float br = xr[i + 2 * far] + xr[i + 3 * far], bi = xi[i + 2 * far] + xi[i + 3 * far];
            const float cr = xi[i + far] - xi[i + 4 * far], ci = xr[i + 4 * far] - xr[i + far];
            const float dr = xi[i + 2 * far] - xi[i + 3 * far], di = xr[i + 3 * far] - xr[i + 2 * far];
            const float er = xr[i] + c1 * ar + c2 * br, ei = xi[i] + c1 * ai + c2 * bi;
            const float fr = xr[i] + c2 * ar + c1 * br, fi = xi[i] + c2 * ai + c1 * bi;
            const float gr = s1 * cr + s2 * dr, gi = s1 * ci + s2 * di;
            const float hr = s2 * cr - s1 * dr, hi = s2 * ci - s1 * di;
            yr[to + q] = xr[i] + ar + br;
            yi[to + q] = xi[i] + ai + bi;
            STORE(z, to + n + q, er + gr, ei + gi, w[1]);
            STORE(z, to + 2 * n + q, fr + hr, fi + hi, w[2]);
            STORE(z, to + 3 * n + q, fr - hr, fi - hi, w[3]);
            STORE(z, to + 4 * n + q, er - gr, ei - gi, w[4]);
        }
    }
}

/* Any radix: each result is a sum of r products. */
static void radix_any(const stage *s, plane x, plane y) {
    const float *restrict xr = x.re, *restrict xi = x.im;
    float *restrict yr = y.re, *restrict yi = y.im;
    const int64_t n = s->wide, far = s->m * n, root = s->size / s->r;
    for (int64_t p = 0; p < s->m; p++)
        for (int64_t j = 0; j < s->r; j++) {
            const int64_t to = (s->r * p + j) * n;
            memcpy(yr + to, xr + p * n, (size_t)n * sizeof *yr);
            memcpy(yi + to, xi + p * n, (size_t)n * sizeof *yi);
            for (int64_t k = 1; k < s->r; k++) {
                const turn w = turn_at(s, j * k % s->r * root);
                const int64_t from = p * n + k * far;
                for (int64_t q = 0; q < n; q++) {
                    yr[to + q] += xr[from + q] * w.re - xi[from + q] * w.im;
                    yi[to + q] += xr[from + q] * w.im + xi[from + q] * w.re;
                }
            }
            const turn w = turn_at(s, j * p * s->step);
            for (int64_t q = 0; q < n; q++) {
                const float re = yr[to + q], im = yi[to + q];
                yr[to + q] = re * w.re - im * w.im;
                yi[to + q] = re * w.im + im * w.re;
            }
        }
}

static int64_t radix_of(int64_t n) {
    if (n % 4 == 0)
        return 4;
    int64_t r = 2;
    while (n % r)
        r++;
    return r;
}

/* Transforms `lanes` signals of length size, from *x, with *y as the other buffer; *x holds the result. */
static void transform(const float *w, int64_t size, int64_t lanes, plane *x, plane *y) {
    stage s = {.w = w, .wide = lanes, .size = size, .step = 1};
    for (int64_t n = size; n > 1; n = s.m) {
        s.r = radix_of(n);
        s.m = n / s.r;
        (s.r == 4 ? radix4 : s.r == 2 ? radix2 : s.r == 3 ? radix3 : s.r == 5 ? radix5 : radix_any)(&s, *x, *y);
        const plane swapped = *x;
        *x = *y;
        *y = swapped;
        s.wide *= s.r;
        s.step *= s.r;
    }
}

/* x[i][lane] times c[i]; conjugate: of c. */
static void multiply(plane x, const float *c, int64_t n, int64_t lanes) {
    for (int64_t i = 0; i < n; i++) {
        const float re = c[2 * i], im = c[2 * i + 1];
        for (int64_t q = i * lanes; q < (i + 1) * lanes; q++) {
            const float vr = x.re[q], vi = x.im[q];
            x.re[q] = vr * re - vi * im;
            x.im[q] = vr * im + vi * re;
        }
    }
}

/* Bluestein: the transform is a convolution with a chirp, done by transforms of length size. The table: cosines and
 * sines of size, the chirp of n, the transform of its conjugate, divided by size. */
static void convolve(const fx_fourier_params *p, const float *table, int64_t lanes, plane *x, plane *y) {
    const float *chirp = table + 2 * (int64_t)p->size, *spectrum = chirp + 2 * (int64_t)p->n;
    const int64_t rest = ((int64_t)p->size - p->n) * lanes;
    multiply(*x, chirp, p->n, lanes);
    memset(x->re + p->n * lanes, 0, (size_t)rest * sizeof *x->re);
    memset(x->im + p->n * lanes, 0, (size_t)rest * sizeof *x->im);
    transform(table, p->size, lanes, x, y);
    multiply(*x, spectrum, p->size, lanes);
    plane turned = {x->im, x->re}, other = {y->im, y->re};
    transform(table, p->size, lanes, &turned, &other); /* back: real and imaginary parts exchanged */
    *x = (plane){turned.im, turned.re};
    *y = (plane){other.im, other.re};
    multiply(*x, chirp, p->n, lanes);
}

/* ---- signals and spectra ---- */

/* First element of signal t, in elements of x, and of its spectrum, in elements of y. */
static int64_t signal_at(const fx_fourier_params *p, int64_t t) {
    const int64_t inner = t % p->inner, frame = t / p->inner % p->frames, outer = t / p->inner / p->frames;
    return (outer * p->samples + frame * p->hop) * p->inner + inner;
}

static int64_t spectrum_at(const fx_fourier_params *p, int64_t t) {
    return t / p->inner * p->bins * p->inner + t % p->inner;
}

/* One part of signal t into a lane of x[n][lanes]. */
static void load(const fx_call *call, int64_t t, int part, float *x, int64_t lanes) {
    const fx_fourier_params *p = &call->params->fourier;
    const int64_t count = reads(p), step = (int64_t)p->inner * p->x_parts;
    const float *from = (const float *)call->in[0] + signal_at(p, t) * p->x_parts + part, *window = call->in[2];
    for (int64_t i = 0; i < count; i++)
        x[i * lanes] = p->has_window ? from[i * step] * window[i] : from[i * step];
    for (int64_t i = count; i < p->n; i++)
        x[i * lanes] = 0;
}

/* The other half of a real signal's spectrum, the first half of which is in a lane. */
static void complete(const fx_fourier_params *p, plane x, int64_t lanes) {
    x.im[0] = 0;
    if (p->n % 2 == 0)
        x.im[p->n / 2 * lanes] = 0;
    for (int64_t i = 1; i < p->n - i; i++) {
        x.re[(p->n - i) * lanes] = x.re[i * lanes];
        x.im[(p->n - i) * lanes] = -x.im[i * lanes];
    }
}

/* Spectrum `which` of the two real signals in a lane, or (-1) the lane's own. */
static void store(const fx_call *call, int64_t t, int which, plane x, int64_t lanes) {
    const fx_fourier_params *p = &call->params->fourier;
    const int64_t step = (int64_t)p->inner * p->y_parts;
    const float scale = p->inverse ? 1.0f / (float)p->n : 1, sign = p->inverse ? -scale : scale;
    float *y = (float *)call->out + spectrum_at(p, t) * p->y_parts;
    if (which < 0) {
        for (int64_t i = 0; i < p->bins; i++) {
            y[i * step] = x.re[i * lanes] * scale;
            if (p->y_parts == 2)
                y[i * step + 1] = x.im[i * lanes] * scale;
        }
        return;
    }
    for (int64_t i = 0; i < p->bins; i++) {
        const int64_t a = i * lanes, b = (i ? p->n - i : 0) * lanes;
        y[i * step] = (which ? x.im[a] + x.im[b] : x.re[a] + x.re[b]) * 0.5f * scale;
        y[i * step + 1] = (which ? x.re[b] - x.re[a] : x.im[a] - x.im[b]) * 0.5f * sign;
    }
}

/* Transforms signals [t0, t1): at most as many as the lanes take. */
static void run_group(const fx_call *call, const workspace *s, int64_t t0, int64_t t1) {
    const fx_fourier_params *p = &call->params->fourier;
    const int64_t lanes = lanes_of(p), each = each_lane(p), floats = p->n * lanes;
    plane x = s->a, y = s->b;
    if (t1 - t0 < lanes * each) {
        memset(x.re, 0, (size_t)floats * sizeof *x.re);
        memset(x.im, 0, (size_t)floats * sizeof *x.im);
    }
    for (int64_t t = t0; t < t1; t++) {
        const int64_t lane = (t - t0) / each;
        if (p->x_parts == 1) {
            load(call, t, 0, ((t - t0) % 2 ? x.im : x.re) + lane, lanes);
            continue;
        }
        load(call, t, 0, x.re + lane, lanes);
        load(call, t, 1, x.im + lane, lanes);
        if (is_half(p))
            complete(p, (plane){x.re + lane, x.im + lane}, lanes);
    }
    const int is_turned = p->inverse && p->x_parts == 2; /* back: real and imaginary parts exchanged */
    plane from = is_turned ? (plane){x.im, x.re} : x, other = is_turned ? (plane){y.im, y.re} : y;
    if (p->size == p->n)
        transform(call->in[1], p->n, lanes, &from, &other);
    else
        convolve(p, call->in[1], lanes, &from, &other);
    x = is_turned ? (plane){from.im, from.re} : from;
    for (int64_t t = t0; t < t1; t++) {
        const int64_t lane = (t - t0) / each;
        store(call, t, p->x_parts == 1 ? (int)((t - t0) % 2) : -1, (plane){x.re + lane, x.im + lane}, lanes);
    }
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_fourier_params *p = &call->params->fourier;
    const uint32_t count = units(call->kernels, 0, call->params, call->window, threads);
    const workspace s = workspace_at(call->workspace, p);
    const int64_t each = (int64_t)lanes_of(p) * each_lane(p), groups = groups_of(p), end = fx_cut_at(groups, count, u1);
    for (int64_t g = fx_cut_at(groups, count, u0); g < end; g++)
        run_group(call, &s, g * each, fx_min64((g + 1) * each, signals_of(p)));
    return FX_OK;
}

FX_DRIVER(fourier, .traits = 0, .workspace = workspace_bytes);
