/* CRC32C by instructions. Folding: V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
 * Instruction", Intel, 2009: 128 bits of the message, times x^d, are congruent to the sum of two 64-bit carry-less
 * products with powers of x, which is added to the 128 bits that come d bits later. What is left at the end is a short
 * message of the same remainder. */
#include "crc32c_cpu.h"
#include "crc32c_powers.h"
#include "flexnn/cpu.h"

#include <string.h>

#if defined __x86_64__
#include <immintrin.h>
#if defined __clang__ /* has the instruction as a feature of its own beside SSE 4.2; gcc 10 does not know the name */
#define CRC32 ",crc32"
#else
#define CRC32 ""
#endif
#define CRC_TARGET __attribute__((target("sse4.2" CRC32)))
#define FOLD_TARGET __attribute__((target("avx,pclmul" CRC32)))
#define WIDE_TARGET __attribute__((target("avx512f,pclmul,vpclmulqdq" CRC32)))
#define crc_u64(s, v) _mm_crc32_u64(s, v)
typedef uint64_t crc_sum; /* as wide as the instruction's result, which saves moves */
#define crc_u8(s, v) _mm_crc32_u8(s, v)

fx_crc_path fx_crc_cpu_best(void) {
    const fx_x86_features cpu = fx_x86_features_here();
    if (!cpu.pclmul)
        return cpu.sse42 ? FX_CRC_INSTRUCTION : FX_CRC_TABLE;
    return cpu.vpclmulqdq ? FX_CRC_FOLD_WIDE : cpu.avx2 ? FX_CRC_FOLD : FX_CRC_INSTRUCTION;
}

typedef __m128i bits128;
#define xor128(a, b) _mm_xor_si128(a, b)
#define load128(p) _mm_loadu_si128((const __m128i *)(const void *)(p))
#define store128(p, a) _mm_storeu_si128((__m128i *)(void *)(p), a)
#define pair128(first, second) _mm_set_epi64x((int64_t)(second), (int64_t)(first))
#define product_first(a, b) _mm_clmulepi64_si128(a, b, 0x00)
#define product_second(a, b) _mm_clmulepi64_si128(a, b, 0x11)
#define low64(a) ((uint64_t)_mm_cvtsi128_si64(a))

#elif defined __aarch64__
#include <arm_acle.h>
#include <arm_neon.h>
#include <sys/auxv.h>
#define CRC_TARGET __attribute__((target("+crc")))
#define FOLD_TARGET __attribute__((target("+crc+crypto")))
#define crc_u64(s, v) __crc32cd(s, v)
typedef uint32_t crc_sum;
#define crc_u8(s, v) __crc32cb(s, v)

fx_crc_path fx_crc_cpu_best(void) {
    const unsigned long pmull = 1 << 4, crc32 = 1 << 7; /* HWCAP_PMULL, HWCAP_CRC32 */
    unsigned long has = getauxval(AT_HWCAP);
    return !(has & crc32) ? FX_CRC_TABLE : has & pmull ? FX_CRC_FOLD : FX_CRC_INSTRUCTION;
}

typedef uint64x2_t bits128;
#define xor128(a, b) veorq_u64(a, b)
#define load128(p) vreinterpretq_u64_u8(vld1q_u8(p))
#define store128(p, a) vst1q_u8(p, vreinterpretq_u8_u64(a))
#define pair128(first, second) vcombine_u64(vcreate_u64(first), vcreate_u64(second))
#define product_first(a, b)                                                                                            \
    vreinterpretq_u64_p128(vmull_p64((poly64_t)vgetq_lane_u64(a, 0), (poly64_t)vgetq_lane_u64(b, 0)))
#define product_second(a, b) vreinterpretq_u64_p128(vmull_high_p64(vreinterpretq_p64_u64(a), vreinterpretq_p64_u64(b)))
#define low64(a) vgetq_lane_u64(a, 0)
#endif

#ifdef FX_CRC_CPU
static uint64_t word(const unsigned char *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

CRC_TARGET static uint32_t by_words(uint32_t s, const unsigned char *p, size_t n) {
    crc_sum sum = s;
    for (; n >= 8; n -= 8, p += 8)
        sum = crc_u64(sum, word(p));
    s = (uint32_t)sum;
    for (; n; n--)
        s = crc_u8(s, *p++);
    return s;
}

/* a * b modulo the polynomial. */
static uint32_t multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (int i = 0; i < 32; i++) {
        product ^= b & -(a >> 31);
        a <<= 1;
        b = b >> 1 ^ (FX_CRC_POLYNOMIAL & -(b & 1));
    }
    return product;
}

