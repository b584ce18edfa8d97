/* One case: memory with guards, random windows and units, comparison. */
#include "check.h"
#include "flexnn/half.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- random numbers (splitmix64, Steele et al. 2014) ---- */

static uint64_t next(check_case *c) {
    uint64_t z = c->random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

int32_t check_int(check_case *c, int32_t lo, int32_t hi) {
    return (int32_t)(lo + (int64_t)(next(c) % (uint64_t)((int64_t)hi - lo + 1)));
}

float check_real(check_case *c) {
    return (float)((int32_t)(next(c) >> 40) - (1 << 23)) * 0x1p-23f;
}

int check_one_in(check_case *c, int n) {
    return check_int(c, 1, n) == 1;
}

void check_fill(check_case *c, void *data, int64_t bytes) {
    float *f = data;
    for (int64_t i = 0; i < bytes / (int64_t)sizeof *f; i++)
        f[i] = check_real(c);
}

void check_fill_whole(check_case *c, void *data, int64_t bytes) {
    float *f = data;
    const int is_extreme = check_one_in(c, 2);
    for (int64_t i = 0; i < bytes / (int64_t)sizeof *f; i++) {
        f[i] = check_whole(is_extreme ? 1 - 0.02f * fabsf(check_real(c)) : check_real(c), 255);
    }
}

/* ---- memory ---- */

#define MAPS_MAX 24

static struct {
    void *map;
    size_t bytes;
} maps[MAPS_MAX];
static int map_count;

void *check_alloc(int64_t bytes, int before) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t body = ((size_t)bytes + page - 1) / page * page;
    char *map = mmap(NULL, body + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED || (body && mprotect(map + page, body, PROT_READ | PROT_WRITE)) || map_count == MAPS_MAX) {
        perror("flexnn-check: memory");
        exit(1);
    }
    maps[map_count].map = map;
    maps[map_count++].bytes = body + 2 * page;
    return before ? map + page : map + page + body - bytes;
}

void check_free_all(void) {
    while (map_count) {
        map_count--;
        munmap(maps[map_count].map, maps[map_count].bytes);
    }
}

/* ---- a case ---- */

static void describe(const check_case *c, const fx_kernels *k) {
    fprintf(stderr, "  %s, kernel %u, level %s:", fx_op_name(c->op), c->kernel, k->level);
    for (int i = 0, is_float; fx_op_field(c->op, i, &is_float); i++) {
        const char *name = fx_op_field(c->op, i, &is_float);
        float f;
        memcpy(&f, &c->params.words[i], sizeof f);
        if (is_float)
            fprintf(stderr, " %s=%g", name, f);
        else
            fprintf(stderr, " %s=%d", name, c->params.words[i]);
    }
    fputc('\n', stderr);
}

static void shuffle(check_case *c, int32_t *list, int32_t n) {
    for (int32_t i = n - 1; i > 0; i--) {
        const int32_t j = check_int(c, 0, i), t = list[i];
        list[i] = list[j], list[j] = t;
    }
}

/* Runs all units, some at a time in random order; the workspace is poisoned again each time. */
static fx_status run_units(check_case *c, fx_call *call, int threads, uint32_t units, int64_t workspace_bytes) {
    int32_t order[64];
    const int32_t chunks = units < 64 ? (int32_t)units : 64;
    for (int32_t i = 0; i < chunks; i++)
        order[i] = i;
    shuffle(c, order, chunks);
    for (int32_t i = 0; i < chunks; i++) {
        const uint32_t u0 = (uint32_t)((uint64_t)units * (uint32_t)order[i] / (uint32_t)chunks);
        const uint32_t u1 = (uint32_t)((uint64_t)units * (uint32_t)(order[i] + 1) / (uint32_t)chunks);
        memset(call->workspace, 0xff, (size_t)workspace_bytes);
        const fx_status s = fx_op_run(call, threads, u0, u1);
        if (s != FX_OK)
            return s;
    }
    return FX_OK;
}

