/* A skyline over addresses: the last step in which each byte of an arena is in use, as spans. Few spans are a row in
 * the order of their addresses, many a tree in which a place is found in a time that hardly grows with them; both give
 * the same answers. */
#ifndef FLEXNN_PLANNER_SKYLINE_H
#define FLEXNN_PLANNER_SKYLINE_H

#include "flexnn/ops.h"

/* What a slice of bytes asks for. */
typedef struct fx_wish {
    int64_t bytes;
    int64_t forced; /* the only address, -1: any */
    int64_t before; /* a place that is in use at this step or later is of no use; forced ones are told all the same */
    int from_top;   /* the highest of equal places, not the lowest */
} fx_wish;

typedef struct fx_row_span fx_row_span;

typedef struct fx_row {
    fx_row_span *spans, *made;
    int64_t count, max;
    int64_t align, floor;
} fx_row;

typedef struct fx_tree_span fx_tree_span;

typedef struct fx_tree {
    fx_tree_span *spans;
    int32_t root, unused; /* unused: the first of the list of spans that are not in the tree, -1: none */
    int32_t count, max;   /* spans that were ever used, spans that are allocated */
    int64_t arena, align, floor;
    uint64_t random;
} fx_tree;

/* Zeroed at first, but is_tree. */
typedef struct fx_skyline {
    int is_tree;
    fx_row row;
    fx_tree tree;
} fx_skyline;

/* Each does for its kind what the function of fx_skyline below does. */
fx_status fx_row_clear(fx_row *s, int64_t arena, int64_t align, int64_t floor);
fx_status fx_row_copy(fx_row *to, const fx_row *from);
fx_status fx_row_add(fx_row *s, int64_t start, int64_t end, int64_t until);
void fx_row_raise(fx_row *s, int64_t floor);
int64_t fx_row_find(const fx_row *s, const fx_wish *wish, int64_t *until);
void fx_row_free(fx_row *s);
fx_status fx_tree_clear(fx_tree *s, int64_t arena, int64_t align, int64_t floor);
fx_status fx_tree_copy(fx_tree *to, const fx_tree *from);
fx_status fx_tree_add(fx_tree *s, int64_t start, int64_t end, int64_t until);
void fx_tree_raise(fx_tree *s, int64_t floor);
int64_t fx_tree_find(const fx_tree *s, const fx_wish *wish, int64_t *until);
void fx_tree_free(fx_tree *s);

/* Makes nothing in use; uses before `floor` do not matter. FX_ERR_MEMORY. */
static inline fx_status fx_skyline_clear(fx_skyline *s, int64_t arena, int64_t align, int64_t floor) {
    return s->is_tree ? fx_tree_clear(&s->tree, arena, align, floor) : fx_row_clear(&s->row, arena, align, floor);
}

/* Makes `to` equal to `from`, which is of the same kind. FX_ERR_MEMORY. */
static inline fx_status fx_skyline_copy(fx_skyline *to, const fx_skyline *from) {
    return to->is_tree ? fx_tree_copy(&to->tree, &from->tree) : fx_row_copy(&to->row, &from->row);
}

/* Marks bytes [start, end) as in use up to a step. FX_ERR_MEMORY. */
static inline fx_status fx_skyline_add(fx_skyline *s, int64_t start, int64_t end, int64_t until) {
    return s->is_tree ? fx_tree_add(&s->tree, start, end, until) : fx_row_add(&s->row, start, end, until);
}

/* Raises the floor: uses that end before it no longer matter. */
static inline void fx_skyline_raise(fx_skyline *s, int64_t floor) {
    if (s->is_tree)
        fx_tree_raise(&s->tree, floor);
    else
        fx_row_raise(&s->row, floor);
}

/* The aligned address whose bytes are free the earliest; *until: the last step in which they are in use, at least the
 * one before the floor (INT64_MAX: there is no place). */
static inline int64_t fx_skyline_find(const fx_skyline *s, const fx_wish *wish, int64_t *until) {
    return s->is_tree ? fx_tree_find(&s->tree, wish, until) : fx_row_find(&s->row, wish, until);
}

static inline int64_t fx_skyline_floor(const fx_skyline *s) {
    return s->is_tree ? s->tree.floor : s->row.floor;
}

static inline int64_t fx_skyline_spans(const fx_skyline *s) {
    return s->is_tree ? s->tree.count : s->row.count;
}

static inline void fx_skyline_free(fx_skyline *s) {
    fx_tree_free(&s->tree);
    fx_row_free(&s->row);
}

#endif
