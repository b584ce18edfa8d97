/* IEEE 754 binary16 in C without _Float16, which not every compiler has. */
#ifndef FLEXNN_HALF_H
#define FLEXNN_HALF_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Nearest, ties to even; one rounding, from double. */
static inline uint16_t fx_half_from(double v) {
    const uint16_t sign = signbit(v) ? 0x8000 : 0;
    const double a = fabs(v);
    if (isnan(v))
        return sign | 0x7e00;
    if (a >= 65520) /* half way between the largest number and what would be the next */
        return sign | 0x7c00;
    if (a < 0x1p-14) /* subnormal: multiples of 2^-24; 1024 of them are encoded as the smallest normal number */
        return sign | (uint16_t)nearbyint(a * 0x1p24);
    uint64_t bits;
    memcpy(&bits, &a, sizeof bits);
    const int exponent = (int)(bits >> 52) - 1023;
    const uint64_t to_units = (uint64_t)(1023 + 10 - exponent) << 52;
    double scale;
    memcpy(&scale, &to_units, sizeof scale);
    /* 1024 .. 2048 units; 2048 carries into the exponent. */
    return sign | (uint16_t)(((exponent + 14) << 10) + (int)nearbyint(a * scale));
}

static inline double fx_half_to(uint16_t h) {
    const int exponent = h >> 10 & 31, fraction = h & 0x3ff;
    double a;
    if (exponent == 31)
        a = fraction ? NAN : INFINITY;
    else if (exponent == 0)
        a = fraction * 0x1p-24;
    else
        a = ldexp(1024 + fraction, exponent - 25);
    return h & 0x8000 ? -a : a;
}

#endif
