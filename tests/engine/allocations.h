/* Calls of every function that takes or frees memory are counted, on all threads, or fail (the linker inserts this:
 * --wrap). For one file of a program. */
#ifndef FLEXNN_TESTS_ALLOCATIONS_H
#define FLEXNN_TESTS_ALLOCATIONS_H

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>

static atomic_int is_counting, is_failing, allocations;

static int count(void) {
    if (atomic_load(&is_counting))
        atomic_fetch_add(&allocations, 1);
    return atomic_load(&is_failing);
}

/* Declares each function, which counts the call and then calls the real one, or fails. */
#define WRAP(type, name, parameters, arguments, failed)                                                                \
    type __real_##name parameters;                                                                                     \
    type __wrap_##name parameters;                                                                                     \
    type __wrap_##name parameters {                                                                                    \
        if (!count())                                                                                                  \
            return __real_##name arguments;                                                                            \
        errno = ENOMEM;                                                                                                \
        return failed;                                                                                                 \
    }
WRAP(void *, malloc, (size_t bytes), (bytes), NULL)
WRAP(void *, calloc, (size_t number, size_t bytes), (number, bytes), NULL)
WRAP(void *, realloc, (void *memory, size_t bytes), (memory, bytes), NULL)
WRAP(void *, aligned_alloc, (size_t alignment, size_t bytes), (alignment, bytes), NULL)
WRAP(int, posix_memalign, (void **memory, size_t alignment, size_t bytes), (memory, alignment, bytes), ENOMEM)
WRAP(void *, mmap, (void *at, size_t bytes, int access, int flags, int fd, off_t offset),
     (at, bytes, access, flags, fd, offset), MAP_FAILED)
void __wrap_free(void *memory);
void __real_free(void *memory);
void __wrap_free(void *memory) {
    count();
    __real_free(memory);
}

#endif
