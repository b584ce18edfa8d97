/* flexnn-check: every operator at every level on random legal cases, against naive code in double precision.
 *
 * An operator's file (check/<op>.c) defines `const check_op check_<op>`: how to draw a case, and its expected result.
 * The frame (case.c) does the rest for each case: allocates every operand exactly as long as fx_op_extent says with an
 * unreadable page after it (every other case: before it), poisons output and workspace with NaNs, cuts the output into
 * random windows and units, runs them in random order, and compares: elements that the reference does not write must
 * still hold the poison. */
#ifndef FLEXNN_CHECK_H
#define FLEXNN_CHECK_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "flexnn/kernels.h"
#include "flexnn/ops.h"

typedef struct check_case {
    uint32_t op, kernel;
    fx_params params;
    const fx_kernels *kernels; /* that run it */
    uint64_t random;           /* state of check_int, check_real */
    void *in[FX_MAX_INPUTS];   /* operands as fx_call wants them; NULL for absent ones */
    void *out;
    int64_t in_lo[FX_MAX_INPUTS], in_hi[FX_MAX_INPUTS]; /* their extents in bytes */
    int64_t out_lo, out_hi;
    float *weight; /* all panels, or NULL */
    int64_t weight_bytes;
    double error; /* largest difference from what is expected, over the largest value expected; of f32 outputs */
    double rms;   /* the same of root mean squares */
    int is_exact; /* set by draw: the output is not of floats, as of check_op.is_exact */
    int is_sampled;
    double sampled; /* is_sampled: the same as error of 60 outputs drawn at random, the median of 501 draws */
} check_case;

/* The expected result. Element i is at out_lo + i * (size of an element); what is not marked as written stays
 * poisoned. */
typedef struct check_expected {
    double *value;          /* f32 outputs: [elements], NaN at first */
    double *tolerance;      /* [elements], 0 at first: largest difference allowed */
    unsigned char *bytes;   /* other outputs, exact: [out_hi - out_lo] */
    unsigned char *written; /* [elements], or [bytes] for exact outputs; 0 at first */
} check_expected;

typedef struct check_op {
    /* Draws kernel and params: mostly small and odd, every combination of features possible. */
    void (*draw)(check_case *c);
    /* Fills operands and weight; NULL: all are floats drawn from [-1, 1). */
    void (*fill)(check_case *c);
    /* Sets value, tolerance and written of what the operator computes (is_exact: bytes and written). */
    void (*expect)(const check_case *c, check_expected *e);
    int is_exact;
    /* Shape i to time: sets op's kernel, params, name (at most 63 characters), flops and bytes moved by one run; 0 past
     * the end. NULL: nothing to time. */
    int (*bench)(int i, check_case *c, char *name, double *flops, double *bytes);
    /* The largest errors that the shape being timed may have (check_case.error, .sampled), 0: any; NULL: they are only
     * printed. */
    void (*error_max)(const check_case *c, double *error, double *sampled);
    /* The status a run must end with for this case; NULL: FX_OK. */
    fx_status (*status)(const check_case *c);
} check_op;

/* Uniform in [lo, hi]; in [-1, 1); 1 with probability 1 / n; one of the arguments. */
int32_t check_int(check_case *c, int32_t lo, int32_t hi);
float check_real(check_case *c);
int check_one_in(check_case *c, int n);
#define CHECK_PICK(c, ...)                                                                                             \
    (((const int32_t[]){__VA_ARGS__})[check_int(c, 0, (int32_t)(sizeof((int32_t[]){__VA_ARGS__}) / 4) - 1)])

/* Fills floats with check_real. */
void check_fill(check_case *c, void *data, int64_t bytes);

/* act(v) of params.h in double precision; slope: PRELU's. */
double check_activation(int32_t act, double v, double alpha, double beta, double slope);

/* How far the activation of a sum may be off that is off by `bound`, and that gave `value`: their slopes are at
 * most 1.5, the vector versions of exp and tanh right to 2e-6. */
double check_activation_tolerance(int32_t act, double value, double bound);

/* How far f32 sums of `terms` products may be off that add up to `magnitude` in absolute value. */
double check_sum_tolerance(int64_t terms, double magnitude);

/* Sets element `at` (in elements from c->out, may be negative) of a float output. */
static inline void check_set(const check_case *c, check_expected *e, int64_t at, double value, double tolerance) {
    const int64_t i = at - c->out_lo / (int64_t)sizeof(float);
    e->value[i] = value;
    e->tolerance[i] = tolerance;
    e->written[i] = 1;
}

/* Sets element `at` of an output of int32, of a case that is exact. */
static inline void check_set_int(const check_case *c, check_expected *e, int64_t at, int64_t value) {
    const int64_t i = at * (int64_t)sizeof(int32_t) - c->out_lo;
    const uint32_t low = (uint32_t)value;
    memcpy(e->bytes + i, &low, sizeof low);
    memset(e->written + i, 1, sizeof low);
}

/* Whole numbers made of drawn ones from [-1, 1): from -most to most. */
static inline float check_whole(float drawn, float most) {
    return truncf(drawn * (most + 0.99f));
}

/* Fills floats with whole numbers from -255 to 255, or with such near 255, whose sums are the largest. */
void check_fill_whole(check_case *c, void *data, int64_t bytes);

/* The frame: case.c runs one case, drawn or given (0: passed; else it prints why); bench.c times shapes; accuracy.c
 * prints the errors of these shapes (0: none is too large) and adds their number to *ran. Of shapes, those whose name
 * has `part` in it, if that is not NULL. */
int check_run_case(const check_op *op, check_case *c, const fx_kernels *k, const char *op_name);
int check_run_drawn(const check_op *op, check_case *c, const fx_kernels *k, const char *op_name);
int check_accuracy_op(const check_op *op, uint32_t number, const fx_kernels *k, const char *part, int *ran);
/* hostile.c: 1: parameters damaged at random were accepted and run; 0: refused, or too big to run; -1: failed.
 * check_run_accepted runs those that the case has. */
int check_run_hostile(const check_op *op, check_case *c, const fx_kernels *k);
int check_run_accepted(const check_op *op, check_case *c, const fx_kernels *k);
double check_peak_flops(const fx_kernels *k);
void check_bench_op(const check_op *op, uint32_t number, const fx_kernels *k, const char *part, double peak,
                    int is_cold, int threads);
void *check_alloc(int64_t bytes, int before); /* guard page after it, or before; never freed one by one: */
void check_free_all(void);

#define CHECK_DECLARE(NAME, name, inputs, panels) extern const check_op check_##name __attribute__((weak));
FX_OPS(CHECK_DECLARE)
#undef CHECK_DECLARE

#endif
