/* The micro kernels: one list. Each line declares a kernel's signature once; from it come the table's members, the
 * prototypes of every level's version, and the check program's walk over all of them.
 *
 * Grammar of names: <what>_<type>[_<shape>]; the level is the folder (scalar, neon, vec) and the symbol's suffix:
 * gemm_f32 of AVX-512 is fx_gemm_f32_avx512. The scalar one is the definition; every other may differ by rounding. */
#ifndef FLEXNN_KERNELS_H
#define FLEXNN_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "flexnn/params.h"

/* Panel width of packed weights, for every level (docs/decisions/0001): AVX-512 computes two panels at once, NEON a
 * panel as four vectors. */
#define FX_NR 16

/* Convolution: gemm, Winograd transforms, depthwise. */
#define FX_KERNELS_CONV(X)

/* Rows: elementwise, pooling, softmax, reductions. */
#define FX_KERNELS_ROWS(X)

#define FX_KERNELS(X) FX_KERNELS_CONV(X) FX_KERNELS_ROWS(X)

/* X(name, return type, arguments in parentheses) */
typedef struct fx_kernels {
    const char *level;
    int32_t width; /* floats per vector */
    int32_t mr;    /* rows of the gemm tile */
#define FX_TABLE_MEMBER(name, ret, args) ret(*name) args;
    FX_KERNELS(FX_TABLE_MEMBER)
#undef FX_TABLE_MEMBER
} fx_kernels;

#define FX_LEVELS(Y) Y(scalar) Y(neon) Y(avx2) Y(avx512)

#endif