/* The instruction starts every cycle but its result takes three cycles, so three streams run at once. */
CRC_TARGET static uint32_t by_instruction(uint32_t s, const unsigned char *p, size_t n) {
    enum { STREAM = FX_CRC_STREAM };
    for (; n >= 3 * STREAM; n -= 3 * STREAM, p += 3 * STREAM) {
        crc_sum s0 = s, s1 = 0, s2 = 0;
        for (size_t i = 0; i < STREAM; i += 8) {
            s0 = crc_u64(s0, word(p + i));
            s1 = crc_u64(s1, word(p + STREAM + i));
            s2 = crc_u64(s2, word(p + 2 * STREAM + i));
        }
        s = multiply((uint32_t)s0, FX_CRC_PAST_STREAM) ^ (uint32_t)s1;
        s = multiply(s, FX_CRC_PAST_STREAM) ^ (uint32_t)s2;
    }
    return by_words(s, p, n);
}

FOLD_TARGET static inline bits128 powers(uint32_t first, uint32_t second) {
    return pair128((uint64_t)first << 32, (uint64_t)second << 32);
}

/* Multiplies a by the powers of x that move it to the position of next, and adds next. */
FOLD_TARGET static inline bits128 fold(bits128 a, bits128 by, bits128 next) {
    return xor128(xor128(product_first(a, by), product_second(a, by)), next);
}

/* n is at least 64. Takes whole blocks of 64 bytes and leaves the rest to the caller. */
FOLD_TARGET static uint32_t fold_64s(uint32_t s, const unsigned char *p, size_t n) {
    const bits128 by = powers(FX_CRC_FOLD_512_FIRST, FX_CRC_FOLD_512_SECOND);
    bits128 a0 = xor128(load128(p), pair128(s, 0));
    bits128 a1 = load128(p + 16), a2 = load128(p + 32), a3 = load128(p + 48);
    for (p += 64, n -= 64; n >= 64; p += 64, n -= 64) {
        a0 = fold(a0, by, load128(p));
        a1 = fold(a1, by, load128(p + 16));
        a2 = fold(a2, by, load128(p + 32));
        a3 = fold(a3, by, load128(p + 48));
    }
    unsigned char left[64];
    store128(left, a0);
    store128(left + 16, a1);
    store128(left + 32, a2);
    store128(left + 48, a3);
    return by_words(0, left, 64);
}

FOLD_TARGET static inline uint32_t past(uint32_t s, uint32_t power) {
    return (uint32_t)crc_u64(0, low64(product_first(pair128(s, 0), pair128(power, 0))));
}

/* Carry-less products and the CRC instruction use different execution units, so both run at once. */
FOLD_TARGET static uint32_t by_folds(uint32_t s, const unsigned char *p, size_t n) {
    enum { FOLDED = 64 * FX_CRC_ROUNDS, STREAM = 24 * FX_CRC_ROUNDS, BLOCK = FOLDED + 3 * STREAM };
    const bits128 by = powers(FX_CRC_FOLD_512_FIRST, FX_CRC_FOLD_512_SECOND);
    for (; n >= BLOCK; n -= BLOCK) {
        const unsigned char *q = p + FOLDED, *end = q;
        crc_sum s1 = 0, s2 = 0, s3 = 0;
        bits128 a0 = xor128(load128(p), pair128(s, 0));
        bits128 a1 = load128(p + 16), a2 = load128(p + 32), a3 = load128(p + 48);
        for (;;) {
#pragma GCC unroll 3
            for (int i = 0; i < 24; i += 8) {
                s1 = crc_u64(s1, word(q + i));
                s2 = crc_u64(s2, word(q + STREAM + i));
                s3 = crc_u64(s3, word(q + 2 * STREAM + i));
            }
            q += 24;
            p += 64;
            if (p == end)
                break;
            a0 = fold(a0, by, load128(p));
            a1 = fold(a1, by, load128(p + 16));
            a2 = fold(a2, by, load128(p + 32));
            a3 = fold(a3, by, load128(p + 48));
        }
        unsigned char left[64];
        store128(left, a0);
        store128(left + 16, a1);
        store128(left + 32, a2);
        store128(left + 48, a3);
        s = past(by_words(0, left, 64), FX_CRC_PAST_3) ^ past((uint32_t)s1, FX_CRC_PAST_2) ^
            past((uint32_t)s2, FX_CRC_PAST_1) ^ (uint32_t)s3;
        p += 3 * STREAM;
    }
    if (n >= 64) {
        s = fold_64s(s, p, n);
        p += n & ~(size_t)63;
        n &= 63;
    }
    return by_words(s, p, n);
}

#ifdef WIDE_TARGET
WIDE_TARGET static inline __m512i wide_powers(uint32_t first, uint32_t second) {
    return _mm512_broadcast_i32x4(powers(first, second));
}

