/* The sizes of tiles: gemm.c and gemm_s16.c have a function for each number of rows and panels. */
#ifndef FLEXNN_X86_TILES_H
#define FLEXNN_X86_TILES_H

#define SIX(f, P) f(1, P) f(2, P) f(3, P) f(4, P) f(5, P) f(6, P)
#if FX_ISA_AVX512
#define FOURTEEN(f, P) SIX(f, P) f(7, P) f(8, P) f(9, P) f(10, P) f(11, P) f(12, P) f(13, P) f(14, P)
#define WIDEST_TILES(f) FOURTEEN(f, 2)
#define EVERY_TILE(f) FOURTEEN(f, 1) WIDEST_TILES(f)
#else
#define WIDEST_TILES(f) SIX(f, 1)
#define EVERY_TILE(f) WIDEST_TILES(f)
#endif

/* Every tile of a kind, by panels and rows. */
#define NAMES6(f, P) f##_1x##P, f##_2x##P, f##_3x##P, f##_4x##P, f##_5x##P, f##_6x##P
#if FX_ISA_AVX512
#define MR 14
#define MOST_PANELS 2
#define NAMES14(f, P)                                                                                                  \
    NAMES6(f, P), f##_7x##P, f##_8x##P, f##_9x##P, f##_10x##P, f##_11x##P, f##_12x##P, f##_13x##P, f##_14x##P
#define WIDEST_NAMES(f) NAMES14(f, 2)
#define NAMES(f)                                                                                                       \
    {                                                                                                                  \
        {NAMES14(f, 1)}, {                                                                                             \
            NAMES14(f, 2)                                                                                              \
        }                                                                                                              \
    }
#else
#define MR 6
#define MOST_PANELS 1
#define WIDEST_NAMES(f) NAMES6(f, 1)
#define NAMES(f)                                                                                                       \
    {                                                                                                                  \
        {                                                                                                              \
            NAMES6(f, 1)                                                                                               \
        }                                                                                                              \
    }
#endif

#endif
