/* Which cores execute in order, by MIDR_EL1: bits 24-31 name the implementer, 4-15 the part. */
#include "flexnn/cpu.h"

#include <stdio.h>

int fx_core_is_in_order(uint64_t midr) {
    static const struct {
        uint8_t implementer;
        uint16_t part;
    } known[] = {
        {0x41, 0xd04}, /* Arm Cortex-A35 */
        {0x41, 0xd03}, /* Cortex-A53 */
        {0x41, 0xd05}, /* Cortex-A55 */
        {0x51, 0x801}, /* Qualcomm Kryo 2xx Silver, of the A53 */
        {0x51, 0x803}, /* Kryo 3xx Silver, of the A55 */
        {0x51, 0x805}, /* Kryo 4xx Silver, of the A55 */
    };
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
        if ((midr >> 24 & 0xff) == known[i].implementer && (midr >> 4 & 0xfff) == known[i].part)
            return 1;
    return 0;
}

int fx_cores_are_in_order(const char *root) {
    int all = -1;
    for (int core = 0; core < FX_CORES_MAX; core++) {
        char path[512];
        unsigned long long midr;
        const int length = snprintf(path, sizeof path, "%s/cpu%d/regs/identification/midr_el1", root, core);
        FILE *file = length < (int)sizeof path ? fopen(path, "r") : NULL;
        if (!file)
            continue; /* core numbers may have gaps, and a core that is off shows nothing */
        if (fscanf(file, "%llx", &midr) == 1)
            all = all && fx_core_is_in_order(midr);
        fclose(file);
    }
    return all;
}
