/* Integers of 5 and 6 bits as vectors of floats, and scales and minima that share a factor (weight_form.h). */
#ifndef FLEXNN_VEC_PACKED_H
#define FLEXNN_VEC_PACKED_H

#include "flexnn/weight_form.h"
#include "simd.h"

#define VECTORS (FX_NR / FX_WIDTH)                  /* of a panel */
#define GROUP_BYTES (FX_NR * (int)sizeof(uint32_t)) /* of the lower bits, and of the upper bits that groups share */

/* The upper bits of groups, each moved `shift` to the end. */
FX_INLINE void load_upper(fx_vw *to, const unsigned char *from, const int shift) {
    FX_UNROLL for (int j = 0; j < VECTORS; j++) to[j] = fx_bits(fx_load((const float *)from + j * FX_WIDTH)) >> shift;
}

/* Weight i of a group as a float. Its upper bits are bits 4 i + shift and above; with has_sign the highest one is one.
 */
FX_INLINE fx_v fx_packed(fx_vw low, fx_vw upper, const int i, const int shift, const int bits, const int has_sign) {
    const int u = bits - 4;
#if FX_ISA_AVX512 /* tables, as for 4 bits: here of the upper bits, whatever is above them */
    const fx_v one = _mm512_set_ps(16, 0, 16, 0, 16, 0, 16, 0, 16, 0, 16, 0, 16, 0, 16, 0);
    const fx_v two = _mm512_set_ps(48, 32, 16, 0, 48, 32, 16, 0, 48, 32, 16, 0, 48, 32, 16, 0);
    const fx_v sign = _mm512_set_ps(-16, -32, 16, 0, -16, -32, 16, 0, -16, -32, 16, 0, -16, -32, 16, 0);
    const fx_v table = u == 1 ? (has_sign ? -one : one) : has_sign ? sign : two;
    return fx_nibble(low, i, 0) + _mm512_permutexvar_ps((__m512i)(upper >> (4 * i + shift)), table);
#else
    const uint32_t half = has_sign ? 1u << (bits - 1) : 0;
    const fx_vw whole = (low >> 4 * i & 15) | (upper >> (4 * i + shift) & ((1u << u) - 1)) << 4;
    return __builtin_convertvector((fx_vi)((whole ^ half) - half), fx_v);
#endif
}

/* Weight i of the group at `from`; as above. */
FX_INLINE void load_packed(fx_v *to, const unsigned char *from, const fx_vw *upper, const int i, const int shift,
                           const int wtype) {
    const fx_weight_form form = fx_weight_forms[wtype];
    FX_UNROLL for (int j = 0; j < VECTORS; j++) to[j] =
        fx_packed(fx_bits(fx_load((const float *)from + j * FX_WIDTH)), upper[j], i, shift, form.bits, !form.minimum);
}

/* Scales and minima of block `at` of those that share factors. */
FX_INLINE void load_shared(fx_v *scales, fx_v *minima, const unsigned char *from, const int at, const int wtype) {
    fx_v factor[VECTORS];
    fx_load_f16(factor, from);
    if (!fx_weight_forms[wtype].minimum) {
        fx_load_s8(scales, from + (2 + at) * FX_NR);
        FX_UNROLL for (int j = 0; j < VECTORS; j++) scales[j] *= factor[j];
        return;
    }
    fx_v least[VECTORS];
    fx_load_f16(least, from + 2 * FX_NR);
    const float *whole = (const float *)(from + 4 * FX_NR);
    FX_UNROLL for (int j = 0; j < VECTORS; j++) {
        const fx_vw upper = fx_bits(fx_load(whole + 2 * FX_NR + j * FX_WIDTH)) >> 4 * at;
        const fx_vw scale = fx_bits(fx_load(whole + j * FX_WIDTH)) >> 4 * at;
        const fx_vw minimum = fx_bits(fx_load(whole + FX_NR + j * FX_WIDTH)) >> 4 * at;
        scales[j] = factor[j] * __builtin_convertvector((fx_vi)((scale & 15) | (upper << 4 & 48)), fx_v);
        minima[j] = -least[j] * __builtin_convertvector((fx_vi)((minimum & 15) | (upper << 2 & 48)), fx_v);
    }
}

#endif
