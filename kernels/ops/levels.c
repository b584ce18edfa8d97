/* Which instruction-set levels this build has and this CPU runs; FLEXNN_ISA forces one. */
#include "flexnn/cpu.h"
#include "flexnn/kernels.h"
#include "flexnn/ops.h"

#include <stdlib.h>
#include <string.h>
#ifdef __aarch64__
#include <sys/auxv.h>
#ifndef HWCAP_CPUID
#define HWCAP_CPUID (1 << 11) /* a C library older than Linux 4.11 lacks it */
#endif
#endif

extern const fx_kernels fx_kernels_scalar;

#if defined FX_SCALAR_ONLY /* for fuzzing, where building takes longer than running */
#elif defined __x86_64__
#define HAS_X86
extern const fx_kernels fx_kernels_avx2, fx_kernels_avx512, fx_kernels_avx512_vnni;
#endif
#if (defined __aarch64__ && !defined FX_SCALAR_ONLY) || defined FX_SIMDE /* NEON on another CPU: for tests only */
#define HAS_NEON
extern const fx_kernels fx_kernels_neon, fx_kernels_neon_inorder;
#ifdef __aarch64__
#define HAS_NEON_DOT
extern const fx_kernels fx_kernels_neon_dot, fx_kernels_neon_fp16, fx_kernels_neon_inorder_fp16, fx_kernels_neon_i8mm;
#ifndef HWCAP_ASIMDDP
#define HWCAP_ASIMDDP (1 << 20)
#endif
#ifndef HWCAP_ASIMDHP
#define HWCAP_ASIMDHP (1 << 10)
#endif
#ifndef HWCAP2_I8MM
#define HWCAP2_I8MM (1 << 13)
#endif
static int has_dot(void) {
    return !!(getauxval(AT_HWCAP) & HWCAP_ASIMDDP);
}
static int has_fp16(void) {
    return !!(getauxval(AT_HWCAP) & HWCAP_ASIMDHP);
}
/* Each level has what the one before has, as cores do. */
static int has_dot_and_fp16(void) {
    return has_dot() && has_fp16();
}
static int has_i8mm(void) {
    return has_dot_and_fp16() && (getauxval(AT_HWCAP2) & HWCAP2_I8MM);
}
#endif
#endif

static const fx_kernels *named(const char *level) {
    if (!strcmp(level, "scalar"))
        return &fx_kernels_scalar;
#ifdef HAS_X86
    if (!strcmp(level, "avx2"))
        return fx_x86_features_here().avx2 ? &fx_kernels_avx2 : NULL;
    if (!strcmp(level, "avx512"))
        return fx_x86_features_here().avx512 ? &fx_kernels_avx512 : NULL;
    if (!strcmp(level, "avx512_vnni"))
        return fx_x86_features_here().vnni ? &fx_kernels_avx512_vnni : NULL;
#endif
#ifdef HAS_NEON
    if (!strcmp(level, "neon")) /* every Armv8-A has it */
        return &fx_kernels_neon;
    if (!strcmp(level, "neon_inorder"))
        return &fx_kernels_neon_inorder;
#endif
#ifdef HAS_NEON_DOT
    if (!strcmp(level, "neon_dot"))
        return has_dot() ? &fx_kernels_neon_dot : NULL;
    if (!strcmp(level, "neon_fp16"))
        return has_dot_and_fp16() ? &fx_kernels_neon_fp16 : NULL;
    if (!strcmp(level, "neon_inorder_fp16"))
        return has_dot_and_fp16() ? &fx_kernels_neon_inorder_fp16 : NULL;
    if (!strcmp(level, "neon_i8mm"))
        return has_i8mm() ? &fx_kernels_neon_i8mm : NULL;
#endif
    return NULL;
}

#if defined __aarch64__ && defined HAS_NEON
/* On big.LITTLE the little cores run the tiles of the big ones. */
static const fx_kernels *tiles_here(void) {
    int in_order = fx_cores_are_in_order(FX_CORES_ROOT);
    if (in_order < 0 && getauxval(AT_HWCAP) & HWCAP_CPUID) { /* the system then answers for the core it runs on */
        uint64_t midr;
        __asm__("mrs %0, midr_el1" : "=r"(midr));
        in_order = fx_core_is_in_order(midr);
    }
    if (in_order > 0)
        return has_dot_and_fp16() ? &fx_kernels_neon_inorder_fp16 : &fx_kernels_neon_inorder;
    return has_i8mm()           ? &fx_kernels_neon_i8mm
           : has_dot_and_fp16() ? &fx_kernels_neon_fp16
           : has_dot()          ? &fx_kernels_neon_dot
                                : &fx_kernels_neon;
}
#endif

static const fx_kernels *best(void) {
#if defined HAS_X86
    const fx_x86_features f = fx_x86_features_here();
    return f.vnni     ? &fx_kernels_avx512_vnni
           : f.avx512 ? &fx_kernels_avx512
           : f.avx2   ? &fx_kernels_avx2
                      : &fx_kernels_scalar;
#elif defined __aarch64__ && defined HAS_NEON
    return tiles_here();
#else
    return &fx_kernels_scalar;
#endif
}

const fx_kernels *fx_kernels_for(const char *level) {
    if (!level)
        level = getenv("FLEXNN_ISA");
    return level && *level ? named(level) : best();
}

int fx_kernels_add_halves(const fx_kernels *k) {
    return k->halves;
}

const char *fx_kernels_level(const fx_kernels *k) {
    return k->level;
}
