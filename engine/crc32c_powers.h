/* The constants of CRC32C's fast paths: x^n modulo the polynomial x^32 + x^28 + x^27 + ... + 1 (0x82f63b78), bits
 * reversed, so that bit 31 is x^0. tests/engine/crc.c computes them anew. */
#ifndef FLEXNN_ENGINE_CRC32C_POWERS_H
#define FLEXNN_ENGINE_CRC32C_POWERS_H

#include "flexnn/crc32c.h"

#define FX_CRC_POLYNOMIAL 0x82f63b78u

/* x^(8 FX_CRC_STREAM) moves a CRC past one stream of the instruction's path. */
#define FX_CRC_STREAM 8192
#define FX_CRC_PAST_STREAM 0x28461564u

/* The product of two reversed numbers of a and b bits is reversed in a + b - 1 bits: one place short of a + b, that is,
 * times x. Hence the - 1. A fold by d bits multiplies the first 64 of 128 bits by x^(d + 64 - 1), the others by
 * x^(d - 1); the powers stand in the upper half of 64 bits. */
#define FX_CRC_FOLD_512_FIRST 0x1c19243bu   /* x^575 */
#define FX_CRC_FOLD_512_SECOND 0x75bba45bu  /* x^511 */
#define FX_CRC_FOLD_2048_FIRST 0xe9a5d8beu  /* x^2111 */
#define FX_CRC_FOLD_2048_SECOND 0x1426a815u /* x^2047 */

/* A block of the fold path: FX_CRC_ROUNDS times 64 bytes folded, then three streams of FX_CRC_ROUNDS times 24 bytes by
 * the instruction. A CRC goes past k streams as the instruction's answer for crc * x^(8 * 24 FX_CRC_ROUNDS k - 33): the
 * instruction itself multiplies by x^32. */
#define FX_CRC_ROUNDS 64
#define FX_CRC_PAST_1 0x9ef68d35u /* x^12255 */
#define FX_CRC_PAST_2 0x359674f7u /* x^24543 */
#define FX_CRC_PAST_3 0x005bb964u /* x^36831 */

/* The same of the wide path: FX_CRC_WIDE_ROUNDS times 256 bytes folded, then three streams of as many times 40. */
#define FX_CRC_WIDE_ROUNDS 32
#define FX_CRC_WIDE_PAST_1 0xdd66cbbbu /* x^10207 */
#define FX_CRC_WIDE_PAST_2 0x22c3799fu /* x^20447 */
#define FX_CRC_WIDE_PAST_3 0x23d5e7e5u /* x^30687 */

#endif
