/* What the tiles of bytes share: rows that are laid out, starts of sums, and finishing (params_bytes.h). */
#ifndef FLEXNN_NEON_BYTES_H
#define FLEXNN_NEON_BYTES_H

#include "../vec/simd.h"

#include <arm_neon.h>
#include <string.h>

#define BYTE_ROWS 8 /* most rows of a tile */

typedef int32_t tile_sums[BYTE_ROWS][FX_NR];

/* Bytes of a row that is laid out: whole vectors. */
FX_INLINE int64_t laid_row(int32_t runs, int32_t run) {
    return ((int64_t)runs * run + 15) / 16 * 16;
}

/* What the sums of panel j begin with; of rows that are 128 smaller than they should be. */
FX_INLINE int32x4_t start_of(const fx_dot_u8 *d, int32_t j, int at, int is_shifted) {
    const int32_t *head = (const int32_t *)(const void *)(d->w + j * d->w_panel);
    const int32x4_t bias = vld1q_s32((d->bias ? d->bias + j * FX_NR : head) + at);
    return is_shifted ? vmlaq_n_s32(bias, vld1q_s32(head + FX_NR + at), 128) : bias;
}

/* v in [lo, hi]; a NaN becomes lo: the number wins. */
FX_INLINE float32x4_t clamped(float32x4_t v, float lo, float hi) {
    return vminnmq_f32(vmaxnmq_f32(v, vdupq_n_f32(lo)), vdupq_n_f32(hi));
}

/* The first n <= 16 bytes. */
FX_INLINE void store_bytes(uint8_t *y, const int32x4_t *v, int n) {
    const int16x8_t low = vcombine_s16(vmovn_s32(v[0]), vmovn_s32(v[1]));
    const int16x8_t high = vcombine_s16(vmovn_s32(v[2]), vmovn_s32(v[3]));
    const uint8x16_t bytes = vreinterpretq_u8_s8(vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
    if (n >= FX_NR) {
        vst1q_u8(y, bytes);
        return;
    }
    uint8_t part[FX_NR];
    vst1q_u8(part, bytes);
    memcpy(y, part, (size_t)n);
}

FX_INLINE void load_residual(const uint8_t *r, int n, int16x8_t to[2]) {
    uint8x16_t bytes;
    if (n >= FX_NR) {
        bytes = vld1q_u8(r);
    } else {
        uint8_t part[FX_NR] = {0};
        memcpy(part, r, (size_t)n);
        bytes = vld1q_u8(part);
    }
    to[0] = vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(bytes)));
    to[1] = vreinterpretq_s16_u16(vmovl_u8(vget_high_u8(bytes)));
}

/* Stores n channels of a panel's sums at y. */
FX_INLINE void store_finished(const fx_byte_finish *f, const int32_t *sums, const float *scales, const uint8_t *r,
                              void *y, int n) {
    int32x4_t whole[4];
    for (int k = 0; k < 4; k++) {
        const float32x4_t v = vmulq_f32(vcvtq_f32_s32(vld1q_s32(sums + 4 * k)), vld1q_f32(scales + 4 * k));
        whole[k] = vcvtnq_s32_f32(clamped(v, f->lo, f->hi));
    }
    int32_t zero = f->zero;
    if (r) {
        int16x8_t residual[2];
        load_residual(r, n, residual);
        for (int k = 0; k < 4; k++) {
            const int16x4_t half = k % 2 ? vget_high_s16(residual[k / 2]) : vget_low_s16(residual[k / 2]);
            const int32x4_t less = vsubq_s32(vmovl_s16(half), vdupq_n_s32(f->r_zero));
            const float32x4_t part = vmulq_n_f32(vcvtq_f32_s32(less), f->r_scale);
            const float32x4_t both = vfmaq_f32(part, vcvtq_f32_s32(whole[k]), vdupq_n_f32(f->v_scale));
            whole[k] = vcvtnq_s32_f32(clamped(both, f->sum_lo, f->sum_hi));
        }
        zero = f->sum_zero;
    }
    for (int k = 0; k < 4; k++)
        whole[k] = vaddq_s32(whole[k], vdupq_n_s32(zero));
    store_bytes(y, whole, n);
}

FX_INLINE void store_floats(const fx_byte_finish *f, const int32_t *sums, const float *scales, const float *offsets,
                            float *y, int n) {
    float part[FX_NR];
    for (int k = 0; k < FX_NR; k += 4) {
        const float32x4_t v = vmulq_f32(vcvtq_f32_s32(vld1q_s32(sums + k)), vld1q_f32(scales + k));
        vst1q_f32(part + k, clamped(vaddq_f32(v, vld1q_f32(offsets + k)), f->lo, f->hi));
    }
    memcpy(y, part, (size_t)n * sizeof *y);
}

/* Finishes panel j of d's tile. */
FX_INLINE void finish_panel(const fx_dot_u8 *d, int32_t j, const tile_sums sums) {
    const float *scales = (const float *)(const void *)(d->w + j * d->w_panel) + 2 * FX_NR, *offsets = scales + FX_NR;
    const int n = d->columns - j * FX_NR < FX_NR ? d->columns - j * FX_NR : FX_NR;
    const int64_t at = d->c_at + j * FX_NR;
    if (d->scales)
        scales = d->scales + j * FX_NR;
    for (int32_t i = 0; i < d->rows; i++) {
        int32_t row[FX_NR];
        for (int k = 0; k < FX_NR; k += 4)
            vst1q_s32(row + k, vaddq_s32(vld1q_s32(sums[i] + k), vdupq_n_s32(d->more ? d->more[i] : 0)));
        if (d->finish.to == FX_DTYPE_F32)
            store_floats(&d->finish, row, scales, offsets, (float *)d->c[i] + at, n);
        else
            store_finished(&d->finish, row, scales, d->r ? d->r[i] + at : NULL, (uint8_t *)d->c[i] + at, n);
    }
}

/* Rows one after the other, `shift` added to each byte by XOR; rows beyond those there are repeat the last one. */
FX_INLINE void lay_rows(const fx_lay_rows_u8 *l, int32_t rows, uint8_t shift) {
    const int64_t row = laid_row(l->runs, l->run);
    for (int32_t i = 0; i < rows; i++) {
        uint8_t *to = (uint8_t *)l->to + i * row;
        const int32_t from_row = i < l->rows ? i : l->rows - 1;
        for (int32_t t = 0; t < l->runs; t++, to += l->run) {
            const uint8_t *from = l->a[t * l->rows + from_row];
            int32_t q = 0;
            for (; q + 16 <= l->run; q += 16)
                vst1q_u8(to + q, veorq_u8(vld1q_u8(from + q), vdupq_n_u8(shift)));
            for (; q < l->run; q += 4) {
                uint32_t four;
                memcpy(&four, from + q, sizeof four);
                four ^= shift * 0x01010101u;
                memcpy(to + q, &four, sizeof four);
            }
        }
        for (int64_t q = (int64_t)l->runs * l->run; q < row; q++)
            *to++ = 0;
    }
}

#endif
