/* Quotas of control groups, read from folders made here.
 * usage: flexnn-quota */
#include "flexnn/quota.h"
#include "require.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[] = "/tmp/flexnn-groups-XXXXXX";

static void make(const char *path) {
    CHECK(mkdir(path, 0700) == 0);
}

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void group(const char *folder, const char *name, const char *text) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, folder);
    if (access(path, F_OK))
        make(path);
    snprintf(path, sizeof path, "%s/%s/%s", root, folder, name);
    write_text(path, text);
}

static double quota(const char *groups) {
    char path[256];
    snprintf(path, sizeof path, "%s/groups", root);
    write_text(path, groups);
    return fx_cpu_quota(path, root);
}

static void quotas(void) {
    CHECK(fx_cpu_quota("/no/such/file", root) == 0);
    CHECK(quota("0::/\n") == 0);
    group("outer", "cpu.max", "300000 100000\n");
    group("outer/inner", "cpu.max", "max 100000\n");
    CHECK(quota("0::/outer/inner\n") == 3.0); /* the group above has less */
    group("outer/inner", "cpu.max", "150000 100000\n");
    CHECK(quota("0::/outer/inner\n") == 1.5);
    CHECK(quota("0::/outer\n") == 3.0);
    CHECK(quota("0::/elsewhere/inner\n") == 0);
    group("", "cpu.max", "50000 100000\n"); /* a container shows its own group as the root, under a name from outside */
    CHECK(quota("0::/elsewhere/inner\n") == 0.5);
    group("cpu,cpuacct", "cpu.cfs_quota_us", "-1\n");
    group("cpu,cpuacct", "cpu.cfs_period_us", "100000\n");
    CHECK(quota("4:cpu,cpuacct:/\n3:cpuset:/outer\n") == 0);
    group("cpu,cpuacct", "cpu.cfs_quota_us", "250000\n");
    CHECK(quota("4:cpu,cpuacct:/docker/x\n3:cpuset:/outer\n") == 2.5);
    CHECK(quota("3:cpuset:/outer\n") == 0);
    CHECK(quota("5:xcpu:/outer\n4:cpux,cpu,cpuacct:/outer\n") == 0); /* not where such a controller is mounted */
    CHECK(quota("4:cpu,cpuacct:/\n0::/outer\n") == 0.5 && quota("0::/outer\n4:cpu,cpuacct:/\n") == 0.5);
    group("cpu", "cpu.cfs_quota_us", "250000\n"); /* without a period */
    CHECK(quota("4:cpu:/\n") == 0);
    group("cpu", "cpu.cfs_period_us", "1000000\n");
    CHECK(quota("4:cpu:/\n") == 0.25);
    char deep[1000] = "0::";
    while (strlen(deep) < sizeof deep - 5)
        strcat(deep, "/xyz");
    CHECK(quota(deep) == 0.5); /* such a group is not there; the one above all is */
    static const char *const broken[] = {"", "\n", "0::", "0", "::::", "0:cpu", "x:cpu,cpuacct:y"};
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++)
        CHECK(quota(broken[i]) == 0);
    static const char *const limits[] = {"", "max", "-5 100000", "100000 0", "nan nan", "1e999 -1"};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        group("", "cpu.max", limits[i]);
        CHECK(quota("0::/\n") == 0);
    }
}

int main(void) {
    CHECK(mkdtemp(root));
    quotas();
    const double usable = fx_usable_cpus();
    CHECK(usable > 0 && usable <= (double)sysconf(_SC_NPROCESSORS_CONF));
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", root);
    CHECK(system(command) == 0);
    puts("quota: good");
    return 0;
}
