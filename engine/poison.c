/* For tests only: memory that must not be read yet is filled with NaNs, so that reading it too early shows in the
 * result. */
#include "state.h"

#include <string.h>

void fx_poison(void *memory, int64_t bytes) {
    memset(memory, 0xff, (size_t)bytes);
}

void fx_poison_step(const fx_bound *b, const fx_step *step, const fx_call *call) {
    const fx_node *node = &b->program.nodes[step->node];
    if (node->workspace_bytes)
        fx_poison(call->workspace, node->workspace_bytes * b->engine->workers.threads);
    if (!call->out || !b->first_steps[step - b->program.steps] || fx_op_traits(node->op) & FX_TRAIT_KEEPS)
        return;
    int64_t lo, hi;
    fx_op_extent(node->op, call->params, FX_OUTPUT, &lo, &hi);
    if (fx_op_output_bytes(node->op, call->params) != hi - lo)
        return; /* a view: values of other tensors lie between its own */
    const char *first = (char *)call->out + lo, *end = (char *)call->out + hi;
    for (int i = 0; i < FX_MAX_INPUTS; i++) {
        int64_t in_lo, in_hi;
        fx_op_extent(node->op, call->params, i, &in_lo, &in_hi);
        if (call->in[i] && (const char *)call->in[i] + in_lo < end && first < (const char *)call->in[i] + in_hi)
            return; /* computed in place */
    }
    fx_poison((char *)call->out + lo, hi - lo);
}