/* Runs a window at once or, where the operator has them, in phases. */
static fx_status run_window(check_case *c, fx_call *call, int64_t workspace_bytes) {
    const int threads = check_int(c, 1, 5);
    const fx_phases phases = fx_op_phases(call->kernels, c->op, &c->params, threads);
    call->phase = 0;
    if (phases.count < 2 || check_one_in(c, 2))
        return run_units(c, call, threads,
                         fx_op_units(call->kernels, c->op, c->kernel, &c->params, call->window, threads),
                         workspace_bytes);
    memset(call->shared, 0xff, 2 * (size_t)call->shared_step);
    fx_status status = FX_OK;
    while (status == FX_OK && call->phase < (uint32_t)phases.count) {
        call->phase++;
        status = run_units(c, call, threads, phases.units, workspace_bytes);
    }
    return status;
}

/* Cuts [lo, hi) into at most 3 pieces at multiples of step; returns their number. */
static int cut(check_case *c, int32_t lo, int32_t hi, int32_t step, int32_t *at) {
    int n = 0;
    at[n++] = lo;
    while (n < 3 && hi - at[n - 1] > step && !check_one_in(c, 3)) {
        const int32_t steps = (hi - at[n - 1] - 1) / step;
        const int32_t next_cut = at[n - 1] + step * check_int(c, 1, steps);
        at[n++] = next_cut;
    }
    at[n] = hi;
    return n;
}

static fx_status run_windows(check_case *c, fx_call *call, int64_t workspace_bytes) {
    const fx_window full = fx_op_full_window(c->op, &c->params);
    const uint32_t traits = fx_op_traits(c->op);
    int32_t rows[4], channels[4], order[9];
    const int r = cut(c, full.y0, full.y1, traits & FX_TRAIT_ROWS ? 1 : INT32_MAX, rows);
    const int n = cut(c, full.c0, full.c1, traits & FX_TRAIT_CHANNELS ? FX_NR : INT32_MAX, channels);
    for (int i = 0; i < r * n; i++)
        order[i] = i;
    shuffle(c, order, r * n);
    for (int i = 0; i < r * n; i++) {
        const int y = order[i] / n, x = order[i] % n;
        call->window = (fx_window){rows[y], rows[y + 1], channels[x], channels[x + 1]};
        if (c->weight)
            call->weight = (float *)((char *)c->weight + channels[x] / FX_NR * fx_op_panel_bytes(c->op, &c->params));
        const fx_status s = run_window(c, call, workspace_bytes);
        if (s != FX_OK)
            return s;
    }
    return FX_OK;
}

#define DRAWS 501
#define DRAWN 60

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* check_case.sampled; elements that are not written, or not finite, count as 0. */
static double sampled_error(check_case *c, const check_expected *e, const float *got, int64_t elements) {
    double errors[DRAWS];
    for (int d = 0; d < DRAWS; d++) {
        double difference = 0, largest = 0;
        for (int n = 0; n < DRAWN; n++) {
            const int32_t i = check_int(c, 0, (int32_t)(elements - 1));
            if (e->written[i] && isfinite(e->value[i])) {
                difference = fmax(difference, fabs(got[i] - e->value[i]));
                largest = fmax(largest, fabs(e->value[i]));
            }
        }
        errors[d] = largest > 0 ? difference / largest : 0;
    }
    qsort(errors, DRAWS, sizeof *errors, by_size);
    return errors[DRAWS / 2];
}

/* The output as floats, to be freed; poison of halves as poison of floats. */
static float *floats_got(const check_case *c, int64_t elements) {
    const char *from = (const char *)c->out + c->out_lo;
    float *got = malloc((size_t)elements * sizeof *got + 1);
    if (fx_op_element_bytes(c->op, &c->params, FX_OUTPUT) != sizeof(uint16_t))
        memcpy(got, from, (size_t)elements * sizeof *got);
    else
        for (int64_t i = 0; i < elements; i++) {
            const uint16_t half = ((const uint16_t *)from)[i];
            const float wide = (float)fx_half_to(half);
            memcpy(got + i, half == 0xffff ? &(uint32_t){0xffffffffu} : (const void *)&wide, sizeof *got);
        }
    return got;
}

