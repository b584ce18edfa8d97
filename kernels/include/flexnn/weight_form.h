/* The forms that weights are stored in (fx_wtype), and the layout of a stored panel. No other file knows either. */
#ifndef FLEXNN_WEIGHT_FORM_H
#define FLEXNN_WEIGHT_FORM_H

#include "flexnn/panel.h"
#include "flexnn/params.h"

/* A form. With scales a weight is an integer that stands for scale * integer + minimum, without them it is a float. The
 * weights of an output channel, in the panel's order, have one scale and one minimum for each block of them. A scale or
 * a minimum of 2 bytes is IEEE binary16. Integers have a sign, but for those of less than 8 bits where there is a
 * minimum: they count from 0.
 *
 * Integers of 8 bits follow one another as floats do. Those of 4 bits stand in groups of 8 weights of all FX_NR
 * channels: 32 bits for each channel, the first weight lowest. The last group of a panel is a whole one. Of integers of
 * 5 and 6 bits the lower 4 do, and 4 or 2 such groups are followed by as many bits of the rest: with u = 1 or 2 upper
 * bits, those of weight i of group g are bits 4 i + u g and above of the channel's 32.
 *
 * Forms with double blocks: the scales of a channel's next `shared` weights are integers times one binary16, their
 * minima integers times minus another. What they share is stored together: [factor FX_NR] of binary16, and where there
 * are minima [their factor FX_NR] and a group of 16 unsigned integers of 6 bits, 8 scales and 8 minima, as weights are
 * stored; else [16][FX_NR] scales of 8 bits with a sign. Every scale and minimum is exact as a float. */
typedef struct fx_weight_form {
    int32_t bits;    /* of a weight */
    int32_t block;   /* weights; 0: all of an output channel */
    int32_t scales;  /* bytes of a scale, 1 of double blocks; 0: none */
    int32_t minimum; /* bytes of a minimum; 0: none, and it counts as 0 */
    int32_t shared;  /* weights whose scales have one factor; 0: scales are as they are */
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
    [FX_WTYPE_Q5] = {.bits = 5, .block = 32, .scales = sizeof(uint16_t)},
    [FX_WTYPE_Q5M] = {.bits = 5, .block = 32, .scales = sizeof(uint16_t), .minimum = sizeof(uint16_t)},
    [FX_WTYPE_Q4K] = {.bits = 4, .block = 32, .scales = 1, .minimum = 1, .shared = 256},
    [FX_WTYPE_Q5K] = {.bits = 5, .block = 32, .scales = 1, .minimum = 1, .shared = 256},
    [FX_WTYPE_Q6K] = {.bits = 6, .block = 16, .scales = 1, .shared = 256},
};
_Static_assert(sizeof fx_weight_forms / sizeof *fx_weight_forms == FX_WTYPE_COUNT, "a form for each fx_wtype");

#define FX_GROUP 8 /* weights of a channel that share 32 bits, of 4 bits */

/* Groups of the lower 4 bits of integers that share 32 upper bits: 1 where there are none. */
static inline int32_t fx_groups_of(int32_t bits) {
    return bits > 4 && bits < 8 ? 4 / (bits - 4) : 1;
}

/* Bytes of `count` weights, a multiple of FX_NR; of less than 8 bits they begin with a group, of 5 and 6 bits with the
 * first of those that share upper bits. */
static inline int64_t fx_weights_bytes(int32_t wtype, int64_t count) {
    const int32_t bits = fx_weight_forms[wtype].bits;
    const int64_t each = bits < 8 ? (int64_t)fx_groups_of(bits) * FX_GROUP * FX_NR : FX_NR;
    return (count + each - 1) / each * each * bits / 8;
}

/* Bytes of what the scales and minima of the same `shared` weights have, of all channels. */
static inline int64_t fx_shared_bytes(int32_t wtype) {
    const fx_weight_form form = fx_weight_forms[wtype];
    const int64_t factors = FX_NR * (int64_t)sizeof(uint16_t) * (form.minimum ? 2 : 1);
    return factors + (form.minimum ? 16 * FX_NR * 6 / 8 : 16 * FX_NR);
}

/* 1 if a panel of these sizes may have the form: no run of a tap's channels ends inside a block, except at the panel's
 * end. Groups that share upper bits are whole, and double blocks are whole ones of a single tap. */
static inline int fx_form_fits(int32_t wtype, int64_t taps, int64_t cin_panel, int64_t cin_block) {
    const int32_t block = fx_weight_forms[wtype].block, shared = fx_weight_forms[wtype].shared;
    const int32_t groups = fx_groups_of(fx_weight_forms[wtype].bits);
    if ((shared && (taps != 1 || cin_panel % shared)) || (groups > 1 && cin_panel % (groups * FX_GROUP)))
        return 0;
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
 * [slope FX_NR], [block][scale FX_NR], [block][minimum FX_NR], or what double blocks share, in forms with blocks zeros
 * up to the next line, weights, zeros up to the next line. */
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
    l.minimum = l.scales + (form.shared ? (of_channel + form.shared - 1) / form.shared * fx_shared_bytes(wtype)
                                        : blocks * FX_NR * form.scales);
    l.weights = l.minimum + (form.shared ? 0 : blocks * FX_NR * form.minimum);
    if (form.block)
        l.weights = fx_whole_lines(l.weights);
    l.bytes = fx_whole_lines(l.weights + fx_weights_bytes(wtype, weights));
    return l;
}

#endif
