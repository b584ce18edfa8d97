/* Finishing of sums (params_bytes.h) of 16 channels at once. */
#ifndef FLEXNN_X86_BYTE_FINISH_H
#define FLEXNN_X86_BYTE_FINISH_H

#include "../vec/simd.h"

#include <immintrin.h>
#include <math.h>

typedef struct fx_finish512 {
    __m512 lo, hi, v_scale, r_scale, sum_lo, sum_hi;
    __m512i zero, r_zero, sum_zero;
} fx_finish512;

static inline fx_finish512 fx_finish512_of(const fx_byte_finish *f) {
    return (fx_finish512){.lo = _mm512_set1_ps(f->lo),
                          .hi = _mm512_set1_ps(f->hi),
                          .v_scale = _mm512_set1_ps(f->v_scale),
                          .r_scale = _mm512_set1_ps(f->r_scale),
                          .sum_lo = _mm512_set1_ps(f->sum_lo),
                          .sum_hi = _mm512_set1_ps(f->sum_hi),
                          .zero = _mm512_set1_epi32(f->zero),
                          .r_zero = _mm512_set1_epi32(f->r_zero),
                          .sum_zero = _mm512_set1_epi32(f->sum_zero)};
}

/* v in [lo, hi], lo where it is NaN: the second operand of MAXPS. */
FX_INLINE __m512 fx_clamped512(__m512 v, __m512 lo, __m512 hi) {
    return _mm512_min_ps(_mm512_max_ps(v, lo), hi);
}

/* Stores the bytes of sums at y, of the channels in `mask`; r: their residual. */
static inline void fx_store_added512(const fx_finish512 *f, __m512i sum, __m512 scale, const uint8_t *r, uint8_t *y,
                                     __mmask16 mask) {
    const __m512 v = fx_clamped512(_mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale), f->lo, f->hi);
    __m512i whole = _mm512_cvtps_epi32(v);
    const __m512i residual = _mm512_sub_epi32(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, r)), f->r_zero);
    const __m512 part = _mm512_mul_ps(_mm512_cvtepi32_ps(residual), f->r_scale);
    const __m512 u = _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole), f->v_scale, part);
    whole = _mm512_add_epi32(_mm512_cvtps_epi32(fx_clamped512(u, f->sum_lo, f->sum_hi)), f->sum_zero);
    _mm_mask_storeu_epi8(y, mask, _mm512_cvtepi32_epi8(whole));
}

static inline void fx_store_floats512(const fx_finish512 *f, __m512i sum, __m512 scale, __m512 offset, float *y,
                                      __mmask16 mask) {
    const __m512 v = _mm512_add_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale), offset);
    _mm512_mask_storeu_ps(y, mask, fx_clamped512(v, f->lo, f->hi));
}

/* Channels of a panel below `columns`, of those from `at` on. */
static inline __mmask16 fx_mask_below(int64_t columns, int64_t at) {
    return columns - at >= FX_NR ? (__mmask16)-1 : (__mmask16)((1u << (columns - at)) - 1);
}

/* Finishing of bytes without residual, four vectors of sums at once. rint grows with its argument, so clamping may come
 * behind it: saturating packs keep numbers in range, and one pair of operations clamps 64 bytes. What is below every
 * int32, and a NaN, converts to the least of them, and so becomes lo; what is above is cut before. */
typedef struct fx_pack512 {
    __m512 scale[2], top;
    __m512i zero, lo, hi, order;
    __mmask16 masks[2];
    int is_plain, is_whole; /* saturation clamps, and no sum's product passes an int32; panels are whole */
} fx_pack512;

/* Sets what does not depend on panels. Member by member: gcc clears the whole of a literal, which takes 30 cycles. */
FX_INLINE void fx_pack512_clamps(fx_pack512 *p, const fx_byte_finish *f) {
    p->top = _mm512_set1_ps(f->hi);
    p->zero = _mm512_set1_epi16((int16_t)f->zero);
    p->lo = _mm512_set1_epi8((char)(f->zero + _mm_cvtss_si32(_mm_set_ss(f->lo))));
    p->hi = _mm512_set1_epi8((char)(f->zero + _mm_cvtss_si32(_mm_set_ss(f->hi))));
    p->order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
}

FX_INLINE int fx_keeps_range(const fx_byte_finish *f) {
    return f->lo == (float)-f->zero && f->hi == (float)(UINT8_MAX - f->zero);
}

/* Whether all are below 1, so that their products with an int32 are int32s, too. */
FX_INLINE int fx_are_fractions(__m512 scale) {
    return _mm512_cmp_ps_mask(_mm512_abs_ps(scale), _mm512_set1_ps(1), _CMP_LT_OQ) == (__mmask16)-1;
}