static int compare_floats(check_case *c, const check_expected *e, const float *got, int64_t elements) {
    double difference = 0, largest = 0, differences = 0, squares = 0;
    for (int64_t i = 0; i < elements; i++) {
        uint32_t bits;
        memcpy(&bits, &got[i], sizeof bits);
        const double want = e->value[i];
        if (!e->written[i]) {
            if (bits == 0xffffffffu)
                continue;
            fprintf(stderr, "element %lld was written (%g)\n", (long long)i, got[i]);
            return 1;
        }
        const int same = isnan(want) ? isnan(got[i]) : (got[i] == want || fabs(got[i] - want) <= e->tolerance[i]);
        if (bits == 0xffffffffu || !same) {
            fprintf(stderr, "element %lld is %.9g, expected %.9g +- %.3g\n", (long long)i, got[i], want,
                    e->tolerance[i]);
            return 1;
        }
        if (isfinite(want)) {
            difference = fmax(difference, fabs(got[i] - want));
            largest = fmax(largest, fabs(want));
            differences += (got[i] - want) * (got[i] - want);
            squares += want * want;
        }
    }
    c->error = largest > 0 ? difference / largest : 0;
    c->rms = squares > 0 ? sqrt(differences / squares) : 0;
    if (c->is_sampled)
        c->sampled = sampled_error(c, e, got, elements);
    return 0;
}

static int compare_bytes(const check_case *c, const check_expected *e, int64_t bytes) {
    const unsigned char *got = (const unsigned char *)c->out + c->out_lo;
    for (int64_t i = 0; i < bytes; i++)
        if (got[i] != (e->written[i] ? e->bytes[i] : 0xff)) {
            fprintf(stderr, "byte %lld is %02x, expected %02x%s\n", (long long)i, got[i],
                    e->written[i] ? e->bytes[i] : 0xff, e->written[i] ? "" : " (not written)");
            return 1;
        }
    return 0;
}

int check_run_case(const check_op *op, check_case *c, const fx_kernels *k, const char *op_name) {
    op->draw(c);
    return check_run_drawn(op, c, k, op_name);
}

