/* More elementary functions of vectors, beside exp and log. Relative errors stay below 2e-6 where the result is a
 * normal number; NaN and the infinities come out as C's functions of one number have them. Polynomials of tanh:
 * Moshier, Cephes (single precision); of erf: Juffa, "Efficient faithfully-rounded erff()". */
#ifndef FLEXNN_VEC_MATH_H
#define FLEXNN_VEC_MATH_H

#include "exp.h"

FX_INLINE fx_v fx_abs(fx_v v) {
    return (fx_v)((fx_vi)v & 0x7fffffff);
}
FX_INLINE fx_v fx_with_sign(fx_v v, fx_v sign) {
    return (fx_v)(((fx_vi)v & 0x7fffffff) | ((fx_vi)sign & (int32_t)0x80000000));
}

/* ln(1 + u) for u >= 0: the rounding of 1 + u is undone (Kahan). */
FX_INLINE fx_v fx_log1p(fx_v u) {
    const fx_v w = u + 1, d = w - 1;
    return fx_select(d == 0, u, fx_log(w) * (u / d));
}

FX_INLINE fx_v fx_tanh(fx_v v) {
    const fx_v a = fx_abs(v), z = v * v;
    fx_v p = fx_splat(-5.70498872745e-3f);
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    const fx_v small = p * z * v + v;
    const fx_v large = fx_with_sign(1 - 2 / (fx_exp(a + a) + 1), v);
    return fx_select(a < 0.625f, small, large);
}

/* e^v - 1 = 2^n (e^r - 1) + 2^n - 1, by 2^(n - 1), so that what is below e^88.7 does not overflow. */
FX_INLINE fx_v fx_expm1(fx_v v) {
    const fx_exponent e = fx_exponent_of(fx_min(fx_splat(89), fx_max(fx_splat(-30), v)));
    const fx_v half = fx_from_bits((fx_exponent_bits(e.t) + 126u) << 23);
    return 2 * (half * (fx_exp_tail(e.r) * e.r * e.r + e.r) + (half - 0.5f));
}

FX_INLINE fx_v fx_erf(fx_v v) {
    const fx_v t = fx_min(fx_splat(4), fx_abs(v)), s = v * v, large_s = t * t;
    fx_v p = t * -1.72853470e-5f + 3.83197126e-4f;
    p = p * large_s + (t * -3.88396438e-3f + 2.42546219e-2f);
    p = p * t - 1.06777877e-1f;
    p = p * t - 6.34846687e-1f;
    p = p * t - 1.28717512e-1f;
    const fx_v large = fx_with_sign(1 - fx_exp_between(p * t - t), v);
    fx_v q = s * -5.96761703e-4f + 4.99119423e-3f;
    q = q * s - 2.67681349e-2f;
    q = q * s + 1.12819925e-1f;
    q = q * s - 3.76125336e-1f;
    q = q * s + 1.28379166e-1f;
    return fx_select(t > 0.927734375f, large, q * v + v);
}

/* v Phi(v), Phi the normal distribution: max(v, 0) - t Phi(-t) for t = |v|, and ln Phi(-t) = g(t) - t^2 / 2 with a
 * polynomial fitted to g on [0, 5.6]: Phi(-t) is right to 6e-8 of itself and 3e-9. Beyond, only t^2 / 2 matters. From
 * 13 on the product is 0: of numbers that are not normal each operation takes a hundred times as long, here and in what
 * reads them. */
FX_INLINE fx_v fx_gelu(fx_v v) {
    const fx_v t = fx_min(fx_splat(13), fx_abs(v)), s = fx_min(fx_splat(5.6f), t);
    fx_v g = s * -1.42891929e-6f + 2.08494275e-5f;
    g = g * s - 9.83371356e-5f;
    g = g * s - 1.69245235e-4f;
    g = g * s + 4.9931691e-3f;
    g = g * s - 3.64549048e-2f;
    g = g * s + 1.8172355e-1f;
    g = g * s - 7.9788816e-1f;
    g = g * s - 6.93147123e-1f;
    const fx_v below = t * fx_exp_between(g - 0.5f * t * t);
    return fx_max(fx_splat(0), v) - fx_if_negative(t - 13, below, fx_splat(0));
}

/* Results that are not normal numbers are 0. */
FX_INLINE fx_v fx_sigmoid(fx_v v) {
    const fx_v least = fx_splat(-87.3f);
    return fx_if_negative(v - least, fx_splat(0), 1 / (1 + fx_exp_between(fx_min(-least, -fx_min(-least, v)))));
}

#endif
