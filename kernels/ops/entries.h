/* Entries to sort: a key and the index of what it stands for. */
#ifndef FLEXNN_OPS_ENTRIES_H
#define FLEXNN_OPS_ENTRIES_H

#include <stdint.h>

typedef struct fx_keyed {
    uint64_t key;
    int64_t index;
} fx_keyed;

/* Rows of `n` elements of a type, of whose first elements entries hold the keys: equal keys are told apart by the
 * elements after the first. */
typedef struct fx_sorted_rows {
    const void *x;
    int64_t n;
    int32_t dtype;
} fx_sorted_rows;

/* Less than 0, 0 or more: how row `a` compares with row `b`, from their second elements on. */
int fx_compare_rows(const fx_sorted_rows *rows, int64_t a, int64_t b);

/* Sorts by key, then by rows if that is not NULL, then by index; in place, in n log n steps at worst. */
void fx_sort_entries(fx_keyed *e, int64_t n, const fx_sorted_rows *rows);

/* 1 if a comes before b, by key and index. */
static inline int fx_keyed_is_less(const fx_keyed *a, const fx_keyed *b) {
    return a->key < b->key || (a->key == b->key && a->index < b->index);
}

/* A heap has its greatest entry, by key and index, at the front: makes one of n entries, or restores it after the front
 * was replaced. */
void fx_heap_make(fx_keyed *e, int64_t n);
void fx_heap_restore(fx_keyed *e, int64_t n);

#endif