int check_run_drawn(const check_op *op, check_case *c, const fx_kernels *level, const char *op_name) {
    fx_kernels table = *level; /* where sums of halves are defined, also as levels are that compute with them */
    table.halves |= table.dwconv_f16 && check_one_in(c, 2);
    const fx_kernels *k = c->kernels = &table;
    if (fx_op_check(c->op, c->kernel, &c->params) != FX_OK) {
        fprintf(stderr, "%s: fx_op_check refuses a legal case\n", op_name);
        describe(c, k);
        return 1;
    }
    const int before = check_one_in(c, 2);
    fx_call call = {.kernels = k, .params = &c->params, .op = c->op, .kernel = c->kernel};
    for (int i = 0; i < fx_op_inputs(c->op); i++) {
        fx_op_extent(c->op, &c->params, i, &c->in_lo[i], &c->in_hi[i]);
        if (c->in_hi[i] > c->in_lo[i])
            c->in[i] = (char *)check_alloc(c->in_hi[i] - c->in_lo[i], before) - c->in_lo[i];
        call.in[i] = c->in[i];
    }
    fx_op_extent(c->op, &c->params, FX_OUTPUT, &c->out_lo, &c->out_hi);
    const int64_t out_bytes = c->out_hi - c->out_lo;
    c->out = (char *)check_alloc(out_bytes, before) - c->out_lo;
    call.out = c->out;
    memset((char *)c->out + c->out_lo, 0xff, (size_t)out_bytes);
    c->weight_bytes = fx_op_panel_bytes(c->op, &c->params) * fx_op_panels(c->op, &c->params);
    if (c->weight_bytes)
        c->weight = check_alloc(c->weight_bytes, 0);
    if (op->fill) {
        op->fill(c);
    } else {
        for (int i = 0; i < FX_MAX_INPUTS; i++)
            if (c->in[i])
                check_fill(c, (char *)c->in[i] + c->in_lo[i], c->in_hi[i] - c->in_lo[i]);
        check_fill(c, c->weight, c->weight_bytes);
    }
    const int64_t zeros_bytes = fx_op_zeros(c->op, &c->params) * (int64_t)sizeof(float);
    float *zeros = check_alloc(zeros_bytes, 0);
    memset(zeros, 0, (size_t)zeros_bytes);
    call.zeros = zeros;
    /* Workspace is aligned to 64 bytes, so the guard may stand a few bytes behind its end. */
    const int64_t workspace_bytes = fx_op_workspace(k, c->op, c->kernel, &c->params);
    call.workspace = check_alloc((workspace_bytes + 63) / 64 * 64, 0);
    call.shared_step = (workspace_bytes + 63) / 64 * 64;
    call.shared = check_alloc(2 * call.shared_step, 0);

    const fx_status status = run_windows(c, &call, workspace_bytes);
    const fx_status wanted = op->status ? op->status(c) : FX_OK;
    int failed = status != wanted;
    if (failed)
        fprintf(stderr, "%s: ends with \"%s\", expected \"%s\"\n", op_name, fx_status_text(status),
                fx_status_text(wanted));
    else if (status == FX_OK) {
        const int is_exact = op->is_exact || c->is_exact;
        const int64_t elements = is_exact ? out_bytes : out_bytes / fx_op_element_bytes(c->op, &c->params, FX_OUTPUT);
        check_expected e = {0};
        e.written = calloc((size_t)elements + 1, 1);
        if (is_exact) {
            e.bytes = calloc((size_t)elements + 1, 1);
        } else {
            e.value = calloc((size_t)elements + 1, sizeof *e.value);
            e.tolerance = calloc((size_t)elements + 1, sizeof *e.tolerance);
        }
        op->expect(c, &e);
        float *got = is_exact ? NULL : floats_got(c, elements);
        failed = is_exact ? compare_bytes(c, &e, elements) : compare_floats(c, &e, got, elements);
        free(got), free(e.written), free(e.bytes), free(e.value), free(e.tolerance);
    }
    if (failed)
        describe(c, k);
    check_free_all();
    return failed;
}

/* ---- references that several operators share ---- */

double check_activation(int32_t act, double v, double alpha, double beta, double slope) {
    switch (act) {
    case FX_ACT_RELU:
        return v < 0 ? 0 : v;
    case FX_ACT_CLIP:
        v = v < alpha ? alpha : v;
        return v > beta ? beta : v;
    case FX_ACT_LEAKY_RELU:
        return v < 0 ? alpha * v : v;
    case FX_ACT_PRELU:
        return v < 0 ? slope * v : v;
    case FX_ACT_SIGMOID:
        return 1 / (1 + exp(-v));
    case FX_ACT_HARDSIGMOID:
        return fmax(0, fmin(1, alpha * v + beta));
    case FX_ACT_HARDSWISH:
        return v * fmax(0, fmin(1, v / 6 + 0.5));
    case FX_ACT_SILU:
        return v / (1 + exp(-v));
    case FX_ACT_TANH:
        return tanh(v);
    case FX_ACT_GELU:
        return 0.5 * v * (1 + erf(v * sqrt(0.5)));
    case FX_ACT_GELU_TANH:
        return 0.5 * v * (1 + tanh(sqrt(2 / acos(-1)) * (v + 0.044715 * v * v * v)));
    default:
        return v;
    }
}

double check_activation_tolerance(int32_t act, double value, double bound) {
    return act > FX_ACT_PRELU ? 1.5 * bound + 2e-6 * fabs(value) + 1e-7 : bound;
}

/* Higham, Accuracy and Stability of Numerical Algorithms, 3.1: |error| <= n u sum |a b|, and a little for the rest. */
double check_sum_tolerance(int64_t terms, double magnitude) {
    return (double)(terms + 8) * 0x1p-24 * magnitude + 1e-30;
}
