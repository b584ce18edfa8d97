/* The table of bytes of levels that multiply four of them at once; further arguments: what else a level has. */
#ifndef FLEXNN_NEON_DOT_BYTES_TABLE_H
#define FLEXNN_NEON_DOT_BYTES_TABLE_H

#include "flexnn/kernels.h"

#define FX_NEON_PROTOTYPE(name, ret, args) ret fx_##name##_neon args;
FX_BYTE_KERNELS(FX_NEON_PROTOTYPE)
#define FX_NEON_ENTRY(name, ret, args) .name = fx_##name##_neon,
#define FX_DOT_BYTE_TABLE(...)                                                                                         \
    const fx_byte_kernels FX_SYMBOL(byte_kernels) = {.rows = 8,                                                        \
                                                     .panels = 1,                                                      \
                                                     .row_bytes = 1,                                                   \
                                                     .dot_u8 = FX_SYMBOL(dot_u8),                                      \
                                                     .dwconv_u8 = fx_dwconv_u8_neon,                                   \
                                                     .lay_rows_u8 = FX_SYMBOL(lay_rows_u8),                            \
                                                     FX_BYTE_KERNELS_ROUNDED(FX_TABLE_ENTRY)                           \
                                                         FX_BYTE_KERNELS_DIGITS(FX_TABLE_ENTRY)                        \
                                                             FX_BYTE_KERNELS_ROWS(FX_NEON_ENTRY) __VA_ARGS__}

#endif