FX_INLINE void fx_pack512_of(fx_pack512 *p, const fx_dot_u8 *d, const fx_byte_finish *last) {
    fx_pack512_clamps(p, last);
    p->is_plain = fx_keeps_range(last), p->is_whole = d->columns == d->panels * FX_NR;
    for (int j = 0; j < d->panels; j++) {
        const float *scales = (const float *)(const void *)(d->w + j * d->w_panel) + 2 * FX_NR;
        p->scale[j] = _mm512_loadu_ps(d->scales ? d->scales + j * FX_NR : scales);
        p->masks[j] = fx_mask_below(d->columns, j * FX_NR);
        p->is_plain &= fx_are_fractions(p->scale[j]);
    }
}

/* is_plain: where p says so, or 0. */
FX_INLINE __m512i fx_whole512(const fx_pack512 *p, __m512i sum, __m512 scale, const int is_plain) {
    const __m512 v = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale);
    return _mm512_cvtps_epi32(is_plain ? v : _mm512_min_ps(p->top, v));
}

/* The bytes of a, b, c, d: fours of them in turn. */
FX_INLINE __m512i fx_pack512_clamped(const fx_pack512 *p, __m512i a, __m512i b, __m512i c, __m512i d,
                                     const int is_plain) {
    const __m512i low = _mm512_adds_epi16(_mm512_packs_epi32(a, b), p->zero);
    const __m512i high = _mm512_adds_epi16(_mm512_packs_epi32(c, d), p->zero);
    const __m512i bytes = _mm512_packus_epi16(low, high);
    return is_plain ? bytes : _mm512_min_epu8(_mm512_max_epu8(bytes, p->lo), p->hi);
}

/* The same, one after the other. */
FX_INLINE __m512i fx_pack512_bytes(const fx_pack512 *p, __m512i a, __m512i b, __m512i c, __m512i d,
                                   const int is_plain) {
    return _mm512_permutexvar_epi32(p->order, fx_pack512_clamped(p, a, b, c, d, is_plain));
}

/* Stores rows i and i + 1 of d, of two panels each. Masks cost time where all bytes are stored. */
FX_INLINE void fx_store_two(const fx_pack512 *p, const fx_dot_u8 *d, int i, __m512i bytes) {
    const __mmask32 mask = (__mmask32)p->masks[0] | (__mmask32)p->masks[1] << FX_NR;
    const int rows = d->rows - i < 2 ? d->rows - i : 2;
    const __m256i row[2] = {_mm512_castsi512_si256(bytes), _mm512_extracti64x4_epi64(bytes, 1)};
    FX_UNROLL for (int k = 0; k < 2; k++) {
        if (k == rows)
            break;
        uint8_t *y = (uint8_t *)d->c[i + k] + d->c_at;
        if (p->is_whole)
            _mm256_storeu_si256((void *)y, row[k]);
        else
            _mm256_mask_storeu_epi8(y, mask, row[k]);
    }
}

/* Stores rows from i on, at most four, of one panel. */
FX_INLINE void fx_store_four(const fx_pack512 *p, const fx_dot_u8 *d, int i, __m512i bytes) {
    const int rows = d->rows - i < 4 ? d->rows - i : 4;
    const __m128i row[4] = {_mm512_castsi512_si128(bytes), _mm512_extracti32x4_epi32(bytes, 1),
                            _mm512_extracti32x4_epi32(bytes, 2), _mm512_extracti32x4_epi32(bytes, 3)};
    FX_UNROLL for (int k = 0; k < 4; k++) {
        if (k == rows)
            break;
        uint8_t *y = (uint8_t *)d->c[i + k] + d->c_at;
        if (p->is_whole)
            _mm_storeu_si128((void *)y, row[k]);
        else
            _mm_mask_storeu_epi8(y, p->masks[0], row[k]);
    }
}

/* Rows i and i + 1 of d, of two panels each; a last row is computed twice. */
FX_INLINE void fx_pack_two(const fx_pack512 *p, const fx_dot_u8 *d, int i, const __m512i *first, const __m512i *second,
                           const int is_plain) {
    const __m512 *scale = p->scale;
    const __m512i a = fx_whole512(p, first[0], scale[0], is_plain), b = fx_whole512(p, first[1], scale[1], is_plain);
    const __m512i e = fx_whole512(p, second[0], scale[0], is_plain), f = fx_whole512(p, second[1], scale[1], is_plain);
    fx_store_two(p, d, i, fx_pack512_bytes(p, a, b, e, f, is_plain));
}

