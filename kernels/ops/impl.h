/* How an operator's driver plugs into ops.c: one fx_op_impl per operator, named fx_<op>_impl, in kernels/ops/<op>.c. */
#ifndef FLEXNN_OPS_IMPL_H
#define FLEXNN_OPS_IMPL_H

#include "flexnn/ops.h"

typedef struct fx_op_impl {
    uint32_t traits;
    fx_window (*full_window)(const fx_params *p);
    fx_status (*check)(uint32_t kernel, const fx_params *p);
    void (*extent)(const fx_params *p, int operand, int64_t *lo, int64_t *hi);
    int64_t (*output_bytes)(const fx_params *p); /* of its elements: fewer than its extent where it is a view */
    int64_t (*element_bytes)(const fx_params *p, int operand);                      /* NULL: all operands are floats */
    int64_t (*panel_bytes)(const fx_params *p);                                     /* NULL without FX_TRAIT_PANELS */
    int32_t (*panels)(const fx_params *p);                                          /* NULL without FX_TRAIT_PANELS */
    int64_t (*workspace)(const fx_kernels *k, uint32_t kernel, const fx_params *p); /* NULL: none */
    int64_t (*zeros)(const fx_params *p);                                           /* NULL: none */
    uint32_t (*units)(const fx_kernels *k, uint32_t kernel, const fx_params *p, fx_window w, int threads);
    fx_phases (*phases)(const fx_kernels *k, const fx_params *p, int threads); /* NULL: one */
    fx_status (*run)(const fx_call *call, int threads, uint32_t u0, uint32_t u1);
} fx_op_impl;

/* The entry of an operator. Functions that every driver must have are taken by their names, so a driver without one of
 * them does not compile. The arguments are .traits and the driver's other members. */
#define FX_DRIVER(name, ...)                                                                                           \
    const fx_op_impl fx_##name##_impl = {.full_window = full_window,                                                   \
                                         .check = check,                                                               \
                                         .extent = extent,                                                             \
                                         .output_bytes = output_bytes,                                                 \
                                         .units = units,                                                               \
                                         .run = run,                                                                   \
                                         __VA_ARGS__}

#define FX_IMPL(NAME, name, inputs, panels) extern const fx_op_impl fx_##name##_impl;
FX_OPS(FX_IMPL)
#undef FX_IMPL

/* ---- helpers every driver shares ---- */

/* The largest product or sum of sizes, in elements, that any operator accepts: with 8-byte elements the bytes still
 * fit. */
#define FX_ELEMENTS_MAX ((int64_t)1 << 40)

/* Extent in bytes of a box of dims d with strides s (0 and negative allowed): [*lo, *hi). An empty box: 0, 0. */
void fx_box_extent(int rank, const int32_t *d, const int32_t *s, int64_t elem_bytes, int64_t *lo, int64_t *hi);

/* Sizes and strides of an operand of floats. Drivers whose operands have four dimensions describe each once, for check
 * and extent. */
typedef struct fx_operand {
    int32_t d[4], s[4];
} fx_operand;

static inline void fx_operand_extent(fx_operand o, int64_t *lo, int64_t *hi) {
    fx_box_extent(4, o.d, o.s, sizeof(float), lo, hi);
}

/* Bytes of an output that is an fx_operand, that is a box of six sizes d, or that is always contiguous. */
static inline int64_t fx_operand_bytes(fx_operand o) {
    return (int64_t)o.d[0] * o.d[1] * o.d[2] * o.d[3] * (int64_t)sizeof(float);
}

static inline int64_t fx_six_bytes(const int32_t *d, int64_t elem_bytes) {
    return (int64_t)d[0] * d[1] * d[2] * d[3] * d[4] * d[5] * elem_bytes;
}

static inline int64_t fx_contiguous_bytes(void (*extent)(const fx_params *p, int operand, int64_t *lo, int64_t *hi),
                                          const fx_params *p) {
    int64_t lo, hi;
    extent(p, FX_OUTPUT, &lo, &hi);
    return hi - lo;
}

#endif
