/* For each group, the first of its members or how many they are: x[n] holds the number of each member's group. */
#include "units.h"

static fx_window full_window(const fx_params *u) {
    return (fx_window){0, u->tally.groups, 0, 1};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_tally_params *p = &u->tally;
    const int is_kind = p->kind >= 0 && p->kind < FX_TALLY_COUNT;
    return kernel == 0 && is_kind && p->n >= 1 && p->groups >= 1 ? FX_OK : FX_ERR_PARAMS;
}

static int64_t element_bytes(const fx_params *u, int operand) {
    (void)u, (void)operand;
    return 8;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    *lo = 0;
    *hi = 8 * (int64_t)(operand == FX_OUTPUT ? u->tally.groups : u->tally.n);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_contiguous_bytes(extent, u);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel, (void)u, (void)threads;
    return w.y0 < w.y1 && w.c0 < w.c1;
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    (void)threads;
    const fx_tally_params *p = &call->params->tally;
    const int64_t *x = call->in[0];
    int64_t *y = call->out, found = 0;
    const int is_first = p->kind == FX_TALLY_FIRST;
    if (u0 >= u1)
        return FX_OK;
    for (int64_t g = 0; g < p->groups; g++)
        y[g] = is_first ? -1 : 0;
    for (int64_t i = 0; i < p->n; i++) {
        if (x[i] < 0 || x[i] >= p->groups)
            return FX_ERR_INDEX;
        int64_t *own = &y[x[i]];
        found += is_first ? *own < 0 : *own == 0;
        *own = is_first ? (*own < 0 ? i : *own) : *own + 1;
    }
    return found == p->groups ? FX_OK : FX_ERR_INDEX;
}

FX_DRIVER(tally, .traits = 0, .element_bytes = element_bytes);
