/* Which instruction-set levels this build has and this CPU runs; FLEXNN_ISA forces one. */
#include "flexnn/cpu.h"
#include "flexnn/kernels.h"
#include "flexnn/ops.h"

#include <stdlib.h>
#include <string.h>

extern const fx_kernels fx_kernels_scalar;

#if defined __x86_64__
extern const fx_kernels fx_kernels_avx2, fx_kernels_avx512;
#elif defined __aarch64__
extern const fx_kernels fx_kernels_neon;
#endif

static const fx_kernels *named(const char *level) {
    if (!strcmp(level, "scalar"))
        return &fx_kernels_scalar;
#if defined __x86_64__
    if (!strcmp(level, "avx2"))
        return fx_x86_features_here().avx2 ? &fx_kernels_avx2 : NULL;
    if (!strcmp(level, "avx512"))
        return fx_x86_features_here().avx512 ? &fx_kernels_avx512 : NULL;
#elif defined __aarch64__
    if (!strcmp(level, "neon")) /* every Armv8-A has it */
        return &fx_kernels_neon;
#endif
    return NULL;
}

const fx_kernels *fx_kernels_for(const char *level) {
    static const char *const best_first[] = {"avx512", "avx2", "neon", "scalar"};
    if (!level)
        level = getenv("FLEXNN_ISA");
    if (level && *level)
        return named(level);
    for (size_t i = 0; i < sizeof best_first / sizeof *best_first; i++) {
        const fx_kernels *k = named(best_first[i]);
        if (k)
            return k;
    }
    return NULL;
}

const char *fx_kernels_level(const fx_kernels *k) {
    return k->level;
}
