/* The one buffer of an engine. While a run goes on it neither grows nor shrinks: its own state refuses it. */
#ifndef FLEXNN_ENGINE_ARENA_H
#define FLEXNN_ENGINE_ARENA_H

#include "flexnn/ops.h"

#include <stdatomic.h>
#include <stdint.h>

typedef enum fx_arena_state {
    FX_ARENA_OPEN,    /* no program is bound */
    FX_ARENA_BOUND,   /* it may grow, and shrink to what the bound programs need */
    FX_ARENA_RUNNING, /* it stays as it is */
} fx_arena_state;

/* All zeros: an arena without memory, open. */
typedef struct fx_arena {
    char *memory; /* NULL: none; with bytes > 0: the system lost it as it grew, and nothing runs until
                   * every program is unbound and the engine is trimmed */
    int64_t bytes;
    int64_t room;     /* bytes from `memory` on whose addresses it has; what lies beyond its pages cannot be touched */
    atomic_int state; /* fx_arena_state */
    int ends_whole;   /* its end, not its start, is aligned to a huge page */
    int is_roomy;     /* it takes more addresses than it needs, so that it need not move as it grows */
} fx_arena;

/* Grows the arena to at least `bytes`; its contents stay, and the new bytes are zeros. It is aligned to a page, and
 * where a huge page fits its start, or its end, to that; it takes huge pages, which stay whole as it grows. Untouched
 * pages take no memory. FX_ERR_RUNNING; FX_ERR_MEMORY: the arena is as it was, or lost. */
fx_status fx_arena_grow(fx_arena *a, int64_t bytes);
/* Returns what lies beyond `bytes` to the system. FX_ERR_RUNNING. */
fx_status fx_arena_cut(fx_arena *a, int64_t bytes);
/* Frees the arena, whatever its state is. */
void fx_arena_free(fx_arena *a);

/* From open to bound, or back. FX_ERR_RUNNING. */
fx_status fx_arena_bind(fx_arena *a, int is_bound);
/* From bound to running. FX_ERR_RUNNING if it is not bound, or running already. */
fx_status fx_arena_begin(fx_arena *a);
/* From running to bound. */
void fx_arena_end(fx_arena *a);

static inline int fx_arena_is_running(const fx_arena *a) {
    return atomic_load(&a->state) == FX_ARENA_RUNNING;
}
static inline int fx_arena_is_lost(const fx_arena *a) {
    return !a->memory && a->bytes;
}

/* Has the system give memory to the pages from `at` (a multiple of a page) on, so that no run waits for it. Returns
 * whether it did: not beyond the end, nor where the system cannot or has none left, which changes nothing else. */
int fx_arena_back(fx_arena *a, int64_t at, int64_t bytes);

/* Returns the whole pages inside a range of an arena to the system; they read as zeros until written. */
void fx_arena_forget(void *start, int64_t bytes);

/* Memory that an arena of `bytes` takes: whole pages, at least one. */
int64_t fx_arena_size(int64_t bytes);

#endif
