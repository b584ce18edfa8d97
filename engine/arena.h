/* The one buffer of a host. */
#ifndef FLEXNN_ARENA_H
#define FLEXNN_ARENA_H

#include <stdint.h>

/* Makes *arena one of `bytes`, more than it has (NULL and 0: none): what it holds comes along, the rest is zeroed. On
 * huge pages where whole ones fit; aligned to a page, and to a huge page if one fits. Untouched pages take no memory.
 * 0: there is no memory, and *arena is as it was; or NULL, if the system has moved only a part of it. */
int fx_arena_grow(char **arena, int64_t old_bytes, int64_t bytes);
/* Gives back what lies beyond `bytes`. */
void fx_arena_cut(void *arena, int64_t old_bytes, int64_t bytes);
/* Gives the whole pages inside a range of an arena back; they read as zeros until written. */
void fx_arena_forget(void *start, int64_t bytes);
void fx_arena_unmap(void *arena, int64_t bytes);

/* What an arena of so many bytes takes: rounded up to pages, at least one. */
int64_t fx_arena_size(int64_t bytes);

#endif
