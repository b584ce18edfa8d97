/* What the checks of 8-bit activations share: how bytes are drawn, and finishing in steps of floats. */
#ifndef FLEXNN_CHECK_BYTES_H
#define FLEXNN_CHECK_BYTES_H

#include "check.h"

#include <math.h>

/* Random bytes; now and then near both ends, whose sums are the largest. */
static inline void check_fill_bytes(check_case *c, void *data, int64_t bytes) {
    uint8_t *to = data;
    const int is_extreme = check_one_in(c, 4);
    for (int64_t i = 0; i < bytes; i++)
        to[i] = (uint8_t)(is_extreme ? CHECK_PICK(c, 0, 255) : check_int(c, 0, 255));
}

/* Draws a finishing for p, an fx_conv_u8_params or fx_dwconv_u8_params. */
#define CHECK_DRAW_FINISH(c, p)                                                                                        \
    do {                                                                                                               \
        (p)->to = check_one_in(c, 3) ? FX_DTYPE_F32 : FX_DTYPE_U8;                                                     \
        (p)->has_residual = (p)->to == FX_DTYPE_U8 && check_one_in(c, 2);                                              \
        (p)->zero = check_int(c, 0, 255), (p)->r_zero = check_int(c, 0, 255), (p)->sum_zero = check_int(c, 0, 255);    \
        (p)->lo = (float)-(p)->zero, (p)->hi = (float)(255 - (p)->zero);                                               \
        if (check_one_in(c, 3))                                                                                        \
            (p)->lo = 0, (p)->hi = (p)->hi * 0.7f;                                                                     \
        if ((p)->to == FX_DTYPE_F32)                                                                                   \
            (p)->lo = check_one_in(c, 2) ? -INFINITY : -1, (p)->hi = check_one_in(c, 2) ? INFINITY : 1;                \
        (p)->sum_lo = (float)-(p)->sum_zero, (p)->sum_hi = (float)(255 - (p)->sum_zero);                               \
        (p)->v_scale = check_one_in(c, 2) ? 0.5f : 1.5f * fabsf(check_real(c));                                        \
        (p)->r_scale = check_one_in(c, 2) ? 0.5f : 1.5f * check_real(c);                                               \
    } while (0)

/* Steps that only a run knows, as fx_steps_of reads them. */
static inline void check_fill_steps(check_case *c, int32_t is_dynamic) {
    const uint8_t zero = (uint8_t)check_int(c, 0, 255);
    if (is_dynamic)
        *(float *)c->in[1] = fabsf(check_real(c));
    if (is_dynamic == 1)
        *(uint8_t *)c->in[2] = zero;
    else if (is_dynamic == 2)
        ((float *)c->in[1])[1] = zero;
}

static inline uint8_t check_zero(const check_case *c, int32_t is_dynamic, int32_t x_zero) {
    return is_dynamic == 2   ? (uint8_t)((const float *)c->in[1])[1]
           : is_dynamic == 1 ? *(const uint8_t *)c->in[2]
                             : (uint8_t)x_zero;
}

/* Heads of panels: biases, sums of their weights, scales so that a sum of `products` fills the range (some are powers
 * of two, and there ties occur), offsets. `weights` bytes behind the head are drawn, -128 only where `is_full`. */
static inline void check_fill_byte_panels(check_case *c, int32_t count, int64_t bytes, int32_t to, double products,
                                          int is_full) {
    const int64_t head = fx_byte_panel_head(to);
    const int is_extreme = check_one_in(c, 6), is_even = check_one_in(c, 3), is_float = to == FX_DTYPE_F32;
    for (int32_t i = 0; i < count; i++) {
        char *panel = (char *)c->weight + i * bytes;
        int32_t *words = (int32_t *)(void *)panel;
        float *scales = (float *)(void *)panel + 2 * FX_NR;
        for (int j = 0; j < FX_NR; j++) {
            const float wide = 5000 * (float)sqrt(products);
            words[j] = check_one_in(c, 30) ? CHECK_PICK(c, INT32_MIN, INT32_MAX) : (int32_t)(wide * check_real(c));
            words[FX_NR + j] = 0;
            scales[j] = (is_float ? 1.0f : 128.0f) / wide * (1.01f + check_real(c));
            if (is_even)
                scales[j] = ldexpf(1, ilogbf(scales[j]));
            if (is_float)
                scales[FX_NR + j] = check_real(c);
        }
        for (int64_t b = head; b < bytes; b++) {
            const int w = is_extreme ? CHECK_PICK(c, -128, 127) : check_int(c, -128, 127);
            ((int8_t *)panel)[b] = (int8_t)(w == -128 && !is_full ? -127 : w);
            words[FX_NR + (b - head) / 4 % FX_NR] += ((int8_t *)panel)[b];
        }
    }
}

