/* Placement of threads by what Linux shows of cores, read from folders made here.
 * usage: flexnn-placement */
#include "placement.h"
#include "require.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[] = "/tmp/flexnn-cores-XXXXXX";

static void make(const char *path) {
    CHECK(mkdir(path, 0700) == 0);
}

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void show(int core, const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/cpu%d/%s", root, core, name);
    write_text(path, text);
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

static void online(const char *text) {
    char path[64];
    snprintf(path, sizeof path, "%s/online", root);
    write_text(path, text);
}

static cpu_set_t set_of(const int *cores, int count) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < count; i++)
        CPU_SET((unsigned)cores[i], &set);
    return set;
}

/* Three cores of that capacity, one of them numbered 12; what is made of them. */
static fx_placement place(const char *a, const char *b, const char *c, int threads) {
    const cpu_set_t all = set_of((int[]){0, 1, 12}, 3);
    show(0, "cpu_capacity", a);
    show(1, "cpu_capacity", b);
    show(12, "cpu_capacity", c);
    return fx_place_threads(root, &all, threads);
}

static void capacities(void) {
    const cpu_set_t all = set_of((int[]){0, 1, 12}, 3), first = set_of((int[]){0, 1}, 2);
    CHECK(!fx_place_threads(root, &all, 2).is_set); /* nothing to be read yet */
    online("0-1,12\n");
    CHECK(!fx_place_threads(root, &all, 2).is_set);

    fx_placement p = place("1024\n", "1024\n", "1024\n", 2);
    CHECK(!p.is_set && p.fineness == 1); /* equal cores */

    p = place("325\n", "1024\n", "870\n", 2); /* enough big ones: the little one only loads */
    const cpu_set_t big = set_of((int[]){1, 12}, 2), little = set_of((int[]){0}, 1);
    CHECK(p.is_set && CPU_EQUAL(&p.compute, &big) && CPU_EQUAL(&p.load, &little) && p.fineness == 2);
    p = place("325\n", "1024\n", "870\n", 3); /* all compute, steps are cut finer for the slowest */
    CHECK(p.is_set && CPU_EQUAL(&p.compute, &all) && CPU_EQUAL(&p.load, &little) && p.fineness == 4);
    p = place("1\n", "1024\n", "870\n", 3);
    CHECK(p.fineness == 4);

    CHECK(!fx_place_threads(root, &first, 2).is_set); /* a container has some of the cores */
    online("0-1\n");
    CHECK(fx_place_threads(root, &first, 2).is_set); /* the third is off */
    online("0,1,12\n");
    CHECK(place("325\n", "1024\n", "870\n", 2).is_set);
    CHECK(!place("325\n", "", "870\n", 2).is_set);
    CHECK(!place("325\n", "0\n", "870\n", 2).is_set);
    place("325\n", "1024\n", "870\n", 2);
    static const char *const broken[] = {"", "\n", "x", "0-", "12-0", "0-99999999", "0-1,12,99999999", "-1", "0 1 12"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        online(broken[i]);
        CHECK(!fx_place_threads(root, &all, 2).is_set || i == 6);
    }
}

static _Atomic int has_to_end;

static void *rest(void *arg) {
    while (!has_to_end)
        usleep(1000);
    return arg;
}

/* A thread that was fetched to a CPU uses it alone, until it keeps off one; one that others have placed stays there. */
static void fetched(fx_apart *apart, pthread_t thread, int cpu, const cpu_set_t *all) {
    const cpu_set_t one = set_of(&cpu, 1);
    cpu_set_t expected, now;
    CHECK(!pthread_getaffinity_np(thread, sizeof expected, &expected));
    const int is_placed = !CPU_EQUAL(&expected, &apart->left);
    fx_fetch(apart, thread, cpu);
    CHECK(!pthread_getaffinity_np(thread, sizeof now, &now) && CPU_EQUAL(&now, is_placed ? &expected : &one));
    fx_fetch(apart, thread, -1);
    fx_fetch(apart, thread, CPU_SETSIZE - 1); /* that it may not use, where there are fewer CPUs */
    fx_keep_off(apart, thread, cpu);
    expected = *all;
    if (CPU_COUNT(all) > 1)
        CPU_CLR(cpu, &expected);
    CHECK(!pthread_getaffinity_np(thread, sizeof now, &now) && CPU_EQUAL(&now, &expected));
}

/* A thread keeps off one CPU at a time, and what somebody else lets it use meanwhile holds. */
static void apart(void) {
    pthread_t thread;
    fx_apart apart = {0};
    cpu_set_t all, now, expected;
    CHECK(!pthread_create(&thread, NULL, rest, NULL));
    CHECK(!pthread_getaffinity_np(thread, sizeof all, &all));
    int first = 0, last = CPU_SETSIZE - 1;
    while (!CPU_ISSET(first, &all))
        first++;
    while (!CPU_ISSET(last, &all))
        last--;
    const int cpus[] = {first, -1, last, last};
    for (int i = 0; i < 4; i++) {
        fx_keep_off(&apart, thread, cpus[i]);
        CHECK(!pthread_getaffinity_np(thread, sizeof now, &now));
        expected = all;
        if (first < last)
            CPU_CLR(cpus[i] < 0 ? first : cpus[i], &expected);
        CHECK(CPU_EQUAL(&now, &expected));
    }
    fetched(&apart, thread, first, &all);
    fetched(&apart, thread, last, &all);
    const cpu_set_t one = set_of(&last, 1); /* not what was left: that could not be told apart */
    CHECK(!pthread_setaffinity_np(thread, sizeof one, &one));
    for (int i = 0; i < 2; i++) {
        fx_keep_off(&apart, thread, i ? last : first);
        CHECK(!pthread_getaffinity_np(thread, sizeof now, &now) && CPU_EQUAL(&now, &one));
    }
    CHECK(!pthread_setaffinity_np(thread, sizeof all, &all));
    fetched(&apart, thread, last, &all);
    has_to_end = 1;
    CHECK(!pthread_join(thread, NULL));
}

int main(void) {
    apart();
    CHECK(mkdtemp(root));
    names_of_cores();
    capacities();
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", root);
    CHECK(system(command) == 0);
    puts("placement: good");
    return 0;
}
