/* CRC32C by the CPU's own instructions. s is the remainder itself, without the inversions of a CRC. */
#ifndef FLEXNN_ENGINE_CRC32C_CPU_H
#define FLEXNN_ENGINE_CRC32C_CPU_H

#include "flexnn/crc32c.h"

#if defined __x86_64__ || defined __aarch64__
#define FX_CRC_CPU

fx_crc_path fx_crc_cpu_best(void);

/* path: not FX_CRC_TABLE, not above the best. */
uint32_t fx_crc_cpu(fx_crc_path path, uint32_t s, const unsigned char *p, size_t n);

#endif

#endif
