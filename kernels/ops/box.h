/* Boxes: up to FX_DIMS dimensions that operands walk with strides of their own (unary, binary, pointwise, copy, pad).
 */
#ifndef FLEXNN_OPS_BOX_H
#define FLEXNN_OPS_BOX_H

#include "impl.h"

#define FX_BOX_OPERANDS 4

/* The six fields name0 .. name5 of an operator's parameters, as an array. */
#define FX_SIX(u, op, name) (&(u)->words[offsetof(fx_##op##_params, name##0) / sizeof(int32_t)])

/* Work is cut into about this many units for each thread, but not below this many bytes. */
#define FX_BOX_UNITS 4
#define FX_BOX_UNIT_BYTES (8 << 10)

/* A window of a box: dimensions that every operand walks as one are joined, and the rest are right-aligned. */
typedef struct fx_box {
    int operands;
    int64_t d[FX_DIMS];
    int64_t s[FX_BOX_OPERANDS][FX_DIMS]; /* elements */
    int64_t at[FX_BOX_OPERANDS];         /* of the window's first element */
} fx_box;

/* Neighbours in a box: `rows` times `n` elements, from at[o] on; rows are s[o][FX_DIMS - 2] apart. */
typedef struct fx_box_run {
    int64_t rows, n;
    int64_t at[FX_BOX_OPERANDS];
} fx_box_run;

/* 1 if sizes are positive and neither their product nor any operand's extent passes FX_ELEMENTS_MAX. */
int fx_box_fits(const int32_t *d, const int32_t *s);

/* 1 if each stride is larger than the extent of the dimensions inside it: then no two elements share an address. */
int fx_box_is_injective(const int32_t *d, const int32_t *s);

/* Outermost indices [y0, y1) of a box, collapsed. */
fx_box fx_box_window(const int32_t *d, const int32_t *const *s, int operands, int32_t y0, int32_t y1);

int64_t fx_box_elements(const fx_box *b);

/* Units for work on this many bytes, and the first element of unit u of `total` elements. */
uint32_t fx_box_units(int64_t bytes, int threads);
int64_t fx_box_cut(int64_t total, uint32_t units, uint32_t u);

/* The longest run from element e on that ends before e1 and has at most `most` elements. */
fx_box_run fx_box_next(const fx_box *b, int64_t e, int64_t e1, int64_t most);

#endif
