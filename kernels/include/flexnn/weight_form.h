/* The forms that weights are stored in (fx_wtype), and the layout of a stored panel. No other file knows either. */
#ifndef FLEXNN_WEIGHT_FORM_H
#define FLEXNN_WEIGHT_FORM_H

#include "flexnn/panel.h"
#include "flexnn/params.h"

/* A form. With scales a weight is an integer that stands for scale * integer + minimum, without them it is a float. The
 * weights of an output channel, in the panel's order, have one scale and one minimum for each block of them. A scale or
 * a minimum of 2 bytes is IEEE binary16. Integers have a sign, but for those of 4 bits where there is a minimum: they
 * count from 0.
 *
 * Integers of 8 bits follow one another as floats do. Those of 4 bits stand in groups of 8 weights of all FX_NR
 * channels: 32 bits for each channel, the first weight lowest. The last group of a panel is a whole one. */
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
    [FX_WTYPE_S8B] = {.bits = 8, .block = 32, .scales = sizeof(uint16_t)},
    [FX_WTYPE_S8BF] = {.bits = 8, .block = 32, .scales = sizeof(float)},
    [FX_WTYPE_S8B16F] = {.bits = 8, .block = 16, .scales = sizeof(float)},
    [FX_WTYPE_S8MF] = {.bits = 8, .block = 32, .scales = sizeof(float), .minimum = sizeof(float)},
    [FX_WTYPE_Q4] = {.bits = 4, .block = 32, .scales = sizeof(uint16_t)},
    [FX_WTYPE_Q4F] = {.bits = 4, .block = 32, .scales = sizeof(float)},
    [FX_WTYPE_Q4M] = {.bits = 4, .block = 32, .scales = sizeof(uint16_t), .minimum = sizeof(uint16_t)},
    [FX_WTYPE_Q4MF] = {.bits = 4, .block = 32, .scales = sizeof(float), .minimum = sizeof(float)},
};
_Static_assert(sizeof fx_weight_forms / sizeof *fx_weight_forms == FX_WTYPE_COUNT, "a form for each fx_wtype");

#define FX_GROUP 8 /* weights of a channel that share 32 bits, of 4 bits */

/* Bytes of `count` weights, a multiple of FX_NR; of 4 bits they begin with a group. */
static inline int64_t fx_weights_bytes(int32_t wtype, int64_t count) {
    const int64_t each = fx_weight_forms[wtype].bits < 8 ? FX_GROUP * FX_NR : FX_NR;
    return (count + each - 1) / each * each * fx_weight_forms[wtype].bits / 8;
}

/* 1 if a panel of these sizes may have the form: no run of a tap's channels ends inside a block, except at the panel's
 * end. */
static inline int fx_form_fits(int32_t wtype, int64_t taps, int64_t cin_panel, int64_t cin_block) {
    const int32_t block = fx_weight_forms[wtype].block;
    return block == 0 || ((cin_block % block == 0 || cin_block >= cin_panel) && (taps == 1 || cin_panel % block == 0));
}

/* Floats of a panel's bias, and of its slopes for PRELU, with which it begins in every form. */
static inline int32_t fx_panel_head(int32_t act) {
    return act == FX_ACT_PRELU ? 2 * FX_NR : FX_NR;
}

/* A panel's bytes are a multiple of this: all panels lie on lines, and a slice takes no more room than its bytes. */
#define FX_PANEL_ALIGN 64

static inline int64_t fx_whole_lines(int64_t bytes) {
    return (bytes + FX_PANEL_ALIGN - 1) / FX_PANEL_ALIGN * FX_PANEL_ALIGN;
}

/* Offsets in bytes from a panel's start, and the panel's bytes. Its parts follow one another: [bias FX_NR], for PRELU
 * [slope FX_NR], [block][scale FX_NR], [block][minimum FX_NR], in forms with blocks zeros up to the next line, weights,
 * zeros up to the next line. */
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
    if (form.block)
        l.weights = fx_whole_lines(l.weights);
    l.bytes = fx_whole_lines(l.weights + fx_weights_bytes(wtype, weights));
    return l;
}

#endif
