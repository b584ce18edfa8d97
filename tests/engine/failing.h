/* Calls of the system that fail: the n-th of a kind, or all from the n-th on (the linker inserts this: --wrap). For one
 * file of a program. */
#ifndef FLEXNN_TESTS_FAILING_H
#define FLEXNN_TESTS_FAILING_H

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/types.h>

enum fault {
    NO_FAULT,
    FAIL_MEMORY, /* malloc and its like */
    FAIL_MAP,
    FAIL_MOVE, /* mremap */
    FAIL_THREAD,
    FAIL_LOCK,
    FAIL_CONDITION,
    FAIL_CPUS, /* which CPUs the process may use */
    FAIL_USAGE,
    FAIL_READ,
    FAIL_CACHED, /* a read of what is in the page cache */
    FAIL_WRITE,
    FAULTS,
};

static struct {
    atomic_int kind, is_sticky, error; /* error 0: a read or write ends early, -1: it takes half of the bytes, -2: a
                                        * write says that it has taken them and begins with zeros */
    atomic_long calls, number;
    atomic_long held;  /* allocations that are not freed */
    const int *errors; /* of the first calls, 0: the call does not fail; NULL: as number and is_sticky say */
    long errors_count;
    atomic_int is_cold;    /* the page cache holds nothing */
    atomic_int is_blocked; /* the device does not answer */
    atomic_int is_patient; /* sleeps that have an end last for minutes, so that a busy machine changes nothing */
    atomic_int cpus;       /* 0: as many as there are */
} failing;

static void arm(int kind, long number, int is_sticky, int error) {
    atomic_store(&failing.calls, 0);
    atomic_store(&failing.number, number);
    atomic_store(&failing.is_sticky, is_sticky);
    atomic_store(&failing.error, error);
    atomic_store(&failing.kind, kind);
}

/* Has the first calls fail with these errors, or not at all where they are 0. */
static void arm_all(int kind, const int *errors, long count) {
    failing.errors = errors;
    failing.errors_count = count;
    arm(kind, 0, 0, 0);
}

/* Returns how many calls of the kind there were. */
static long disarm(void) {
    atomic_store(&failing.kind, NO_FAULT);
    failing.errors = NULL;
    return atomic_load(&failing.calls);
}

static int fails(int kind) {
    if (atomic_load(&failing.kind) != kind)
        return 0;
    const long call = atomic_fetch_add(&failing.calls, 1) + 1, number = atomic_load(&failing.number);
    if (failing.errors) {
        errno = call <= failing.errors_count ? failing.errors[call - 1] : 0;
        return errno != 0;
    }
    if (call < number || (call > number && !atomic_load(&failing.is_sticky)))
        return 0;
    errno = atomic_load(&failing.error);
    return 1;
}

static void *hold(void *memory) {
    if (memory)
        atomic_fetch_add(&failing.held, 1);
    return memory;
}

#define WRAPPED(type, name, parameters)                                                                                \
    type __real_##name parameters;                                                                                     \
    type __wrap_##name parameters;                                                                                     \
    type __wrap_##name parameters

WRAPPED(void *, malloc, (size_t bytes)) {
    return fails(FAIL_MEMORY) ? NULL : hold(__real_malloc(bytes));
}
WRAPPED(void *, calloc, (size_t number, size_t bytes)) {
    return fails(FAIL_MEMORY) ? NULL : hold(__real_calloc(number, bytes));
}
WRAPPED(void *, aligned_alloc, (size_t alignment, size_t bytes)) {
    return fails(FAIL_MEMORY) ? NULL : hold(__real_aligned_alloc(alignment, bytes));
}
WRAPPED(void *, realloc, (void *memory, size_t bytes)) {
    if (fails(FAIL_MEMORY))
        return NULL;
    return memory ? __real_realloc(memory, bytes) : hold(__real_realloc(memory, bytes));
}
WRAPPED(void, free, (void *memory)) {
    if (memory)
        atomic_fetch_sub(&failing.held, 1);
    __real_free(memory);
}
WRAPPED(void *, mmap, (void *at, size_t bytes, int access, int flags, int fd, off_t offset)) {
    return fails(FAIL_MAP) ? MAP_FAILED : __real_mmap(at, bytes, access, flags, fd, offset);
}
WRAPPED(void *, mremap, (void *from, size_t before, size_t after, int flags, void *to)) {
    return fails(FAIL_MOVE) ? MAP_FAILED : __real_mremap(from, before, after, flags, to);
}
WRAPPED(int, pthread_create, (pthread_t * thread, const pthread_attr_t *how, void *(*body)(void *), void *arg)) {
    return fails(FAIL_THREAD) ? EAGAIN : __real_pthread_create(thread, how, body, arg);
}
WRAPPED(int, pthread_mutex_init, (pthread_mutex_t * mutex, const pthread_mutexattr_t *how)) {
    return fails(FAIL_LOCK) ? ENOMEM : __real_pthread_mutex_init(mutex, how);
}
WRAPPED(int, pthread_cond_init, (pthread_cond_t * condition, const pthread_condattr_t *how)) {
    return fails(FAIL_CONDITION) ? ENOMEM : __real_pthread_cond_init(condition, how);
}
WRAPPED(int, pthread_cond_timedwait,
        (pthread_cond_t * condition, pthread_mutex_t *mutex, const struct timespec *until)) {
    struct timespec later = *until;
    later.tv_sec += atomic_load(&failing.is_patient) ? 600 : 0;
    return __real_pthread_cond_timedwait(condition, mutex, &later);
}
WRAPPED(int, sched_getaffinity, (pid_t process, size_t bytes, cpu_set_t *cpus)) {
    if (fails(FAIL_CPUS))
        return -1;
    if (!atomic_load(&failing.cpus))
        return __real_sched_getaffinity(process, bytes, cpus);
    CPU_ZERO_S(bytes, cpus);
    for (int i = 0; i < atomic_load(&failing.cpus); i++)
        CPU_SET_S((size_t)i, bytes, cpus);
    return 0;
}
WRAPPED(int, getrusage, (int who, struct rusage *usage)) {
    return fails(FAIL_USAGE) ? -1 : __real_getrusage((__rusage_who_t)who, usage);
}
WRAPPED(ssize_t, pread, (int fd, void *to, size_t bytes, off_t offset)) {
    while (atomic_load(&failing.is_blocked))
        sched_yield();
    if (!fails(FAIL_READ))
        return __real_pread(fd, to, bytes, offset);
    if (errno > 0)
        return -1;
    return errno ? __real_pread(fd, to, (bytes + 1) / 2, offset) : 0;
}
WRAPPED(ssize_t, pwrite, (int fd, const void *from, size_t bytes, off_t offset)) {
    if (!fails(FAIL_WRITE))
        return __real_pwrite(fd, from, bytes, offset);
    if (errno > 0)
        return -1;
    if (errno < -1) {
        static const char other[16];
        (void)!__real_pwrite(fd, other, bytes < sizeof other ? bytes : sizeof other, offset);
        return (ssize_t)bytes;
    }
    return errno ? __real_pwrite(fd, from, (bytes + 1) / 2, offset) : 0;
}
WRAPPED(long, syscall,
        (long number, long a, long b, long c, long d, long e, long f)) { /* of the engine preadv2 alone */
    return fails(FAIL_CACHED) || atomic_load(&failing.is_cold) ? -1 : __real_syscall(number, a, b, c, d, e, f);
}
#undef WRAPPED

#endif
