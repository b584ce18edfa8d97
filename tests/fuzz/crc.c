/* Fuzz target: checksums of any bytes, cut anywhere, are the same by every path that this CPU has. */
#include "../engine/require.h"
#include "flexnn/crc32c.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    enum { TIMES = 9 };
    uint8_t *repeated = malloc(size * TIMES + 1);
    CHECK(repeated);
    for (int i = 0; i < TIMES; i++)
        memcpy(repeated + (size_t)i * size, data, size);
    const size_t all = size * TIMES, from = all ? data[0] % all : 0, cut = from + (all - from) / 3;
    const uint32_t expected = fx_crc32c_by(FX_CRC_TABLE, 0, repeated + from, all - from);
    for (fx_crc_path path = FX_CRC_TABLE; path <= fx_crc_path_best(); path++) {
        const uint32_t first = fx_crc32c_by(path, 0, repeated + from, cut - from);
        CHECK(fx_crc32c_by(path, first, repeated + cut, all - cut) == expected);
    }
    free(repeated);
    return 0;
}
