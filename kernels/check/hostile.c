/* Damaged parameters: a legal case with some of its words replaced. fx_op_check may refuse it; what it accepts must
 * stay inside the memory that fx_op_extent, fx_op_workspace and fx_op_zeros name, whatever comes out. */
#include "check.h"

#include <stdio.h>
#include <string.h>

#define BYTES_MAX (4 << 20) /* of each operand of a case that is run */
#define WORK_MAX 3e7        /* elements touched */

static int32_t damaged(check_case *c, int32_t word) {
    switch (check_int(c, 0, 7)) {
    case 0:
        return CHECK_PICK(c, 0, -1, 1, 2, INT32_MAX, INT32_MIN, INT32_MAX - 1, 1 << 30, 0x7fc00000);
    case 1:
        return (int32_t)((uint32_t)word + (check_one_in(c, 2) ? 1u : -1u));
    case 2:
        return word == INT32_MIN ? word : -word;
    case 3:
        return (int32_t)((uint32_t)word << check_int(c, 1, 31));
    case 4:
        return word ^ (int32_t)(1u << check_int(c, 0, 31));
    case 5:
        return check_int(c, INT32_MIN, INT32_MAX);
    default:
        return check_int(c, -3, 40);
    }
}

static int fields(uint32_t op) {
    int n = 0, is_float;
    while (fx_op_field(op, n, &is_float))
        n++;
    return n;
}

/* Elements that one output element reads: an accepted case may be slow, but then it is not run here. */
static double reads(const check_case *c) {
    const fx_params *p = &c->params;
    switch (c->op) {
    case FX_OP_CONV:
        return (double)p->conv.kh * p->conv.kw * p->conv.cin_panel;
    case FX_OP_DWCONV:
        return (double)p->dwconv.kh * p->dwconv.kw;
    case FX_OP_CONV_U8:
        return (double)p->conv_u8.kh * p->conv_u8.kw * p->conv_u8.cin;
    case FX_OP_DWCONV_U8:
        return (double)p->dwconv_u8.kh * p->dwconv_u8.kw;
    case FX_OP_POOL_U8:
        return (double)p->pool_u8.kh * p->pool_u8.kw;
    case FX_OP_POOL:
        return (double)p->pool.kh * p->pool.kw;
    case FX_OP_RESAMPLE:
        return 8 + 4 / fmin(p->resample.scale_h, p->resample.scale_w);
    case FX_OP_LRN:
        return p->lrn.size < p->lrn.c ? p->lrn.size : p->lrn.c;
    case FX_OP_MATMUL_U8:
        return p->matmul_u8.k;
    case FX_OP_MATMUL:
        return p->matmul.k;
    case FX_OP_REDUCE:
        return p->reduce.n;
    case FX_OP_FOURIER:
        return (double)p->fourier.frames * p->fourier.inner * p->fourier.size * 100 / p->fourier.bins;
    case FX_OP_TREES:
        return (double)p->trees.trees * p->trees.depth;
    case FX_OP_ATTENTION:
        return (double)p->attention.n * (1 + (double)p->attention.d / p->attention.dv);
    case FX_OP_TOP_K:
        return 8.0 * p->top_k.n;
    case FX_OP_UNIQUE:
        return 40.0 * p->unique.inner;
    case FX_OP_GRID_SAMPLE:
        return 8.0 * p->grid_sample.ow;
    case FX_OP_ROI_ALIGN: {
        const double cell = 2.0 * p->roi_align.scale, places = p->roi_align.ratio ? p->roi_align.ratio : cell;
        return 4.0 * p->roi_align.oh * p->roi_align.ow * (1 + places * places);
    }
    case FX_OP_NMS:
        return (double)p->nms.batch * p->nms.classes * p->nms.boxes * p->nms.most;
    default:
        return 4;
    }
}

