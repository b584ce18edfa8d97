/* Random boxes of strided operands, and a naive walk over them (unary, binary, copy, pad). */
#ifndef FLEXNN_CHECK_BOXES_H
#define FLEXNN_CHECK_BOXES_H

#include "check.h"

/* The six fields of an operator's parameters as an array. */
#define BOX(c, op, name) ((int32_t *)&(c)->params.words[offsetof(fx_##op##_params, name##0) / 4])

typedef struct check_walk {
    int32_t at[FX_DIMS];
} check_walk;

static inline int64_t check_at(const check_walk *w, const int32_t *s) {
    int64_t at = 0;
    for (int i = 0; i < FX_DIMS; i++)
        at += (int64_t)w->at[i] * s[i];
    return at;
}

/* To the next element; 0 after the last. */
static inline int check_step(check_walk *w, const int32_t *d) {
    for (int i = FX_DIMS - 1; i >= 0; i--) {
        if (++w->at[i] < d[i])
            return 1;
        w->at[i] = 0;
    }
    return 0;
}

/* Sizes, and strides without two elements at one place: a shuffled order of dimensions now and then, gaps too. */
void check_draw_box(check_case *c, int32_t *d, int32_t *ys);

/* Strides of an input of these sizes: dense, permuted, broadcast, reversed, spread. */
void check_draw_strides(check_case *c, const int32_t *d, int32_t *s);

#endif
