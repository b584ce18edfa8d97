/* exp and log of a vector of floats. */
#ifndef FLEXNN_VEC_EXP_H
#define FLEXNN_VEC_EXP_H

#include "simd.h"

#define FX_WHOLE 12582912.0f /* 1.5 * 2^23: adding it rounds to an integer */

/* x = n ln 2 + r, |r| <= ln 2 / 2, after Cody and Waite: ln 2 in two parts so that n ln 2 is exact. */
typedef struct fx_exponent {
    fx_v t, n, r; /* t: n + FX_WHOLE */
} fx_exponent;

FX_INLINE fx_exponent fx_exponent_of(fx_v x) {
    const fx_v t = x * 1.44269504088896341f + FX_WHOLE, n = t - FX_WHOLE;
    return (fx_exponent){t, n, (x - n * 0.693359375f) - n * -2.12194440e-4f};
}

/* n as an integer. */
FX_INLINE fx_vw fx_exponent_bits(fx_v t) {
    return fx_bits(t) - 0x4b400000u;
}

/* (e^r - 1 - r) / r^2: of a polynomial of degree 6 for e^r (least largest relative error, 2e-9, fitted with both first
 * coefficients 1). */
FX_INLINE fx_v fx_exp_tail(fx_v r) {
    fx_v p = r * 1.38436072e-3f + 8.37419555e-3f;
    p = p * r + 4.16680053e-2f;
    p = p * r + 1.66664302e-1f;
    return p * r + 0.49999994f;
}

/* e^x to 2 ulp for x in [-104, 89]; 2^n in two factors, so that neither overflows and denormal results come out right.
 * A NaN stays one. */
FX_INLINE fx_v fx_exp_between(fx_v x) {
    const fx_exponent e = fx_exponent_of(x);
    fx_v p = fx_exp_tail(e.r);
    p = p * e.r + 1.0f;
    p = p * e.r + 1.0f;
#if FX_ISA_AVX512
    return _mm512_scalef_ps(p, e.n);
#else
    const fx_vw whole = fx_exponent_bits(e.t), half = (fx_vw)((fx_vi)whole >> 1);
    const fx_v a = fx_from_bits((half + 127u) << 23), b = fx_from_bits((whole - half + 127u) << 23);
    return p * a * b;
#endif
}

/* For x <= 89, where results that are not normal numbers may be 0. */
FX_INLINE fx_v fx_exp_below(fx_v x) {
    const float least = -87.3f;
    return fx_if_negative(x - least, fx_splat(0), fx_exp_between(fx_max(fx_splat(least), x)));
}
/* For every x. What is 0 is computed from another number: results that are not normal take thirty times as long. */
FX_INLINE fx_v fx_exp(fx_v x) {
    const fx_v above = x + 104.0f, inside = fx_if_negative(above, fx_splat(0), fx_min(fx_splat(89.0f), x));
    return fx_if_negative(above, fx_splat(0), fx_exp_between(inside));
}

/* ln x to 2 ulp, x = 2^e m with m in [sqrt(1/2), sqrt(2)); the polynomial is that of Moshier's Cephes logf. Zero gives
 * -inf, a negative number NaN; denormals are scaled up first. */
FX_INLINE fx_v fx_log(fx_v x) {
    const fx_vi is_small = x < 1.17549435e-38f;
    const fx_v scaled = fx_select(is_small, x * 8388608.0f, x);
    const fx_vw bits = fx_bits(scaled);
    /* Exponent of m * sqrt(2), so that m lands in the range. */
    const fx_vi e = (fx_vi)(bits - 0x3f3504f3u) >> 23;
    const fx_v m = fx_from_bits(bits - ((fx_vw)e << 23)) - 1.0f;
    const fx_v n = __builtin_convertvector(e - (is_small & 23), fx_v);
    fx_v p = m * 7.0376836292e-2f - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    const fx_v square = m * m;
    fx_v y = p * m * square + n * -2.12194440e-4f - 0.5f * square;
    y = m + y + n * 0.693359375f;
    y = fx_select(x == 0.0f, fx_splat(-__builtin_inff()), y);
    y = fx_select(x < 0.0f, fx_splat(__builtin_nanf("")), y);
    return fx_select((x == __builtin_inff()) | (x != x), x, y);
}

#endif
