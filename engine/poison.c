/* Tests only: memory that nobody may read yet is made NaN, so that reading it too early shows in the result. */
#include "state.h"

#include <string.h>

void fx_poison(void *memory, int64_t bytes) {
    memset(memory, 0xff, (size_t)bytes);
}

/* Elements of the output, for the operators whose output may be a strided view; 0: it is contiguous. */
static int64_t elements(uint32_t op, const fx_params *p, int64_t *element_bytes) {
    const int32_t *d = NULL;
    *element_bytes = 4;
    switch (op) {
    case FX_OP_CONV:
        return (int64_t)p->conv.n * p->conv.oh * p->conv.ow * p->conv.cout;
    case FX_OP_DWCONV:
        return (int64_t)p->dwconv.n * p->dwconv.oh * p->dwconv.ow * p->dwconv.c;
    case FX_OP_POOL:
        return (int64_t)p->pool.n * p->pool.oh * p->pool.ow * p->pool.c;
    case FX_OP_RESIZE:
        return (int64_t)p->resize.n * p->resize.oh * p->resize.ow * p->resize.c;
    case FX_OP_LRN:
        return (int64_t)p->lrn.rows * p->lrn.c;
    case FX_OP_MATMUL:
        return (int64_t)p->matmul.b0 * p->matmul.b1 * p->matmul.m * p->matmul.n;
    case FX_OP_ATTENTION:
        return (int64_t)p->attention.batch * p->attention.heads * p->attention.m * p->attention.dv;
    case FX_OP_ROTARY:
        return (int64_t)p->rotary.batch * p->rotary.heads * p->rotary.tokens * p->rotary.d;
    case FX_OP_UNARY:
        d = &p->unary.d0;
        break;
    case FX_OP_BINARY:
        d = &p->binary.d0;
        break;
    case FX_OP_COPY:
        d = &p->copy.d0;
        *element_bytes = p->copy.elem_bytes;
        break;
    case FX_OP_PAD:
        d = &p->pad.d0;
        *element_bytes = p->pad.elem_bytes;
        break;
    default:
        return 0;
    }
    int64_t product = 1;
    for (int i = 0; i < FX_DIMS; i++)
        product *= d[i];
    return product;
}

void fx_poison_step(const fx_bound *b, const fx_step *step, const fx_call *call) {
    const fx_node *node = &b->program.nodes[step->node];
    if (node->workspace_bytes)
        fx_poison(call->workspace, node->workspace_bytes * b->engine->workers.threads);
    if (!b->first_steps[step - b->program.steps])
        return;
    int64_t lo, hi, element_bytes;
    fx_op_extent(node->op, call->params, FX_OUTPUT, &lo, &hi);
    int64_t count = elements(node->op, call->params, &element_bytes);
    if (count && count * element_bytes != hi - lo)
        return; /* a view: others' values lie between */
    const char *first = (char *)call->out + lo, *end = (char *)call->out + hi;
    for (int i = 0; i < FX_MAX_INPUTS; i++) {
        int64_t in_lo, in_hi;
        fx_op_extent(node->op, call->params, i, &in_lo, &in_hi);
        if (call->in[i] && (const char *)call->in[i] + in_lo < end && first < (const char *)call->in[i] + in_hi)
            return; /* computed in place */
    }
    fx_poison((char *)call->out + lo, hi - lo);
}
