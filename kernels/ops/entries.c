/* Sorting of entries: quicksort over the median of three, without recursion; parts that stay large become heaps. */
#include "entries.h"
#include "dtypes.h"

#define SMALL 16 /* entries that are sorted by insertion */
#define STACK 64 /* the smaller part is sorted first, so as many parts as bits of a length are ever waiting */

int fx_compare_rows(const fx_sorted_rows *rows, int64_t a, int64_t b) {
    for (int64_t i = 1; i < rows->n; i++) {
        uint64_t left, right;
        fx_dtype_keys(rows->dtype, rows->x, a * rows->n + i, 1, 1, &left);
        fx_dtype_keys(rows->dtype, rows->x, b * rows->n + i, 1, 1, &right);
        if (left != right)
            return left < right ? -1 : 1;
    }
    return 0;
}

static int is_less(const fx_keyed *a, const fx_keyed *b, const fx_sorted_rows *rows) {
    if (a->key == b->key && rows) {
        const int order = fx_compare_rows(rows, a->index, b->index);
        if (order)
            return order < 0;
    }
    return fx_keyed_is_less(a, b);
}

static void swap(fx_keyed *a, fx_keyed *b) {
    const fx_keyed t = *a;
    *a = *b;
    *b = t;
}

static void sink(fx_keyed *e, int64_t n, int64_t i, const fx_sorted_rows *rows) {
    const fx_keyed moved = e[i];
    for (int64_t child = 2 * i + 1; child < n; child = 2 * i + 1) {
        child += child + 1 < n && is_less(&e[child], &e[child + 1], rows);
        if (!is_less(&moved, &e[child], rows))
            break;
        e[i] = e[child];
        i = child;
    }
    e[i] = moved;
}

void fx_heap_make(fx_keyed *e, int64_t n) {
    for (int64_t i = n / 2 - 1; i >= 0; i--)
        sink(e, n, i, 0);
}

void fx_heap_restore(fx_keyed *e, int64_t n) {
    sink(e, n, 0, 0);
}

static void sort_by_heap(fx_keyed *e, int64_t n, const fx_sorted_rows *rows) {
    for (int64_t i = n / 2 - 1; i >= 0; i--)
        sink(e, n, i, rows);
    for (int64_t end = n - 1; end > 0; end--) {
        swap(&e[0], &e[end]);
        sink(e, end, 0, rows);
    }
}

static void insert(fx_keyed *e, int64_t n, const fx_sorted_rows *rows) {
    for (int64_t i = 1; i < n; i++) {
        const fx_keyed moved = e[i];
        int64_t at = i;
        for (; at > 0 && is_less(&moved, &e[at - 1], rows); at--)
            e[at] = e[at - 1];
        e[at] = moved;
    }
}

/* Moves entries less than a median to the front, greater ones behind it, and returns the median's place. */
static int64_t part(fx_keyed *e, int64_t n, const fx_sorted_rows *rows) {
    fx_keyed *first = &e[0], *middle = &e[n / 2], *last = &e[n - 1];
    if (is_less(middle, first, rows))
        swap(middle, first);
    if (is_less(last, middle, rows))
        swap(last, middle);
    if (is_less(middle, first, rows))
        swap(middle, first);
    swap(middle, &e[n - 2]);
    const fx_keyed median = e[n - 2];
    int64_t i = 0, j = n - 2;
    for (;;) {
        while (is_less(&e[++i], &median, rows))
            ;
        while (is_less(&median, &e[--j], rows))
            ;
        if (i >= j)
            break;
        swap(&e[i], &e[j]);
    }
    swap(&e[i], &e[n - 2]);
    return i;
}

typedef struct range {
    int64_t first, n;
    int depth; /* how often it may be parted */
} range;

void fx_sort_entries(fx_keyed *e, int64_t n, const fx_sorted_rows *rows) {
    range stack[STACK];
    int waiting = 0, depth = 0;
    for (int64_t rest = n; rest > 1; rest /= 2)
        depth += 2;
    range r = {0, n, depth};
    for (;;) {
        while (r.n > SMALL && r.depth > 0) {
            const int64_t at = part(e + r.first, r.n, rows);
            const range left = {r.first, at, r.depth - 1}, right = {r.first + at + 1, r.n - at - 1, r.depth - 1};
            stack[waiting++] = left.n < right.n ? right : left;
            r = left.n < right.n ? left : right;
        }
        if (r.n > SMALL)
            sort_by_heap(e + r.first, r.n, rows);
        else
            insert(e + r.first, r.n, rows);
        if (!waiting)
            return;
        r = stack[--waiting];
    }
}
