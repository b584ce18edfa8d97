#include "flexnn/kernels.h"

#define fx_dwconv_u8_avx512_vnni fx_dwconv_u8_avx512
extern void fx_dwconv_u8_avx512(const fx_dw_u8 *d);
FX_BYTE_TABLE(14, 2, 0);
