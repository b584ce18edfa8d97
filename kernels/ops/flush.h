/* Numbers below FLT_MIN count as 0 while sums of products are computed. x86 takes about 150 cycles for an instruction
 * that meets one, and trained weights decay to them: most of PP-OCRv6's time went there. */
#ifndef FLEXNN_OPS_FLUSH_H
#define FLEXNN_OPS_FLUSH_H

#include <stdint.h>

#if defined __x86_64__
#include <xmmintrin.h>
#define FX_FLUSH_BITS 0x8040u /* results to zero, operands as zeros */
static inline uint64_t fx_float_mode(void) {
    return _mm_getcsr();
}
static inline void fx_set_float_mode(uint64_t mode) {
    _mm_setcsr((unsigned)mode);
}
#elif defined __aarch64__
#define FX_FLUSH_BITS (UINT64_C(1) << 24)
static inline uint64_t fx_float_mode(void) {
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
}
static inline void fx_set_float_mode(uint64_t mode) {
    __asm__ volatile("msr fpcr, %0" : : "r"(mode));
}
#else
#define FX_FLUSH_BITS 0u
static inline uint64_t fx_float_mode(void) {
    return 0;
}
static inline void fx_set_float_mode(uint64_t mode) {
    (void)mode;
}
#endif

#endif
