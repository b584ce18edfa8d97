/* The one buffer of a session. */
#ifndef FLEXNN_ARENA_H
#define FLEXNN_ARENA_H

#include <stdint.h>

/* Zeroed memory of at least bytes, on huge pages where whole ones fit; aligned to a page, and to a huge page if one
 * fits. Untouched pages take no memory. NULL: none. */
void *fx_arena_map(int64_t bytes);
/* Gives the whole pages inside a range of an arena back; they read as zeros until written. */
void fx_arena_forget(void *start, int64_t bytes);
void fx_arena_unmap(void *arena, int64_t bytes);

/* What fx_arena_map takes for so many bytes: rounded up to pages. */
int64_t fx_arena_size(int64_t bytes);

#endif
