/* What Linux shows of cores, read from folders made here: flexnn-cores-check */
#include "flexnn/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);                                  \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static char root[] = "/tmp/flexnn-cores-XXXXXX";

static void make(const char *path) {
    CHECK(mkdir(path, 0700) == 0);
}

static void show(int core, const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/cpu%d/%s", root, core, name);
    FILE *file = fopen(path, "w");
    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void add_core(int core) {
    char path[256];
    static const char *const folders[] = {"", "/regs", "/regs/identification"};
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/cpu%d%s", root, core, folders[i]);
        make(path);
    }
}

static void midr(int core, const char *text) {
    show(core, "regs/identification/midr_el1", text);
}

static void names_of_cores(void) {
    CHECK(fx_core_is_in_order(0x410fd034));  /* Cortex-A53 r0p4 */
    CHECK(fx_core_is_in_order(0x412fd050));  /* A55 */
    CHECK(fx_core_is_in_order(0x51df805e));  /* Kryo 4xx Silver */
    CHECK(!fx_core_is_in_order(0x410fd083)); /* A72 */
    CHECK(!fx_core_is_in_order(0x414fd0b1)); /* A76 */
    CHECK(!fx_core_is_in_order(0x420fd034)); /* another maker's */

    CHECK(fx_cores_are_in_order(root) == -1);
    add_core(0);
    add_core(1);
    add_core(12); /* with a gap */
    CHECK(fx_cores_are_in_order(root) == -1);
    midr(0, "0x00000000410fd034\n");
    midr(1, "0x00000000412fd050\n");
    CHECK(fx_cores_are_in_order(root) == 1);
    midr(12, "0x00000000410fd083\n");
    CHECK(fx_cores_are_in_order(root) == 0);
    midr(12, "nonsense\n");
    CHECK(fx_cores_are_in_order(root) == 1);
    CHECK(fx_cores_are_in_order("/nowhere") == -1);
}

int main(void) {
    CHECK(mkdtemp(root));
    names_of_cores();
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", root);
    CHECK(system(command) == 0);
    puts("cores: good");
    return 0;
}
