#include "arena.h"

#include <errno.h>
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

/* Huge pages where whole ones fit: none reaches past the mapping. A kernel without them answers with an error that
 * changes nothing. */
static void take_huge_pages(char *arena, int64_t size) {
    madvise(arena, (size_t)size, MADV_HUGEPAGE);
}

/* Zeroed memory, aligned. */
static char *map(int64_t bytes) {
    const int64_t size = fx_arena_size(bytes), spare = size >= HUGE_BYTES ? HUGE_BYTES : 0;
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
    take_huge_pages(arena, size);
    return arena;
}

/* Moves whole pages to where others are mapped: their memory, not their bytes, so there are never two arenas. An arena
 * that has moved before consists of several mappings, and the system moves one at a time. 0: failed. */
static int move_pages(char *from, char *to, int64_t size) {
    if (mremap(from, (size_t)size, (size_t)size, MREMAP_MAYMOVE | MREMAP_FIXED, to) != MAP_FAILED)
        return 1;
    const int64_t page = sysconf(_SC_PAGESIZE), half = size / 2 / page * page;
    return half && errno == EFAULT && move_pages(from, to, half) && move_pages(from + half, to + half, size - half);
}

int fx_arena_grow(char **arena, int64_t old_bytes, int64_t bytes) {
#ifdef __GLIBC__
    malloc_trim(0); /* what planning has freed goes back first: the budget holds both */
#endif
    char *old = *arena, *larger = map(bytes);
    if (!larger)
        return 0;
    if (old && !move_pages(old, larger, fx_arena_size(old_bytes))) {
        fx_arena_unmap(larger, bytes);
        fx_arena_unmap(old, old_bytes);
        *arena = NULL;
        return 0;
    }
    take_huge_pages(larger, fx_arena_size(bytes));
    *arena = larger;
    return 1;
}

void fx_arena_cut(void *arena, int64_t old_bytes, int64_t bytes) {
    const int64_t size = fx_arena_size(bytes), old_size = fx_arena_size(old_bytes);
    if (size < old_size)
        munmap((char *)arena + size, (size_t)(old_size - size));
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
