/* The number of elements that are not zero: what an operator needs to know whose output has as many. */
#include "dtypes.h"
#include "units.h"

static fx_window full_window(const fx_params *u) {
    (void)u;
    return (fx_window){0, 1, 0, 1};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    return kernel == 0 && fx_is_dtype(u->count_nonzero.dtype) && u->count_nonzero.n >= 1 ? FX_OK : FX_ERR_PARAMS;
}

static int64_t element_bytes(const fx_params *u, int operand) {
    return operand == FX_OUTPUT ? 8 : fx_dtype_bytes(u->count_nonzero.dtype);
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    *lo = 0;
    *hi = operand == FX_OUTPUT ? 8 : u->count_nonzero.n * fx_dtype_bytes(u->count_nonzero.dtype);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_contiguous_bytes(extent, u);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel, (void)u, (void)threads;
    return w.y0 < w.y1 && w.c0 < w.c1;
}

/* Loops without branches: compilers make vectors of them. `mask` leaves the sign of a float out. */
#define COUNT(type)                                                                                                    \
    static int64_t count_##type(const type *x, int64_t n, type mask) {                                                 \
        int64_t found = 0;                                                                                             \
        for (int64_t i = 0; i < n; i++)                                                                                \
            found += (x[i] & mask) != 0;                                                                               \
        return found;                                                                                                  \
    }
COUNT(uint8_t)
COUNT(uint16_t)
COUNT(uint32_t)
COUNT(uint64_t)

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    (void)threads;
    const fx_count_nonzero_params *p = &call->params->count_nonzero;
    const void *x = call->in[0];
    const int is_float = fx_dtype_is_float(p->dtype);
    if (u0 >= u1)
        return FX_OK;
    int64_t *y = call->out;
    switch (fx_dtype_bytes(p->dtype)) {
    case 1:
        *y = count_uint8_t(x, p->n, UINT8_MAX);
        break;
    case 2:
        *y = count_uint16_t(x, p->n, (uint16_t)(UINT16_MAX >> is_float));
        break;
    case 4:
        *y = count_uint32_t(x, p->n, UINT32_MAX >> is_float);
        break;
    default:
        *y = count_uint64_t(x, p->n, UINT64_MAX >> is_float);
    }
    return FX_OK;
}

FX_DRIVER(count_nonzero, .traits = 0, .element_bytes = element_bytes);