WIDE_TARGET static inline __m512i wide_fold(__m512i a, __m512i by, __m512i next) {
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(a, by, 0x00), _mm512_clmulepi64_epi128(a, by, 0x11), next,
                                     0x96 /* the sum of the three */);
}

/* Four vectors of the message, each 512 bits behind the one before, as 64 bytes of the same remainder. */
WIDE_TARGET static inline __m512i wide_sum(__m512i a0, __m512i a1, __m512i a2, __m512i a3) {
    const __m512i near = wide_powers(FX_CRC_FOLD_512_FIRST, FX_CRC_FOLD_512_SECOND);
    return wide_fold(wide_fold(wide_fold(a0, near, a1), near, a2), near, a3);
}

WIDE_TARGET static inline uint32_t wide_left(__m512i a) {
    unsigned char left[64];
    _mm512_storeu_si512(left, a);
    return by_words(0, left, 64);
}

/* A block as in by_folds: 15 instructions of the CRC in the time of the products of 256 bytes. */
WIDE_TARGET static uint32_t wide_block(uint32_t s, const unsigned char *p) {
    enum { STREAM = 40 * FX_CRC_WIDE_ROUNDS };
    const __m512i far = wide_powers(FX_CRC_FOLD_2048_FIRST, FX_CRC_FOLD_2048_SECOND);
    const unsigned char *q = p + 256 * FX_CRC_WIDE_ROUNDS, *end = q;
    crc_sum s1 = 0, s2 = 0, s3 = 0;
    __m512i a0 = _mm512_xor_si512(_mm512_loadu_si512(p), _mm512_zextsi128_si512(pair128(s, 0)));
    __m512i a1 = _mm512_loadu_si512(p + 64), a2 = _mm512_loadu_si512(p + 128), a3 = _mm512_loadu_si512(p + 192);
    for (;;) {
#pragma GCC unroll 5
        for (int i = 0; i < 40; i += 8) {
            s1 = crc_u64(s1, word(q + i));
            s2 = crc_u64(s2, word(q + STREAM + i));
            s3 = crc_u64(s3, word(q + 2 * STREAM + i));
        }
        q += 40;
        p += 256;
        if (p == end)
            break;
        a0 = wide_fold(a0, far, _mm512_loadu_si512(p));
        a1 = wide_fold(a1, far, _mm512_loadu_si512(p + 64));
        a2 = wide_fold(a2, far, _mm512_loadu_si512(p + 128));
        a3 = wide_fold(a3, far, _mm512_loadu_si512(p + 192));
    }
    return past(wide_left(wide_sum(a0, a1, a2, a3)), FX_CRC_WIDE_PAST_3) ^ past((uint32_t)s1, FX_CRC_WIDE_PAST_2) ^
           past((uint32_t)s2, FX_CRC_WIDE_PAST_1) ^ (uint32_t)s3;
}

WIDE_TARGET static uint32_t by_wide_folds(uint32_t s, const unsigned char *p, size_t n) {
    enum { BLOCK = (256 + 3 * 40) * FX_CRC_WIDE_ROUNDS };
    for (; n >= BLOCK; n -= BLOCK, p += BLOCK)
        s = wide_block(s, p);
    if (n >= 256) {
        const __m512i far = wide_powers(FX_CRC_FOLD_2048_FIRST, FX_CRC_FOLD_2048_SECOND);
        const __m512i near = wide_powers(FX_CRC_FOLD_512_FIRST, FX_CRC_FOLD_512_SECOND);
        __m512i a0 = _mm512_xor_si512(_mm512_loadu_si512(p), _mm512_zextsi128_si512(pair128(s, 0)));
        __m512i a1 = _mm512_loadu_si512(p + 64), a2 = _mm512_loadu_si512(p + 128), a3 = _mm512_loadu_si512(p + 192);
        for (p += 256, n -= 256; n >= 256; p += 256, n -= 256) {
            a0 = wide_fold(a0, far, _mm512_loadu_si512(p));
            a1 = wide_fold(a1, far, _mm512_loadu_si512(p + 64));
            a2 = wide_fold(a2, far, _mm512_loadu_si512(p + 128));
            a3 = wide_fold(a3, far, _mm512_loadu_si512(p + 192));
        }
        a3 = wide_sum(a0, a1, a2, a3);
        for (; n >= 64; p += 64, n -= 64)
            a3 = wide_fold(a3, near, _mm512_loadu_si512(p));
        s = wide_left(a3);
    }
    return by_folds(s, p, n);
}
#endif

uint32_t fx_crc_cpu(fx_crc_path path, uint32_t s, const unsigned char *p, size_t n) {
#ifdef WIDE_TARGET
    if (path == FX_CRC_FOLD_WIDE)
        return by_wide_folds(s, p, n);
#endif
    return path == FX_CRC_INSTRUCTION ? by_instruction(s, p, n) : by_folds(s, p, n);
}
#endif
