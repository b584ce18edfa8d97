#include "placement.h"

#include <stdio.h>
#include <string.h>

enum { FINENESS_MAX = 4 };

/* Reads a list like "0-3,8"; 0 if there is none. */
static int read_list(const char *root, const char *name, cpu_set_t *cores) {
    char path[512];
    CPU_ZERO(cores);
    const int length = snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *file = length < (int)sizeof path ? fopen(path, "r") : NULL;
    if (!file)
        return 0;
    unsigned first, last;
    int read = 0;
    while (fscanf(file, "%u", &first) == 1) {
        if (fscanf(file, "-%u", &last) != 1)
            last = first;
        if (last >= CPU_SETSIZE || first > last)
            break;
        for (; first <= last; first++, read++)
            CPU_SET(first, cores);
        if (fgetc(file) != ',')
            break;
    }
    fclose(file);
    return read;
}

/* Capacity of a core, at most 1024; 0 where Linux does not show it. */
static unsigned capacity_of(const char *root, int core) {
    char path[512];
    unsigned capacity;
    const int length = snprintf(path, sizeof path, "%s/cpu%d/cpu_capacity", root, core);
    FILE *file = length < (int)sizeof path ? fopen(path, "r") : NULL;
    if (!file)
        return 0;
    if (fscanf(file, "%u", &capacity) != 1)
        capacity = 0;
    fclose(file);
    return capacity;
}

fx_placement fx_place_threads(const char *root, const cpu_set_t *allowed, int threads) {
    fx_placement placement = {.fineness = 1};
    unsigned capacities[CPU_SETSIZE], smallest = ~0u, largest = 0;
    cpu_set_t on;
    if (!read_list(root, "online", &on) || !CPU_EQUAL(&on, allowed))
        return placement;
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, &on))
            continue;
        capacities[core] = capacity_of(root, core);
        if (!capacities[core])
            return placement;
        smallest = capacities[core] < smallest ? capacities[core] : smallest;
        largest = capacities[core] > largest ? capacities[core] : largest;
    }
    if (smallest == largest)
        return placement;
    placement.is_set = 1;
    CPU_ZERO(&placement.compute);
    CPU_ZERO(&placement.load);
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, &on) && 2 * capacities[core] >= largest)
            CPU_SET(core, &placement.compute);
        if (CPU_ISSET(core, &on) && capacities[core] == smallest)
            CPU_SET(core, &placement.load);
    }
    if (CPU_COUNT(&placement.compute) < threads)
        placement.compute = on;
    for (int core = 0; core < CPU_SETSIZE; core++)
        if (CPU_ISSET(core, &placement.compute)) {
            const unsigned slower = (largest + capacities[core] - 1) / capacities[core];
            if ((int)slower > placement.fineness)
                placement.fineness = slower < FINENESS_MAX ? (int)slower : FINENESS_MAX;
        }
    return placement;
}

void fx_keep_off(fx_apart *apart, pthread_t thread, int cpu) {
    cpu_set_t now;
    if (cpu < 0 || pthread_getaffinity_np(thread, sizeof now, &now))
        return;
    if (!CPU_EQUAL(&now, &apart->left)) /* nothing was set, or others have */
        apart->all = now;
    apart->left = apart->all;
    CPU_CLR(cpu, &apart->left);
    if (!CPU_COUNT(&apart->left))
        apart->left = apart->all;
    pthread_setaffinity_np(thread, sizeof apart->left, &apart->left);
}

void fx_fetch(fx_apart *apart, pthread_t thread, int cpu) {
    cpu_set_t now;
    if (cpu < 0 || !CPU_ISSET(cpu, &apart->all) || pthread_getaffinity_np(thread, sizeof now, &now) ||
        !CPU_EQUAL(&now, &apart->left))
        return;
    CPU_ZERO(&apart->left);
    CPU_SET(cpu, &apart->left);
    pthread_setaffinity_np(thread, sizeof apart->left, &apart->left);
}
