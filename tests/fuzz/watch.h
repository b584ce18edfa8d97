/* Limits of an input's time. Seconds of CPU judge one that computes; a clock on the wall, which runs on where a machine
 * is busy or stands still, judges only one that waits for ever. */
#ifndef FLEXNN_FUZZ_WATCH_H
#define FLEXNN_FUZZ_WATCH_H

#include <stddef.h>
#include <sys/time.h>

#define CPU_SECONDS_MAX 10
#define WALL_SECONDS_MAX 600

/* Sends SIGPROF when the process has taken `seconds` more of CPU. 0: not. */
static inline void watch_cpu(int seconds) {
    setitimer(ITIMER_PROF, &(struct itimerval){.it_value.tv_sec = seconds}, NULL);
}

#endif