/* Elements of the output: its extent says nothing of them where strides are small. */
static double outputs(const check_case *c) {
    const fx_params *p = &c->params;
    const fx_window w = fx_op_full_window(c->op, p);
    double n = (double)(w.y1 - w.y0) * (w.c1 - w.c0);
    if (c->op == FX_OP_CONV)
        n *= p->conv.ow;
    else if (c->op == FX_OP_DWCONV)
        n *= p->dwconv.ow;
    else if (c->op == FX_OP_CONV_U8)
        n *= p->conv_u8.ow;
    else if (c->op == FX_OP_DWCONV_U8)
        n *= p->dwconv_u8.ow;
    else if (c->op == FX_OP_POOL)
        n *= p->pool.ow;
    else if (c->op == FX_OP_POOL_U8)
        n *= p->pool_u8.ow;
    else if (c->op == FX_OP_RESIZE_U8)
        n *= p->resize_u8.ow;
    else if (c->op == FX_OP_RESIZE)
        n *= p->resize.ow;
    else if (c->op == FX_OP_RESAMPLE)
        n *= p->resample.ow;
    else if (c->op == FX_OP_SOFTMAX)
        n *= p->softmax.n;
    return n;
}

/* Random floats, whatever the alignment. */
static void fill(check_case *c, char *data, int64_t bytes) {
    for (int64_t i = 0; i + (int64_t)sizeof(float) <= bytes; i += (int64_t)sizeof(float)) {
        const float f = check_real(c);
        memcpy(data + i, &f, sizeof f);
    }
}

/* Allocates an operand of [*lo, *hi) bytes; 0 if it is too big to be tried. */
static int operand(check_case *c, int number, int before, void **at) {
    int64_t lo, hi;
    fx_op_extent(c->op, &c->params, number, &lo, &hi);
    if (lo > 0 || hi < lo || hi - lo > BYTES_MAX)
        return 0;
    *at = NULL;
    if (hi == lo)
        return 1;
    char *memory = check_alloc(hi - lo, before);
    fill(c, memory, hi - lo);
    *at = memory - lo;
    return 1;
}

static int run(const check_op *op, check_case *c, const fx_kernels *k) {
    fx_call call = {.kernels = k, .params = &c->params, .op = c->op, .kernel = c->kernel};
    const int before = check_one_in(c, 2), threads = check_int(c, 1, 5);
    const int64_t workspace = fx_op_workspace(k, c->op, c->kernel, &c->params);
    const int64_t zeros = fx_op_zeros(c->op, &c->params) * (int64_t)sizeof(float);
    const int64_t weight = fx_op_panel_bytes(c->op, &c->params) * fx_op_panels(c->op, &c->params);
    call.window = fx_op_full_window(c->op, &c->params);
    const uint32_t units = fx_op_units(k, c->op, c->kernel, &c->params, call.window, threads);
    if (workspace < 0 || zeros < 0 || weight < 0) {
        fprintf(stderr, "negative size: workspace %lld, zeros %lld, weight %lld\n", (long long)workspace,
                (long long)zeros, (long long)weight);
        return -1;
    }
    void *at = NULL;
    for (int i = 0; i < fx_op_inputs(c->op); i++) {
        if (!operand(c, i, before, &at))
            return 0;
        call.in[i] = at;
    }
    if (!operand(c, FX_OUTPUT, before, &call.out))
        return 0;
    if (workspace > BYTES_MAX || zeros > BYTES_MAX || weight > BYTES_MAX || outputs(c) * reads(c) > WORK_MAX)
        return 0;
    call.workspace = check_alloc((workspace + 63) / 64 * 64, 0);
    memset(call.workspace, 0xff, (size_t)workspace);
    call.zeros = memset(check_alloc(zeros, 0), 0, (size_t)zeros);
    float *panels = check_alloc(weight, 0);
    check_fill(c, panels, weight);
    call.weight = panels;
    const fx_status s = fx_op_run(&call, threads, 0, units);
    if (s == FX_OK || ((s == FX_ERR_INDEX || s == FX_ERR_RANGE) && op->status))
        return 1;
    fprintf(stderr, "ends with \"%s\"\n", fx_status_text(s));
    return -1;
}

int check_run_accepted(const check_op *op, check_case *c, const fx_kernels *k) {
    if (fx_op_check(c->op, c->kernel, &c->params) != FX_OK)
        return 0;
    const int result = run(op, c, k);
    check_free_all();
    return result;
}

int check_run_hostile(const check_op *op, check_case *c, const fx_kernels *k) {
    op->draw(c);
    const int n = fields(c->op);
    for (int i = check_int(c, 1, 3); i > 0; i--) {
        int32_t *word = &c->params.words[check_int(c, 0, n - 1)];
        *word = damaged(c, *word);
    }
    if (check_one_in(c, 10))
        c->kernel = (uint32_t)damaged(c, (int32_t)c->kernel);
    return check_run_accepted(op, c, k);
}
