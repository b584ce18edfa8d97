/* Groups of equal rows: the number of each row's group, and last how many groups there are.
 *
 * Groups are numbered in the order of their rows, or in that of their first rows. */
#include "dtypes.h"
#include "entries.h"
#include "units.h"

#define BLOCK 128 /* keys made at once */

static fx_window full_window(const fx_params *u) {
    return (fx_window){0, u->unique.n, 0, 1};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_unique_params *p = &u->unique;
    if (kernel != 0 || !fx_dtype_has_keys(p->dtype) || p->n < 1 || p->inner < 1 || p->is_sorted < 0 || p->is_sorted > 1)
        return FX_ERR_PARAMS;
    return p->n <= FX_ELEMENTS_MAX / p->inner ? FX_OK : FX_ERR_PARAMS;
}

static int64_t element_bytes(const fx_params *u, int operand) {
    return operand == FX_OUTPUT ? 8 : fx_dtype_bytes(u->unique.dtype);
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_unique_params *p = &u->unique;
    *lo = 0;
    *hi = element_bytes(u, operand) * (operand == FX_OUTPUT ? (int64_t)p->n + 1 : (int64_t)p->n * p->inner);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_contiguous_bytes(extent, u);
}

static int64_t workspace(const fx_kernels *k, uint32_t kernel, const fx_params *u) {
    (void)k, (void)kernel;
    return (int64_t)sizeof(fx_keyed) * u->unique.n;
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel, (void)u, (void)threads;
    return w.y0 < w.y1 && w.c0 < w.c1;
}

/* Numbers n groups anew by their first rows; `numbers` has room for them. */
static void number_by_first(int64_t *y, int64_t rows, int64_t groups, int64_t *numbers) {
    int64_t known = 0;
    for (int64_t g = 0; g < groups; g++)
        numbers[g] = -1;
    for (int64_t i = 0; i < rows; i++) {
        if (numbers[y[i]] < 0)
            numbers[y[i]] = known++;
        y[i] = numbers[y[i]];
    }
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    (void)threads;
    const fx_unique_params *p = &call->params->unique;
    const fx_sorted_rows all = {call->in[0], p->inner, p->dtype}, *rows = p->inner > 1 ? &all : NULL;
    fx_keyed *e = call->workspace;
    int64_t *y = call->out, group = 0;
    if (u0 >= u1)
        return FX_OK;
    for (int64_t i = 0; i < p->n; i += BLOCK) {
        const int64_t n = fx_min64(BLOCK, p->n - i);
        uint64_t keys[BLOCK];
        fx_dtype_keys(p->dtype, all.x, i * p->inner, p->inner, n, keys);
        for (int64_t k = 0; k < n; k++)
            e[i + k] = (fx_keyed){keys[k], i + k};
    }
    fx_sort_entries(e, p->n, rows);
    for (int64_t i = 0; i < p->n; i++) {
        group += i && (e[i].key != e[i - 1].key || (rows && fx_compare_rows(rows, e[i].index, e[i - 1].index)));
        y[e[i].index] = group;
    }
    y[p->n] = group + 1;
    if (!p->is_sorted)
        number_by_first(y, p->n, group + 1, call->workspace);
    return FX_OK;
}

FX_DRIVER(unique, .traits = 0, .workspace = workspace, .element_bytes = element_bytes);
