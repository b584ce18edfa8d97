/* Indices of the elements that are not zero: [rank][count]. The data must hold as many as the parameters say. */
#include "dtypes.h"
#include "units.h"

#include <string.h>

static fx_window full_window(const fx_params *u) {
    return (fx_window){0, u->nonzero.rank, 0, u->nonzero.count};
}

static int64_t elements(const fx_nonzero_params *p) {
    const int32_t d[] = {p->d0, p->d1, p->d2, p->d3, p->d4, p->d5, p->d6, p->d7};
    int64_t n = 1;
    for (int i = 0; i < FX_RANK_MAX; i++) {
        if (d[i] < 1 || (i >= p->rank && d[i] != 1) || n > FX_ELEMENTS_MAX / d[i])
            return -1;
        n *= d[i];
    }
    return n;
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_nonzero_params *p = &u->nonzero;
    if (kernel != 0 || !fx_is_dtype(p->dtype) || p->rank < 1 || p->rank > FX_RANK_MAX || p->count < 1)
        return FX_ERR_PARAMS;
    return p->count <= elements(p) ? FX_OK : FX_ERR_PARAMS;
}

static int64_t element_bytes(const fx_params *u, int operand) {
    return operand == FX_OUTPUT ? 8 : fx_dtype_bytes(u->nonzero.dtype);
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_nonzero_params *p = &u->nonzero;
    *lo = 0;
    *hi = element_bytes(u, operand) * (operand == FX_OUTPUT ? (int64_t)p->rank * p->count : elements(p));
}

static int64_t output_bytes(const fx_params *u) {
    return fx_contiguous_bytes(extent, u);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel, (void)u, (void)threads;
    return w.y0 < w.y1 && w.c0 < w.c1;
}

/* The first element from `at` on that is not zero; n if there is none. Eight bytes at a time are looked at first. */
#define NEXT(type)                                                                                                     \
    static int64_t next_##type(const type *x, int64_t at, int64_t n, type mask) {                                      \
        enum { STEP = (int)(8 / sizeof(type)) };                                                                       \
        for (uint64_t bits; at + STEP <= n; at += STEP) {                                                              \
            memcpy(&bits, x + at, sizeof bits);                                                                        \
            if (bits)                                                                                                  \
                for (int64_t i = at; i < at + STEP; i++)                                                               \
                    if (x[i] & mask)                                                                                   \
                        return i;                                                                                      \
        }                                                                                                              \
        for (; at < n; at++)                                                                                           \
            if (x[at] & mask)                                                                                          \
                return at;                                                                                             \
        return n;                                                                                                      \
    }
NEXT(uint8_t)
NEXT(uint16_t)
NEXT(uint32_t)
NEXT(uint64_t)

/* -0 is zero, a NaN is not. */
static int64_t next(int32_t dtype, const void *x, int64_t at, int64_t n) {
    const int is_float = fx_dtype_is_float(dtype);
    switch (fx_dtype_bytes(dtype)) {
    case 1:
        return next_uint8_t(x, at, n, UINT8_MAX);
    case 2:
        return next_uint16_t(x, at, n, (uint16_t)(UINT16_MAX >> is_float));
    case 4:
        return next_uint32_t(x, at, n, UINT32_MAX >> is_float);
    default:
        return next_uint64_t(x, at, n, UINT64_MAX >> is_float);
    }
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    (void)threads;
    const fx_nonzero_params *p = &call->params->nonzero;
    const int32_t d[] = {p->d0, p->d1, p->d2, p->d3, p->d4, p->d5, p->d6, p->d7};
    const int64_t n = elements(p);
    int64_t *y = call->out, found = 0;
    if (u0 >= u1)
        return FX_OK;
    for (int64_t at = next(p->dtype, call->in[0], 0, n); at < n; at = next(p->dtype, call->in[0], at + 1, n)) {
        if (found == p->count)
            return FX_ERR_INDEX;
        int64_t rest = at;
        for (int i = p->rank - 1; i > 0; i--) {
            const int64_t whole = rest / d[i];
            y[(int64_t)i * p->count + found] = rest - whole * d[i];
            rest = whole;
        }
        y[found++] = rest;
    }
    return found == p->count ? FX_OK : FX_ERR_INDEX;
}

FX_DRIVER(nonzero, .traits = 0, .element_bytes = element_bytes);
