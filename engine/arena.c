#include "arena.h"

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_BYTES ((int64_t)2 << 20)
#define ROOM_BYTES ((int64_t)4 << 20) /* of room, beside as many as are needed */
#define ROOMY_MAX ((int64_t)1 << 36)
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* since Linux 5.14; older ones return an error */
#endif

int64_t fx_arena_size(int64_t bytes) {
    int64_t page = sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page + (bytes ? 0 : page);
}

/* Asks for huge pages. The system uses them where whole ones fit, so none reaches past the mapping; a system without
 * them returns an error, which changes nothing. */
static void take_huge_pages(char *arena, int64_t size) {
    madvise(arena, (size_t)size, MADV_HUGEPAGE);
}

/* Where an arena of `size` bytes starts in a huge page. Pages of one that grows stay whole. */
static uintptr_t rest_of(const fx_arena *a, int64_t size) {
    if (a->memory && fx_arena_size(a->bytes) >= HUGE_BYTES)
        return (uintptr_t)a->memory % HUGE_BYTES;
    return a->ends_whole ? (uintptr_t)(HUGE_BYTES - size % HUGE_BYTES) % HUGE_BYTES : 0;
}

/* Addresses for `room` bytes, aligned, of which the first `size` are zeroed memory; NULL: there are none. */
static char *map_room(const fx_arena *a, int64_t size, int64_t room) {
    const int64_t spare = room >= HUGE_BYTES ? HUGE_BYTES : 0;
    const int prot = room > size ? PROT_NONE : PROT_READ | PROT_WRITE;
    char *start = mmap(NULL, (size_t)(room + spare), prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return NULL;
    const ptrdiff_t before = spare ? (ptrdiff_t)((rest_of(a, size) - (uintptr_t)start) % HUGE_BYTES) : 0;
    char *arena = start + before;
    if (before)
        munmap(start, (size_t)before);
    if (before < spare)
        munmap(arena + room, (size_t)(spare - before));
    if (room > size && mprotect(arena, (size_t)size, PROT_READ | PROT_WRITE)) {
        munmap(arena, (size_t)room);
        return NULL;
    }
    if (size >= HUGE_BYTES)
        take_huge_pages(arena, size);
    return arena;
}

/* The same with room to grow, where the arena is to have some and the system has the addresses. */
static char *map(const fx_arena *a, int64_t bytes, int64_t *room) {
    const int64_t size = fx_arena_size(bytes), most = 2 * size + ROOM_BYTES;
    char *roomy = a->is_roomy && size < ROOMY_MAX ? map_room(a, size, most) : NULL;
    *room = roomy ? most : size;
    return roomy ? roomy : map_room(a, size, size);
}

/* Moves whole pages to where others are mapped. No bytes are copied, so there are never two arenas in memory. An arena
 * that has moved before consists of several mappings, and the system moves one at a time. Returns the bytes that moved,
 * from the first on: less than size where it failed. */
static int64_t move_pages(char *from, char *to, int64_t size) {
    if (mremap(from, (size_t)size, (size_t)size, MREMAP_MAYMOVE | MREMAP_FIXED, to) != MAP_FAILED)
        return size;
    const int64_t page = sysconf(_SC_PAGESIZE), half = size / 2 / page * page;
    if (!half || errno != EFAULT)
        return 0;
    const int64_t moved = move_pages(from, to, half);
    return moved < half ? moved : half + move_pages(from + half, to + half, size - half);
}

/* Takes pages of its room; an arena that has it keeps its place. */
static fx_status widen(fx_arena *a, int64_t bytes) {
    const int64_t before = fx_arena_size(a->bytes), size = fx_arena_size(bytes);
    if (size > before && mprotect(a->memory + before, (size_t)(size - before), PROT_READ | PROT_WRITE))
        return FX_ERR_MEMORY;
    take_huge_pages(a->memory, size);
    a->bytes = bytes;
    return FX_OK;
}

fx_status fx_arena_grow(fx_arena *a, int64_t bytes) {
    if (fx_arena_is_running(a))
        return FX_ERR_RUNNING;
    if (a->memory && bytes <= a->bytes)
        return FX_OK;
    if (a->memory && bytes <= a->room)
        return widen(a, bytes);
    int64_t room = 0;
    char *larger = fx_arena_is_lost(a) ? NULL : map(a, bytes, &room);
    if (!larger)
        return FX_ERR_MEMORY;
    const int64_t size = a->memory ? fx_arena_size(a->bytes) : 0;
    const int64_t moved = a->memory ? move_pages(a->memory, larger, size) : 0;
    if (moved < size) {
        munmap(larger, (size_t)room);
        if (!moved)
            return FX_ERR_MEMORY;
        munmap(a->memory, (size_t)a->room);
        a->memory = NULL;
        return FX_ERR_MEMORY;
    }
    if (size < a->room)
        munmap(a->memory + size, (size_t)(a->room - size));
    take_huge_pages(larger, fx_arena_size(bytes));
    a->memory = larger;
    a->bytes = bytes;
    a->room = room;
    return FX_OK;
}

fx_status fx_arena_cut(fx_arena *a, int64_t bytes) {
    if (fx_arena_is_running(a))
        return FX_ERR_RUNNING;
    if (!a->memory || bytes >= a->bytes)
        return FX_OK;
    const int64_t size = fx_arena_size(bytes);
    if (size < fx_arena_size(a->bytes)) {
        munmap(a->memory + size, (size_t)(a->room - size));
        a->room = size;
    }
    a->bytes = bytes;
    return FX_OK;
}

void fx_arena_free(fx_arena *a) {
    if (a->memory)
        munmap(a->memory, (size_t)a->room);
    a->memory = NULL;
    a->bytes = a->room = 0;
    atomic_store(&a->state, FX_ARENA_OPEN);
}

fx_status fx_arena_bind(fx_arena *a, int is_bound) {
    if (fx_arena_is_running(a))
        return FX_ERR_RUNNING;
    atomic_store(&a->state, is_bound ? FX_ARENA_BOUND : FX_ARENA_OPEN);
    return FX_OK;
}

fx_status fx_arena_begin(fx_arena *a) {
    int state = FX_ARENA_BOUND;
    return atomic_compare_exchange_strong(&a->state, &state, FX_ARENA_RUNNING) ? FX_OK : FX_ERR_RUNNING;
}

void fx_arena_end(fx_arena *a) {
    atomic_store(&a->state, FX_ARENA_BOUND);
}

int fx_arena_back(fx_arena *a, int64_t at, int64_t bytes) {
    const int64_t size = a->memory ? fx_arena_size(a->bytes) : 0, end = at + bytes < size ? at + bytes : size;
    return at < end && madvise(a->memory + at, (size_t)(end - at), MADV_POPULATE_WRITE) == 0;
}

void fx_arena_forget(void *start, int64_t bytes) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), low = ((uintptr_t)start + page - 1) / page * page;
    uintptr_t high = ((uintptr_t)start + (uintptr_t)bytes) / page * page;
    if (low < high)
        madvise((char *)start + (low - (uintptr_t)start), (size_t)(high - low), MADV_DONTNEED);
}
