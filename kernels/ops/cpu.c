#include "flexnn/cpu.h"

#if defined __x86_64__
#include <cpuid.h>

enum { SAVES_YMM = 0x6, SAVES_ZMM = 0xe6 }; /* bits of XCR0 */

static unsigned saved_registers(void) {
    unsigned low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

fx_x86_features fx_x86_features_here(void) {
    fx_x86_features f = {0};
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return f;
    f.sse42 = !!(c & bit_SSE4_2);
    f.pclmul = f.sse42 && (c & bit_PCLMUL);
    const unsigned saved = c & bit_OSXSAVE ? saved_registers() : 0;
    const int ymm = (saved & SAVES_YMM) == SAVES_YMM && (c & bit_AVX);
    const int fma = (c & bit_FMA) && (c & bit_F16C);
    if (!ymm || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
        return f;
    const unsigned wide = bit_AVX512F | bit_AVX512DQ | bit_AVX512VL | bit_AVX512BW;
    f.avx2 = fma && (b & bit_AVX2);
    f.avx512 = f.avx2 && (saved & SAVES_ZMM) == SAVES_ZMM && (b & wide) == wide;
    f.vnni = f.avx512 && (c & bit_AVX512VNNI);
    f.clflushopt = !!(b & bit_CLFLUSHOPT);
    f.vpclmulqdq = f.avx512 && f.pclmul && (c & bit_VPCLMULQDQ);
    return f;
}
#endif
