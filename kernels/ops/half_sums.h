/* Layers that add up halves (half_kernels.h): what their drivers share. */
#ifndef FLEXNN_OPS_HALF_SUMS_H
#define FLEXNN_OPS_HALF_SUMS_H

#include "half.h"

/* A window's panels as halves: where they lie, or narrowed into `room`, fx_half_panels_room halves of it. */
typedef struct fx_half_panels {
    const fx_call *call;
    uint16_t *room;
    int64_t weights; /* of a panel */
    int32_t act, wtype;
} fx_half_panels;

static inline int64_t fx_half_panels_room(int32_t wtype, int64_t weights, int64_t count) {
    return wtype == FX_WTYPE_F16 ? 0 : weights * count;
}

/* The forms of weights that become halves as they are. */
static inline int fx_half_form_fits(int32_t wtype) {
    return wtype == FX_WTYPE_F32 || wtype == FX_WTYPE_F16;
}

/* Bias, then slopes of PRELU, of panel i of the window. */
const float *fx_half_panel_head(const fx_half_panels *p, int64_t i);

/* Lays out panels [first, first + count) of the window, `*step` halves from one to the next. */
const uint16_t *fx_half_panels_at(const fx_half_panels *p, int64_t first, int64_t count, int64_t *step);

/* Weight `at` of panel i of the window, as it is stored. */
double fx_half_weight(const fx_half_panels *p, int64_t i, int64_t at);

/* A pixel's sums: `n` channels of y, which are finished in place and stored as the output's type. */
typedef struct fx_half_pixel {
    float *sums;
    const float *slopes; /* of PRELU */
    float *residual;     /* room for n numbers, or NULL where there is none */
    const void *r;       /* the first number of the residual */
    void *y;
    int64_t n;
    int32_t f16;
    fx_activation act;
} fx_half_pixel;

/* Returns whether a number is beyond what a half holds. */
int fx_finish_half_pixel(const fx_kernels *k, const fx_half_pixel *p);

/* conv_half.c: of CONV_F16 and DWCONV_F16. */
int fx_conv_half_fits(uint32_t op, const fx_params *u);
int64_t fx_conv_half_workspace(uint32_t op, const fx_params *u);
uint32_t fx_conv_half_units(uint32_t op, const fx_params *u, fx_window w, int threads);
fx_status fx_conv_half_run(const fx_call *call, int threads, uint32_t u0, uint32_t u1);

#endif
