/* Faults for tests, to be preloaded (LD_PRELOAD): the n-th call of a kind fails, or waits as a blocked device does.
 *
 * Calls about files count where the file lies in the folder that FAULTS_FOLDER names, or is the system's: in /proc or
 * /sys, where memory and its limits are told; allocations, mappings and threads
 * count where flexnn's extension module calls. Nothing counts before faults_arm. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { READ, WRITE, OPEN, RENAME, LINK, SYNC, ALLOCATE, MAP, THREAD, STORE, TEAR, FLIP, KINDS };

static atomic_int armed = -1, sticky, failure, delay_ms;
static atomic_long nth, counts[KINDS];
static uintptr_t core_begin, core_end;

static int find_core(struct dl_phdr_info *info, size_t size, void *unused) {
    (void)size, (void)unused;
    if (!strstr(info->dlpi_name, "/flexnn/_core/"))
        return 0;
    core_begin = UINTPTR_MAX;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD) {
            const uintptr_t at = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            core_begin = at < core_begin ? at : core_begin;
            core_end = at + info->dlpi_phdr[i].p_memsz > core_end ? at + info->dlpi_phdr[i].p_memsz : core_end;
        }
    return 1;
}

/* Lets call number `number` of a kind, and with `always` those after it, fail with `error`, or, if that is 0, wait. */
void faults_arm(int kind, long number, int always, int error, int wait_ms) {
    atomic_store(&armed, -1);
    dl_iterate_phdr(find_core, NULL);
    for (int i = 0; i < KINDS; i++)
        atomic_store(&counts[i], 0);
    atomic_store(&nth, number), atomic_store(&sticky, always);
    atomic_store(&failure, error), atomic_store(&delay_ms, wait_ms);
    atomic_store(&armed, kind);
}

/* Ends that; returns how many calls of the kind there were. */
long faults_disarm(void) {
    const int kind = atomic_exchange(&armed, -1);
    return kind < 0 ? 0 : atomic_load(&counts[kind]);
}

static int meets(int kind) {
    const long number = atomic_fetch_add(&counts[kind], 1) + 1;
    if (number != atomic_load(&nth) && !(atomic_load(&sticky) && number > atomic_load(&nth)))
        return 0;
    if (atomic_load(&failure)) {
        errno = atomic_load(&failure);
        return 1;
    }
    for (int left = atomic_load(&delay_ms); left > 0 && atomic_load(&armed) == kind; left -= 10) /* no signal ends it */
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    return 0;
}

static int is_counted(const char *path) {
    static const char *const told[] = {"/memory.", "/meminfo", "/statm", "/pressure/memory"};
    const char *folder = getenv("FAULTS_FOLDER");
    int is_told = 0;
    for (size_t i = 0; i < sizeof told / sizeof *told; i++)
        is_told |= strstr(path, told[i]) != NULL;
    return (folder && strstr(path, folder)) || (is_told && (!strncmp(path, "/proc/", 6) || !strncmp(path, "/sys/", 5)));
}

static int is_ours(int fd, const char *path) {
    char link[64], name[4096];
    if (path && (path[0] == '/' || fd == AT_FDCWD))
        return is_counted(path);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t size = readlink(link, name, sizeof name - 1);
    name[size < 0 ? 0 : size] = 0;
    return is_counted(name);
}

static int fails_file(int kind, int fd, const char *path) {
    const int before = errno;
    if (atomic_load(&armed) != kind || !is_ours(fd, path))
        return errno = before, 0;
    errno = before;
    return meets(kind);
}

