/* Tensors that are told by those of another graph: what a file says of them is in range. */
#include "flexnn/trail.h"

#include <stdbool.h>
#include <stdlib.h>

static bool is_index(int64_t index, int64_t count) {
    return index >= 0 && index < count;
}

/* Whether indices are -1 or those of values that are sizes; is_float: of each value, NULL: none is. */
static bool are_sizes(const fx_told *t, const bool *is_float, const int32_t *indices, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (indices[i] != -1 && (!is_index(indices[i], t->extents.value_count) || (is_float && is_float[indices[i]])))
            return false;
    return true;
}

static bool are_tensors(const fx_told *t, const int64_t *indices, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (!is_index(indices[i], t->extents.count))
            return false;
    return true;
}

/* Whether the roots own their storage, and so do the ports. */
static bool are_owners(const fx_told *t) {
    const int32_t *roots = t->extents.roots;
    for (int64_t i = 0; i < t->extents.count; i++)
        if (!is_index(roots[i], t->extents.count) || !is_index(roots[roots[i]], t->extents.count) ||
            roots[roots[i]] != roots[i])
            return false;
    for (int64_t i = 0; i < t->port_count; i++)
        if (!is_index(t->ports[i], t->order_count) || roots[t->order[t->ports[i]]] != t->order[t->ports[i]])
            return false;
    return true;
}

fx_status fx_told_check(const fx_told *t) {
    const fx_extents *e = &t->extents;
    bool *is_float = NULL;
    if (t->float_count) {
        is_float = calloc((size_t)e->value_count + 1, sizeof *is_float);
        if (!is_float)
            return FX_ERR_MEMORY;
    }
    bool good = true;
    for (int64_t i = 0; good && i < t->float_count; i++) {
        good = is_index(t->floats[i], e->value_count);
        if (good)
            is_float[t->floats[i]] = true;
    }
    good = good && are_sizes(t, is_float, e->shapes, e->count * e->rank) &&
           are_sizes(t, is_float, e->strides, e->count * e->rank) && are_sizes(t, is_float, e->offsets, e->count) &&
           are_tensors(t, t->order, t->order_count) && are_tensors(t, t->also, t->also_count) && are_owners(t);
    free(is_float);
    return good ? FX_OK : FX_ERR_PARAMS;
}
