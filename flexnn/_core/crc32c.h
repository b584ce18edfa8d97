/* CRC32C as in iSCSI (RFC 3720, appendix B.4). */
#ifndef FLEXNN_CRC32C_H
#define FLEXNN_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Of n more bytes after those whose CRC is crc (0: none). */
uint32_t fx_crc32c(uint32_t crc, const void *data, size_t n);

/* The same without the CPU's instruction: the reference for tests. */
uint32_t fx_crc32c_by_table(uint32_t crc, const void *data, size_t n);

#endif
