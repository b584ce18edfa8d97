/* AVX-512's file, compiled with VNNI: VPDPWSSD multiplies and adds at once. */
#include "../x86/gemm_s16.c"
