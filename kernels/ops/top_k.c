/* Indices of the k largest or smallest elements along an axis, in order; of equal ones the lower index comes first. */
#include "dtypes.h"
#include "entries.h"
#include "units.h"

#define BLOCK 128 /* keys made at once */

static fx_window full_window(const fx_params *u) {
    return (fx_window){0, u->top_k.outer, 0, u->top_k.inner};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_top_k_params *p = &u->top_k;
    if (kernel != 0 || !fx_dtype_has_keys(p->dtype) || p->outer < 1 || p->n < 1 || p->inner < 1 || p->k < 1 ||
        p->k > p->n || p->is_largest < 0 || p->is_largest > 1)
        return FX_ERR_PARAMS;
    return (int64_t)p->outer * p->n <= FX_ELEMENTS_MAX / p->inner ? FX_OK : FX_ERR_PARAMS;
}

static int64_t element_bytes(const fx_params *u, int operand) {
    return operand == FX_OUTPUT ? 8 : fx_dtype_bytes(u->top_k.dtype);
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_top_k_params *p = &u->top_k;
    *lo = 0;
    *hi = (int64_t)p->outer * (operand == FX_OUTPUT ? p->k : p->n) * p->inner * element_bytes(u, operand);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_contiguous_bytes(extent, u);
}

/* Whether all elements are sorted, rather than the best k collected. */
static int sorts(const fx_top_k_params *p) {
    return p->k > p->n / 2;
}

static int64_t workspace(const fx_kernels *k, uint32_t kernel, const fx_params *u) {
    (void)k, (void)kernel;
    return (int64_t)sizeof(fx_keyed) * (sorts(&u->top_k) ? u->top_k.n : u->top_k.k);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    if (w.y0 >= w.y1 || w.c0 >= w.c1)
        return 0;
    return fx_units_of((int64_t)u->top_k.outer * u->top_k.inner, 8 * (int64_t)u->top_k.n, threads);
}

/* Collects the least k entries of n elements, or all n, in e; a key is turned where the largest are wanted. */
static void collect(const fx_top_k_params *p, const void *x, int64_t at, int64_t most, fx_keyed *e) {
    const uint64_t turn = p->is_largest ? UINT64_MAX : 0;
    uint64_t keys[BLOCK];
    int64_t count = 0;
    for (int64_t first = 0; first < p->n; first += BLOCK) {
        const int64_t n = fx_min64(BLOCK, p->n - first);
        fx_dtype_keys(p->dtype, x, at + first * p->inner, p->inner, n, keys);
        for (int64_t i = 0; i < n; i++) {
            const fx_keyed found = {keys[i] ^ turn, first + i};
            if (count < most) {
                e[count++] = found;
                if (count == most && most < p->n)
                    fx_heap_make(e, most);
            } else if (found.key < e[0].key) {
                e[0] = found;
                fx_heap_restore(e, most);
            }
        }
    }
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_top_k_params *p = &call->params->top_k;
    const int64_t lines = (int64_t)p->outer * p->inner;
    const uint32_t count = units(call->kernels, 0, call->params, call->window, threads);
    const int64_t most = sorts(p) ? p->n : p->k, end = fx_box_cut(lines, count, u1);
    fx_keyed *e = call->workspace;
    for (int64_t line = fx_box_cut(lines, count, u0); line < end; line++) {
        const int64_t outer = line / p->inner, inner = line % p->inner;
        collect(p, call->in[0], outer * p->n * p->inner + inner, most, e);
        fx_sort_entries(e, most, 0);
        int64_t *y = (int64_t *)call->out + outer * p->k * p->inner + inner;
        for (int64_t i = 0; i < p->k; i++)
            y[i * p->inner] = e[i].index;
    }
    return FX_OK;
}

FX_DRIVER(top_k, .traits = 0, .workspace = workspace, .element_bytes = element_bytes);
