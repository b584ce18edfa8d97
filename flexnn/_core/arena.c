#include "arena.h"

#include <stddef.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_BYTES ((int64_t)2 << 20)

int64_t fx_arena_size(int64_t bytes) {
    int64_t page = sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page + (bytes ? 0 : page);
}

void *fx_arena_map(int64_t bytes) {
#ifdef __GLIBC__
    malloc_trim(0); /* what planning has freed goes back first: the budget holds both */
#endif
    int64_t size = fx_arena_size(bytes), spare = size >= HUGE_BYTES ? HUGE_BYTES : 0;
    char *start = mmap(NULL, (size_t)(size + spare), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return NULL;
    if (!spare)
        return start;
    char *arena = (char *)(((uintptr_t)start + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES);
    ptrdiff_t before = arena - start;
    if (before)
        munmap(start, (size_t)before);
    if (before < spare)
        munmap(arena + size, (size_t)(spare - before));
    /* Only whole huge pages: one more would reach past what the budget counts. A kernel without them answers with an
     * error that changes nothing. */
    madvise(arena, (size_t)(size / HUGE_BYTES * HUGE_BYTES), MADV_HUGEPAGE);
    return arena;
}

void fx_arena_forget(void *start, int64_t bytes) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), low = ((uintptr_t)start + page - 1) / page * page;
    uintptr_t high = ((uintptr_t)start + (uintptr_t)bytes) / page * page;
    if (low < high)
        madvise((char *)start + (low - (uintptr_t)start), (size_t)(high - low), MADV_DONTNEED);
}

void fx_arena_unmap(void *arena, int64_t bytes) {
    munmap(arena, (size_t)fx_arena_size(bytes));
}
