/* The core of attention over operands (attention.c) and over state (state_attention.c). */
#ifndef FLEXNN_OPS_ATTEND_H
#define FLEXNN_OPS_ATTEND_H

#include "impl.h"

/* Keys and values that lie in state: rows of d, [2][groups][capacity], of a dtype that state has (state.h). */
typedef struct fx_attend_state {
    const void *rows;
    const float *sinks; /* [heads], or NULL */
    const float *bias;  /* [heads][keys], by distance, the largest first, or NULL */
    int32_t length, dtype, is_whole, capacity;
} fx_attend_state;

/* is_narrow: keys and values are widened block by block. */
int64_t fx_attend_workspace(const fx_kernels *k, const fx_attention_params *p, int is_narrow);
uint32_t fx_attend_units(const fx_attention_params *p, fx_window w, int threads);

/* Computes units [u0, u1). With state, which replaces in[1] and in[2], `most` has the capacity as its keys. */
void fx_attend(const fx_call *call, const fx_attention_params *most, const fx_attend_state *state, int threads,
               uint32_t u0, uint32_t u1);

#endif