static inline float check_clamped(float v, float lo, float hi) {
    return v > lo ? v < hi ? v : hi : lo;
}

static inline void check_set_float(const check_case *c, check_expected *e, int64_t at, float y) {
    int32_t bits;
    memcpy(&bits, &y, sizeof bits);
    check_set_int(c, e, at, bits);
}

/* Sets element `at` of the output; factor: the scale and the offset. */
static inline void check_set_finished(const check_case *c, check_expected *e, const fx_byte_finish *f, int64_t at,
                                      int64_t sum, const float factor[2], const uint8_t *r) {
    const int32_t whole = (int32_t)(uint32_t)(uint64_t)sum;
    if (f->to == FX_DTYPE_F32) {
        const float product = (float)((double)(float)whole * factor[0]); /* rounded before the sum */
        check_set_float(c, e, at, check_clamped((float)((double)product + factor[1]), f->lo, f->hi));
        return;
    }
    const double v = nearbyint(check_clamped((float)whole * factor[0], f->lo, f->hi));
    double y = v + f->zero;
    if (r) {
        const float u = fmaf((float)v, f->v_scale, (float)(*r - f->r_zero) * f->r_scale);
        y = nearbyint(check_clamped(u, f->sum_lo, f->sum_hi)) + f->sum_zero;
    }
    e->bytes[at - c->out_lo] = (unsigned char)(int)y;
    e->written[at - c->out_lo] = 1;
}

#define CHECK_FINISH_OF(p)                                                                                             \
    (fx_byte_finish) {                                                                                                 \
        (p)->to, (p)->zero, (p)->r_zero, (p)->sum_zero, (p)->lo, (p)->hi, (p)->v_scale, (p)->r_scale, (p)->sum_lo,     \
            (p)->sum_hi                                                                                                \
    }

/* Strides of maps of p, whose pixels have `in` and `out` channels. */
#define CHECK_BYTE_STRIDES(c, p, in, out)                                                                              \
    do {                                                                                                               \
        (p)->x_sw = (in) + (check_one_in(c, 3) ? check_int(c, 1, 9) : 0);                                              \
        (p)->x_sh = (p)->x_sw * (p)->w + (check_one_in(c, 5) ? check_int(c, 1, 9) : 0);                                \
        (p)->x_sn = (p)->x_sh * (p)->h + (check_one_in(c, 5) ? check_int(c, 1, 9) : 0);                                \
        (p)->y_sw = (out) + (check_one_in(c, 3) ? check_int(c, 1, 20) : 0);                                            \
        (p)->y_sh = (p)->y_sw * (p)->ow + (check_one_in(c, 5) ? check_int(c, 1, 9) : 0);                               \
        (p)->y_sn = (p)->y_sh * (p)->oh + (check_one_in(c, 5) ? check_int(c, 1, 9) : 0);                               \
        (p)->r_sw = (out) + (check_one_in(c, 3) ? check_int(c, 1, 20) : 0);                                            \
        (p)->r_sh = (p)->r_sw * (p)->ow, (p)->r_sn = (p)->r_sh * (p)->oh;                                              \
        if (check_one_in(c, 6)) /* the same for every pixel */                                                         \
            (p)->r_sw = (p)->r_sh = (p)->r_sn = 0;                                                                     \
    } while (0)

/* Output sizes of p's window with pads drawn here. */
#define CHECK_BYTE_WINDOW(c, p)                                                                                        \
    do {                                                                                                               \
        (p)->pt = check_int(c, 0, 3), (p)->pl = check_int(c, 0, 3);                                                    \
        const int room_h = (p)->h + (p)->pt + check_int(c, 0, 3) - ((p)->kh - 1) * (p)->dh - 1;                        \
        const int room_w = (p)->w + (p)->pl + check_int(c, 0, 3) - ((p)->kw - 1) * (p)->dw - 1;                        \
        (p)->oh = room_h < 0 ? 1 : room_h / (p)->sh + 1, (p)->ow = room_w < 0 ? 1 : room_w / (p)->sw + 1;              \
    } while (0)

#endif
