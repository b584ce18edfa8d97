#include "flexnn/quota.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 1024 };

/* The first line of a file below a folder; 0 if there is none. */
static int read_line(const char *folder, const char *name, char line[64]) {
    char path[2 * PATH_BYTES];
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = length < (int)sizeof path ? fopen(path, "r") : NULL;
    if (!file)
        return 0;
    int found = fgets(line, 64, file) != NULL;
    fclose(file);
    return found;
}

/* CPUs that one group allows; 0: no limit. */
static double quota_of(const char *folder) {
    char line[64];
    double quota = 0, period = 0;
    if (read_line(folder, "cpu.max", line)) { /* "max 100000" where there is no limit */
        if (sscanf(line, "%lf %lf", &quota, &period) != 2)
            return 0;
    } else if (read_line(folder, "cpu.cfs_quota_us", line)) { /* -1 where there is no limit */
        quota = atof(line);
        period = read_line(folder, "cpu.cfs_period_us", line) ? atof(line) : 0;
    }
    return quota > 0 && period > 0 ? quota / period : 0;
}

/* The least quota of a group and those above it. A container may name a group that it does not see: the groups above
 * it, up to the root, are looked at all the same. */
static double least_quota(const char *root, char *group) {
    double least = 0;
    for (;;) {
        char folder[2 * PATH_BYTES];
        int length = snprintf(folder, sizeof folder, "%s%s", root, group);
        double quota = length < (int)sizeof folder ? quota_of(folder) : 0;
        if (quota > 0 && (least <= 0 || quota < least))
            least = quota;
        char *slash = strrchr(group, '/');
        if (!slash)
            return least;
        *slash = 0;
    }
}

/* Whether a list like "cpu,cpuacct" has the cpu controller. */
static int has_cpu(const char *controllers) {
    for (const char *at = controllers; (at = strstr(at, "cpu")); at++)
        if ((at == controllers || at[-1] == ',') && (at[3] == ',' || !at[3]))
            return 1;
    return 0;
}

double fx_cpu_quota(const char *groups_file, const char *root) {
    FILE *file = fopen(groups_file, "r");
    if (!file)
        return 0;
    double least = 0;
    char line[PATH_BYTES];
    while (fgets(line, sizeof line, file)) { /* number:controllers:/group */
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!group || group[1] != '/')
            continue;
        *group++ = 0;
        controllers++;
        if (*controllers && !has_cpu(controllers))
            continue;
        char mounted[2 * PATH_BYTES];
        snprintf(mounted, sizeof mounted, "%s%s%s", root, *controllers ? "/" : "", controllers);
        double quota = least_quota(mounted, group);
        if (quota > 0 && (least <= 0 || quota < least))
            least = quota;
    }
    fclose(file);
    return least;
}

double fx_usable_cpus(void) {
    cpu_set_t cpus;
    double usable = sched_getaffinity(0, sizeof cpus, &cpus) ? 1 : CPU_COUNT(&cpus);
    double quota = fx_cpu_quota(FX_GROUPS_FILE, FX_GROUPS_ROOT);
    return quota > 0 && quota < usable ? quota : usable;
}
