/* The CPU, and the instruction sets that it and the system support. */
#ifndef FLEXNN_CPU_H
#define FLEXNN_CPU_H

#include <stdint.h>

/* The folder in which Linux shows each core. */
#define FX_CORES_ROOT "/sys/devices/system/cpu"
#define FX_CORES_MAX 256

/* 1 if MIDR_EL1 names a core that executes in order and loads 64 bits at a time: Cortex-A35, A53, A55 and their
 * derivatives. */
int fx_core_is_in_order(uint64_t midr);

/* 1 if all cores below root (FX_CORES_ROOT) execute in order; 0 if one does not; -1 if no core shows its MIDR_EL1. */
int fx_cores_are_in_order(const char *root);

#if defined __x86_64__
/* Read from cpuid itself: __builtin_cpu_supports needs a part of the compiler's run-time library that not every linker
 * can link into a shared object. */
typedef struct fx_x86_features {
    unsigned sse42 : 1;
    unsigned pclmul : 1;
    unsigned avx2 : 1;       /* with FMA and F16C */
    unsigned avx512 : 1;     /* F, DQ, VL and BW */
    unsigned vnni : 1;       /* on 512 bits */
    unsigned vpclmulqdq : 1; /* on 512 bits */
    unsigned clflushopt : 1;
} fx_x86_features;

/* Features count only if the system saves their registers. */
fx_x86_features fx_x86_features_here(void);
#endif

#endif
