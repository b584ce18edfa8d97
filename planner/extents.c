/* Sizes of a template's tensors for numbers of its trail: bytes, and where each begins in its root's storage. */
#include "flexnn/trail.h"

#include <stdbool.h>

#define STRIDE_MAX ((int64_t)1 << 46)
#define BYTES_MAX ((int64_t)1 << 40)

/* The dimensions of a tensor, and how far it reaches. */
typedef struct tensor {
    int64_t start, elements, last; /* in elements; last: of the root */
    bool is_sane;
} tensor;

/* Reads the number at an index, 1 where that is -1. False: the index is out of range. */
static bool read_number(const fx_extents *e, const int64_t *values, int32_t index, int64_t *number) {
    if (index < -1 || index >= e->value_count)
        return false;
    *number = index < 0 ? 1 : values[index];
    return true;
}

static bool is_within(int64_t number, int64_t most) {
    return number >= 0 && number <= most;
}

/* Reads a tensor; false: an index is out of range. */
static bool read_tensor(const fx_extents *e, const int64_t *values, int64_t i, tensor *t) {
    if (!read_number(e, values, e->offsets[i], &t->start))
        return false;
    bool is_empty = false, is_large = false;
    t->is_sane = is_within(t->start, STRIDE_MAX);
    t->elements = 1;
    t->last = t->start;
    for (int64_t k = i * e->rank; k < (i + 1) * e->rank; k++) {
        int64_t size, stride, reach;
        if (!read_number(e, values, e->shapes[k], &size) || !read_number(e, values, e->strides[k], &stride))
            return false;
        t->is_sane = t->is_sane && is_within(size, INT32_MAX) && is_within(stride, STRIDE_MAX);
        is_empty = is_empty || size == 0;
        is_large = __builtin_mul_overflow(t->elements, size, &t->elements) || is_large;
        is_large = __builtin_sub_overflow(size, 1, &reach) || is_large;
        is_large = __builtin_mul_overflow(reach, stride, &reach) || is_large;
        is_large = __builtin_add_overflow(t->last, reach, &t->last) || is_large;
    }
    t->elements = is_empty ? 0 : t->elements;
    t->last = is_empty ? -1 : t->last;
    t->is_sane = t->is_sane && (is_empty || !is_large);
    return true;
}

/* The bytes of a number of elements; `is_sane` becomes false where they are more than a tensor has. */
static int64_t bytes_of(int64_t elements, int64_t width, bool *is_sane) {
    int64_t nbytes;
    if (__builtin_mul_overflow(elements, width, &nbytes)) {
        *is_sane = false;
        return 0;
    }
    return nbytes;
}

fx_status fx_trail_extents(const fx_extents *e, const int64_t *values, int64_t *nbytes, int64_t *starts, int *holds) {
    bool is_sane = true;
    tensor t;
    *holds = 0;
    for (int64_t i = 0; i < e->count; i++) {
        if (e->roots[i] < 0 || e->roots[i] >= e->count || !read_tensor(e, values, i, &t))
            return FX_ERR_PARAMS;
        nbytes[i] = bytes_of(t.elements, e->widths[i], &t.is_sane);
        starts[i] = bytes_of(t.start, e->widths[i], &t.is_sane);
        is_sane = is_sane && t.is_sane && nbytes[i] <= BYTES_MAX;
    }
    for (int64_t i = 0; is_sane && i < e->count; i++) {
        is_sane = read_tensor(e, values, i, &t) && e->widths[i] == e->widths[e->roots[i]] && e->widths[i] > 0 &&
                  (t.last < 0 || t.last < nbytes[e->roots[i]] / e->widths[i]);
    }
    *holds = is_sane;
    return FX_OK;
}
