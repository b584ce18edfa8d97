/* CRC32C as in iSCSI (RFC 3720, appendix B.4). */
#ifndef FLEXNN_ENGINE_CRC32C_H
#define FLEXNN_ENGINE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Ways to compute it, each faster than those before it. */
typedef enum fx_crc_path {
    FX_CRC_TABLE,       /* the reference for tests */
    FX_CRC_INSTRUCTION, /* crc32c of 8 bytes */
    FX_CRC_FOLD,        /* that, and carry-less products of 16 bytes beside it */
    FX_CRC_FOLD_WIDE,   /* carry-less products of 64 bytes (AVX-512) */
} fx_crc_path;

/* The fastest path of this CPU, which has the paths before it too. */
fx_crc_path fx_crc_path_best(void);

/* CRC of n more bytes after those whose CRC is crc (0: none); looks up the CPU's best path each time. */
uint32_t fx_crc32c(uint32_t crc, const void *data, size_t n);

/* The same by a given path, which is not above the best. */
uint32_t fx_crc32c_by(fx_crc_path path, uint32_t crc, const void *data, size_t n);

#endif