/* Rows from i on, at most four, of one panel. */
FX_INLINE void fx_pack_four(const fx_pack512 *p, const fx_dot_u8 *d, int i, const __m512i s[4], const int is_plain) {
    const __m512 scale = p->scale[0];
    const __m512i a = fx_whole512(p, s[0], scale, is_plain), b = fx_whole512(p, s[1], scale, is_plain);
    const __m512i e = fx_whole512(p, s[2], scale, is_plain), f = fx_whole512(p, s[3], scale, is_plain);
    fx_store_four(p, d, i, fx_pack512_bytes(p, a, b, e, f, is_plain));
}

/* The sum of a residual's bytes and a product's rounded sums, rounded; the second clamping is the packing's. */
FX_INLINE __m512i fx_added512(const fx_finish512 *f, const fx_pack512 *p, __m512i sum, int panel, const uint8_t *r,
                              const int is_plain) {
    const __m512 v = fx_clamped512(_mm512_mul_ps(_mm512_cvtepi32_ps(sum), p->scale[panel]), f->lo, f->hi);
    const __m512 whole = _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const void *from = r + panel * FX_NR;
    const __m128i bytes = is_plain ? _mm_loadu_si128(from) : _mm_maskz_loadu_epi8(p->masks[panel], from);
    const __m512i residual = _mm512_sub_epi32(_mm512_cvtepu8_epi32(bytes), f->r_zero);
    const __m512 part = _mm512_mul_ps(_mm512_cvtepi32_ps(residual), f->r_scale);
    const __m512 u = _mm512_fmadd_ps(whole, f->v_scale, part);
    return _mm512_cvtps_epi32(is_plain ? u : _mm512_min_ps(p->top, u));
}

/* Finishes and stores the tile of d, of P panels, which has a residual: four vectors of its sums at once; sums:
 * [rows][P]. */
FX_INLINE void fx_finish_panels(const fx_dot_u8 *d, const __m512i *sums, const fx_pack512 *p, const int P,
                                const int is_plain) {
    const fx_finish512 f = fx_finish512_of(&d->finish);
    const int last_row = d->rows - 1;
    for (int i = 0; i < d->rows; i += 4 / P, sums += 4) {
        __m512i whole[4];
        FX_UNROLL for (int k = 0; k < 4; k++) {
            const int row = i + k / P < last_row ? i + k / P : last_row;
            whole[k] = fx_added512(&f, p, sums[k], k % P, d->r[row] + d->c_at, is_plain);
        }
        const __m512i bytes = fx_pack512_bytes(p, whole[0], whole[1], whole[2], whole[3], is_plain);
        P == 2 ? fx_store_two(p, d, i, bytes) : fx_store_four(p, d, i, bytes);
    }
}

static inline void fx_finish_added(const fx_dot_u8 *d, const __m512i *sums) {
    const fx_byte_finish last = {.zero = d->finish.sum_zero, .lo = d->finish.sum_lo, .hi = d->finish.sum_hi};
    fx_pack512 p;
    fx_pack512_of(&p, d, &last);
    /* A sum of two numbers below 256 times these scales is no int32's last one. */
    const int is_small = fabsf(d->finish.v_scale) < 1e6f && fabsf(d->finish.r_scale) < 1e6f;
    if (d->panels == 2 && is_small && p.is_plain && p.is_whole)
        fx_finish_panels(d, sums, &p, 2, 1);
    else
        d->panels == 2 ? fx_finish_panels(d, sums, &p, 2, 0) : fx_finish_panels(d, sums, &p, 1, 0);
}

/* Finishes and stores the tile of d, which becomes floats; sums: [rows][panels]. */
static inline void fx_finish_floats(const fx_dot_u8 *d, const __m512i *sums) {
    const fx_finish512 f = fx_finish512_of(&d->finish);
    for (int32_t j = 0; j < d->panels; j++) {
        const float *scales = (const float *)(const void *)(d->w + j * d->w_panel) + 2 * FX_NR;
        const __m512 scale = _mm512_loadu_ps(d->scales ? d->scales + j * FX_NR : scales);
        const __m512 offset = _mm512_loadu_ps(scales + FX_NR);
        const __mmask16 mask = fx_mask_below(d->columns, j * FX_NR);
        const int64_t at = d->c_at + j * FX_NR;
        for (int32_t i = 0; i < d->rows; i++)
            fx_store_floats512(&f, sums[i * d->panels + j], scale, offset, (float *)d->c[i] + at, mask);
    }
}

#endif
