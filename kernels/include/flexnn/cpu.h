/* What an x86 CPU and the system under it can run. Asked of cpuid itself: __builtin_cpu_supports leans on a part of the
 * compiler's run-time library that cannot be linked into a shared object with every linker. */
#ifndef FLEXNN_CPU_H
#define FLEXNN_CPU_H

#if defined __x86_64__
typedef struct fx_x86_features {
    unsigned sse42 : 1;
    unsigned pclmul : 1;
    unsigned avx2 : 1;       /* with FMA and F16C */
    unsigned avx512 : 1;     /* F, DQ, VL and BW */
    unsigned vpclmulqdq : 1; /* on 512 bits */
} fx_x86_features;

/* A level is there only if the system saves its registers. */
fx_x86_features fx_x86_features_here(void);
#endif

#endif
