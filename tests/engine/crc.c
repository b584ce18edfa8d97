/* CRC32C: the table against known answers, every path that this CPU has against the table (every length and alignment
 * around the paths' units, long buffers, chains, ends at a page that must not be read), the constants computed again,
 * and loads that are checked in parts.
 * usage: flexnn-crc [seed] */
#include "crc32c_powers.h"
#include "flexnn/crc32c.h"
#include "read.h"
#include "require.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LENGTHS = 1100, ALIGNMENTS = 64, LONG = 300000, CHAINS = 200, LOADS = 100 };

static uint32_t random_state = 1;

/* x^n modulo the polynomial, bits reversed. */
static uint32_t power(int n) {
    uint32_t a = 1u << 31;
    for (; n; n--)
        a = a >> 1 ^ (FX_CRC_POLYNOMIAL & -(a & 1));
    return a;
}

static void check_powers(void) {
    const int stream = 8 * 24 * FX_CRC_ROUNDS, wide = 8 * 40 * FX_CRC_WIDE_ROUNDS;
    CHECK(power(8 * FX_CRC_STREAM) == FX_CRC_PAST_STREAM);
    CHECK(power(512 + 63) == FX_CRC_FOLD_512_FIRST && power(512 - 1) == FX_CRC_FOLD_512_SECOND);
    CHECK(power(2048 + 63) == FX_CRC_FOLD_2048_FIRST && power(2048 - 1) == FX_CRC_FOLD_2048_SECOND);
    CHECK(power(stream - 33) == FX_CRC_PAST_1 && power(2 * stream - 33) == FX_CRC_PAST_2);
    CHECK(power(3 * stream - 33) == FX_CRC_PAST_3);
    CHECK(power(wide - 33) == FX_CRC_WIDE_PAST_1 && power(2 * wide - 33) == FX_CRC_WIDE_PAST_2);
    CHECK(power(3 * wide - 33) == FX_CRC_WIDE_PAST_3);
}

static void check_table(void) {
    unsigned char data[32] = {0};
    CHECK(fx_crc32c_by(FX_CRC_TABLE, 0, data, 32) == 0x8a9136aa);
    memset(data, 0xff, 32);
    CHECK(fx_crc32c_by(FX_CRC_TABLE, 0, data, 32) == 0x62a8ab43);
    CHECK(fx_crc32c_by(FX_CRC_TABLE, 0, "123456789", 9) == 0xe3069283);
}

static void check_short(fx_crc_path path, const unsigned char *data) {
    for (size_t alignment = 0; alignment < ALIGNMENTS; alignment++) {
        const unsigned char *p = data + alignment;
        uint32_t before = random_u32(&random_state), crc = before;
        for (size_t n = 0; n <= LENGTHS; n++) {
            CHECK(fx_crc32c_by(path, before, p, n) == crc);
            crc = fx_crc32c_by(FX_CRC_TABLE, crc, p + n, 1);
        }
    }
}

/* end: of readable memory. */
static void check_ends(fx_crc_path path, const unsigned char *end) {
    static const size_t units[] = {
        0, 256, 24 * FX_CRC_ROUNDS, 136 * FX_CRC_ROUNDS, 376 * FX_CRC_WIDE_ROUNDS - 150, 3 * FX_CRC_STREAM, LONG - 300};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        for (size_t n = units[i]; n < units[i] + 300; n++)
            CHECK(fx_crc32c_by(path, 0, end - n, n) == fx_crc32c_by(FX_CRC_TABLE, 0, end - n, n));
}

static void check_chains(fx_crc_path path, const unsigned char *data) {
    for (int i = 0; i < CHAINS; i++) {
        size_t n = random_u32(&random_state) % LONG, done = 0;
        uint32_t crc = 0;
        while (done < n) {
            size_t part = 1 + random_u32(&random_state) % n;
            if (part > n - done)
                part = n - done;
            crc = fx_crc32c_by(path, crc, data + done, part);
            done += part;
        }
        CHECK(crc == fx_crc32c_by(FX_CRC_TABLE, 0, data, n));
    }
}

/* Parts of a load cover it, each is whole chunks, and each finds a wrong bit of its own and no other's. */
static void check_parts(unsigned char *data) {
    for (int i = 0; i < LOADS; i++) {
        const int64_t chunk = 1 + random_u32(&random_state) % (i % 2 ? LONG : 3000);
        const int64_t bytes = 1 + random_u32(&random_state) % LONG, wrong = random_u32(&random_state) % bytes;
        const fx_load load = {.bytes = bytes, .check_bytes = bytes, .chunk_bytes = chunk};
        static uint32_t crcs[LONG];
        for (int64_t at = 0; at < bytes; at += chunk)
            crcs[at / chunk] = fx_crc32c(0, data + at, (size_t)(bytes - at < chunk ? bytes - at : chunk));
        data[wrong] ^= 4;
        for (int64_t at = 0, part; at < bytes; at += part) {
            part = fx_part_bytes(&load, at, (int)random_u32(&random_state) % 2);
            CHECK(part > 0 && at + part <= bytes && (at + part == bytes || part % chunk == 0));
            fx_checker check = fx_check_start(fx_crc_path_best(), crcs, &load, (const char *)data);
            check.done = at;
            const fx_error error = fx_check_to(&check, &load, at + part);
            CHECK((error.status == FX_OK) == (wrong < at || wrong >= at + part));
        }
        data[wrong] ^= 4;
    }
    const fx_load lead = {.bytes = 100, .check_bytes = 90, .chunk_bytes = 10, .check_lead = 10};
    const fx_load large = {.bytes = 4 << 20, .check_bytes = 4 << 20, .chunk_bytes = 2 << 20};
    CHECK(!fx_part_bytes(&lead, 0, 0) && !fx_part_bytes(&large, 0, 0));
}

int main(int argc, char **argv) {
    if (argc > 1)
        random_state = (uint32_t)strtoul(argv[1], NULL, 0);
    size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = (LONG + page) / page * page;
    unsigned char *data = mmap(NULL, bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(data != MAP_FAILED && mprotect(data + bytes, page, PROT_NONE) == 0);
    for (size_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)random_u32(&random_state);
    check_powers();
    check_table();
    for (fx_crc_path path = FX_CRC_TABLE; path <= fx_crc_path_best(); path++) {
        check_short(path, data);
        check_ends(path, data + bytes);
        check_chains(path, data);
    }
    check_parts(data);
    CHECK(fx_crc32c(0, data, LONG) == fx_crc32c_by(FX_CRC_TABLE, 0, data, LONG));
    printf("crc: paths 0-%d as they should be\n", (int)fx_crc_path_best());
    return 0;
}
