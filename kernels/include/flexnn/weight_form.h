/* The forms that weights are stored in (fx_wtype), and the layout of a stored panel. No other file knows either. */
#ifndef FLEXNN_WEIGHT_FORM_H
#define FLEXNN_WEIGHT_FORM_H

#include "flexnn/panel.h"
#include "flexnn/params.h"

/* A form. With scales a weight is an integer that stands for scale * integer + minimum, without them it is a float. The
 * weights of an output channel, in the panel's order, have one scale and one minimum for each block of them. */
typedef struct fx_weight_form {
    int32_t bits;    /* of a weight */
    int32_t block;   /* weights; 0: all of an output channel */
    int32_t scales;  /* bytes of a scale; 0: none */
    int32_t minimum; /* bytes of a minimum; 0: none, and it counts as 0 */
} fx_weight_form;

static const fx_weight_form fx_weight_forms[] = {
    [FX_WTYPE_F32] = {.bits = 32},
    [FX_WTYPE_F16] = {.bits = 16},
    [FX_WTYPE_S8] = {.bits = 8, .scales = sizeof(float)},
};
_Static_assert(sizeof fx_weight_forms / sizeof *fx_weight_forms == FX_WTYPE_COUNT, "a form for each fx_wtype");

/* Bytes of `count` weights, whose bits add up to whole bytes. */
static inline int64_t fx_weights_bytes(int32_t wtype, int64_t count) {
    return count * fx_weight_forms[wtype].bits / 8;
}

/* Floats of a panel's bias, and of its slopes for PRELU, with which it begins in every form. */
static inline int32_t fx_panel_head(int32_t act) {
    return act == FX_ACT_PRELU ? 2 * FX_NR : FX_NR;
}

/* A panel's bytes are a multiple of this: all panels lie on lines, and a slice takes no more room than its bytes. */
#define FX_PANEL_ALIGN 64

/* Offsets in bytes from a panel's start, and the panel's bytes. Its parts follow one another: [bias FX_NR], for PRELU
 * [slope FX_NR], [block][scale FX_NR], [block][minimum FX_NR], weights, zeros up to the next line. */
typedef struct fx_panel_layout {
    int64_t scales, minimum, weights, bytes;
} fx_panel_layout;

/* The layout of a panel of `weights` weights, a multiple of FX_NR. */
static inline fx_panel_layout fx_panel_layout_of(int32_t act, int32_t wtype, int64_t weights) {
    const fx_weight_form form = fx_weight_forms[wtype];
    const int64_t of_channel = weights / FX_NR;
    const int64_t blocks = form.block ? (of_channel + form.block - 1) / form.block : 1;
    fx_panel_layout l;
    l.scales = fx_panel_head(act) * (int64_t)sizeof(float);
    l.minimum = l.scales + blocks * FX_NR * form.scales;
    l.weights = l.minimum + blocks * FX_NR * form.minimum;
    const int64_t end = l.weights + fx_weights_bytes(wtype, weights);
    l.bytes = (end + FX_PANEL_ALIGN - 1) / FX_PANEL_ALIGN * FX_PANEL_ALIGN;
    return l;
}

#endif