static int fails_core(int kind, const void *caller) {
    return atomic_load(&armed) == kind && (uintptr_t)caller >= core_begin && (uintptr_t)caller < core_end &&
           meets(kind);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define CALLER __builtin_return_address(0)

/* A device that has lost a bit: what it says it read is not what was written. */
static ssize_t flipped(int fd, void *to, ssize_t bytes) {
    if (bytes > 0 && fails_file(FLIP, fd, NULL))
        ((char *)to)[bytes / 2] ^= 4;
    return bytes;
}
ssize_t read(int fd, void *to, size_t bytes) {
    return fails_file(READ, fd, NULL) ? -1 : NEXT(read)(fd, to, bytes);
}
ssize_t pread(int fd, void *to, size_t bytes, off_t at) {
    return fails_file(READ, fd, NULL) ? -1 : flipped(fd, to, NEXT(pread)(fd, to, bytes, at));
}
ssize_t pread64(int fd, void *to, size_t bytes, off64_t at) {
    return fails_file(READ, fd, NULL) ? -1 : flipped(fd, to, NEXT(pread64)(fd, to, bytes, at));
}
ssize_t preadv(int fd, const struct iovec *to, int count, off_t at) {
    return fails_file(READ, fd, NULL) ? -1 : NEXT(preadv)(fd, to, count, at);
}
ssize_t preadv64(int fd, const struct iovec *to, int count, off64_t at) {
    return fails_file(READ, fd, NULL) ? -1 : NEXT(preadv64)(fd, to, count, at);
}
/* A read that must not wait finds nothing in the page cache. */
static int lacks(int fd, int flags) {
    const int is_lacking = flags & RWF_NOWAIT && atomic_load(&armed) == READ && is_ours(fd, NULL);
    if (is_lacking)
        errno = EAGAIN;
    return is_lacking;
}
ssize_t preadv2(int fd, const struct iovec *to, int count, off_t at, int flags) {
    return lacks(fd, flags) || fails_file(READ, fd, NULL) ? -1 : NEXT(preadv2)(fd, to, count, at, flags);
}
/* The engine calls the system itself. */
long syscall(long number, ...) {
    va_list rest;
    long a[6];
    va_start(rest, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(rest, long);
    va_end(rest);
    const int is_read = number == SYS_preadv2 && (atomic_load(&armed) == READ || atomic_load(&armed) == FLIP);
    if (is_read && is_ours((int)a[0], NULL))
        return errno = EAGAIN, -1;
    return NEXT(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
ssize_t preadv64v2(int fd, const struct iovec *to, int count, off64_t at, int flags) {
    return lacks(fd, flags) || fails_file(READ, fd, NULL) ? -1 : NEXT(preadv64v2)(fd, to, count, at, flags);
}
/* A disk that is full takes half of what is written first, and refuses what comes then. */
ssize_t write(int fd, const void *from, size_t bytes) {
    if (!fails_file(WRITE, fd, NULL))
        return NEXT(write)(fd, from, bytes);
    const int is_first = atomic_load(&counts[WRITE]) == atomic_load(&nth);
    return is_first && bytes > 1 ? NEXT(write)(fd, from, bytes / 2) : -1;
}
/* Writes at an offset: as above where those after it fail, too; and a device that loses power takes half of what it
 * says that it took. */
#define WRITES_AT(name, offset)                                                                                        \
    ssize_t name(int fd, const void *from, size_t bytes, offset at) {                                                  \
        if (bytes > 1 && fails_file(TEAR, fd, NULL))                                                                   \
            return NEXT(name)(fd, from, bytes / 2, at) < 0 ? -1 : (ssize_t)bytes;                                      \
        const int is_store = fails_file(STORE, fd, NULL);                                                              \
        if (!is_store && !fails_file(WRITE, fd, NULL))                                                                 \
            return NEXT(name)(fd, from, bytes, at);                                                                    \
        const int is_first = is_store ? atomic_load(&counts[STORE]) == atomic_load(&nth) && atomic_load(&sticky)       \
                                      : atomic_load(&counts[WRITE]) == atomic_load(&nth);                              \
        return is_first && bytes > 1 ? NEXT(name)(fd, from, bytes / 2, at) : -1;                                       \
    }
WRITES_AT(pwrite, off_t)
WRITES_AT(pwrite64, off64_t)
int posix_fallocate(int fd, off_t at, off_t bytes) {
    return fails_file(WRITE, fd, NULL) ? atomic_load(&failure) : NEXT(posix_fallocate)(fd, at, bytes);
}
int posix_fallocate64(int fd, off64_t at, off64_t bytes) {
    return fails_file(WRITE, fd, NULL) ? atomic_load(&failure) : NEXT(posix_fallocate64)(fd, at, bytes);
}
int ftruncate(int fd, off_t bytes) {
    return fails_file(WRITE, fd, NULL) ? -1 : NEXT(ftruncate)(fd, bytes);
}
int ftruncate64(int fd, off64_t bytes) {
    return fails_file(WRITE, fd, NULL) ? -1 : NEXT(ftruncate64)(fd, bytes);
}
int fsync(int fd) {
    return fails_file(SYNC, fd, NULL) ? -1 : NEXT(fsync)(fd);
}
int renameat(int from, const char *old, int to, const char *new) {
    return fails_file(RENAME, to, new) ? -1 : NEXT(renameat)(from, old, to, new);
}
int linkat(int from, const char *old, int to, const char *new, int flags) {
    return fails_file(LINK, to, new) ? -1 : NEXT(linkat)(from, old, to, new, flags);
}

#define OPENS(name)                                                                                                    \
    int name(int folder, const char *path, int flags, ...) {                                                           \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        const mode_t mode = va_arg(rest, mode_t);                                                                      \
        va_end(rest);                                                                                                  \
        return fails_file(OPEN, folder, path) ? -1 : NEXT(name)(folder, path, flags, mode);                            \
    }
OPENS(openat)
OPENS(openat64)
#define OPENS_HERE(name)                                                                                               \
    int name(const char *path, int flags, ...) {                                                                       \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        const mode_t mode = va_arg(rest, mode_t);                                                                      \
        va_end(rest);                                                                                                  \
        return fails_file(OPEN, AT_FDCWD, path) ? -1 : NEXT(name)(path, flags, mode);                                  \
    }
OPENS_HERE(open)
OPENS_HERE(open64)

void *aligned_alloc(size_t alignment, size_t bytes) {
    return fails_core(ALLOCATE, CALLER) ? NULL : NEXT(aligned_alloc)(alignment, bytes);
}
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
void *malloc(size_t bytes) {
    return fails_core(ALLOCATE, CALLER) ? NULL : __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes) {
    return fails_core(ALLOCATE, CALLER) ? NULL : __libc_calloc(count, bytes);
}
void *realloc(void *old, size_t bytes) {
    return fails_core(ALLOCATE, CALLER) ? NULL : __libc_realloc(old, bytes);
}
void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset) {
    return fails_core(MAP, CALLER) ? MAP_FAILED : NEXT(mmap)(at, bytes, protection, flags, fd, offset);
}
void *mmap64(void *at, size_t bytes, int protection, int flags, int fd, off64_t offset) {
    return fails_core(MAP, CALLER) ? MAP_FAILED : NEXT(mmap64)(at, bytes, protection, flags, fd, offset);
}
void *mremap(void *old, size_t before, size_t bytes, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    void *to = flags & MREMAP_FIXED ? va_arg(rest, void *) : NULL;
    va_end(rest);
    return fails_core(MAP, CALLER) ? MAP_FAILED : NEXT(mremap)(old, before, bytes, flags, to);
}
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *arg) {
    return fails_core(THREAD, CALLER) ? errno : NEXT(pthread_create)(thread, attributes, body, arg);
}
