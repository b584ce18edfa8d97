/* A skyline over addresses: the last step in which each byte of an arena is in use. A treap of spans: what has a place
 * is found in a time that hardly grows with the spans. */
#ifndef FLEXNN_PLANNER_SKYLINE_H
#define FLEXNN_PLANNER_SKYLINE_H

#include "flexnn/ops.h"

typedef struct fx_span fx_span;

typedef struct fx_skyline {
    fx_span *spans;
    int32_t root, unused; /* unused: the first of the list of spans that are not in the tree, -1: none */
    int32_t count, max;   /* spans that were ever used, spans that are allocated */
    int64_t arena, align, floor;
    uint64_t random;
} fx_skyline;

/* What a slice of bytes asks for. */
typedef struct fx_wish {
    int64_t bytes;
    int64_t forced; /* the only address, -1: any */
    int64_t before; /* a place that is in use at this step or later is of no use; forced ones are told all the same */
    int from_top;   /* the highest of equal places, not the lowest */
} fx_wish;

/* Makes nothing in use; uses before `floor` do not matter. The skyline is zeroed at first. FX_ERR_MEMORY. */
fx_status fx_skyline_clear(fx_skyline *s, int64_t arena, int64_t align, int64_t floor);
void fx_skyline_free(fx_skyline *s);

/* Makes `to` equal to `from`. FX_ERR_MEMORY. */
fx_status fx_skyline_copy(fx_skyline *to, const fx_skyline *from);

/* Marks bytes [start, end) as in use up to a step. FX_ERR_MEMORY. */
fx_status fx_skyline_add(fx_skyline *s, int64_t start, int64_t end, int64_t until);

/* Raises the floor: uses that end before it no longer matter. */
void fx_skyline_raise(fx_skyline *s, int64_t floor);

/* The aligned address whose bytes are free the earliest; *until: the last step in which they are in use, at least the
 * one before the floor (INT64_MAX: there is no place). */
int64_t fx_skyline_find(const fx_skyline *s, const fx_wish *wish, int64_t *until);

#endif
