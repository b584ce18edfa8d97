/* How many CPUs the process may use: its affinity, and what its control groups allow in a period. */
#ifndef FLEXNN_ENGINE_QUOTA_H
#define FLEXNN_ENGINE_QUOTA_H

#define FX_GROUPS_FILE "/proc/self/cgroup"
#define FX_GROUPS_ROOT "/sys/fs/cgroup"

/* The least quota, in CPUs, of the groups named in a file like /proc/self/cgroup and of those above them, below a
 * folder where the cpu controller (version 2, or 1) shows them; 0 without one. */
double fx_cpu_quota(const char *groups_file, const char *root);

/* CPUs that threads of this process can keep busy, as a number that may have a fraction; above 0. */
double fx_usable_cpus(void);

#endif
