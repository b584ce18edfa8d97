/* Fuzz target: sizes of a template's tensors. Indices that are out of range are refused; else the numbers hold exactly
 * where arithmetic of 128 bits says that every tensor has a size and lies inside its root. */
#include "../engine/require.h"
#include "flexnn/trail.h"
#include "input.h"

enum { TENSORS_MAX = 4, RANK_MAX = 3, VALUES_MAX = 8 };

static const __int128 STRIDE_MAX = (__int128)1 << 46, BYTES_MAX = (__int128)1 << 40, WORD_MAX = INT64_MAX;

/* What arithmetic of 128 bits says of a tensor. */
typedef struct exact {
    __int128 start, elements, last; /* last: -1 where there is no element */
    int is_sane;
} exact;

static exact exactly(const fx_extents *e, const int64_t *values, int64_t i) {
    exact t = {.start = e->offsets[i] < 0 ? 1 : values[e->offsets[i]], .elements = 1, .is_sane = 1};
    int is_empty = 0;
    t.last = t.start;
    t.is_sane = t.start >= 0 && t.start <= STRIDE_MAX;
    for (int64_t k = i * e->rank; k < (i + 1) * e->rank; k++) {
        const __int128 size = e->shapes[k] < 0 ? 1 : values[e->shapes[k]];
        const __int128 stride = e->strides[k] < 0 ? 1 : values[e->strides[k]];
        t.is_sane = t.is_sane && size >= 0 && size <= INT32_MAX && stride >= 0 && stride <= STRIDE_MAX;
        if (!t.is_sane)
            return t;
        is_empty = is_empty || !size;
        t.elements *= size;
        t.last += (size - 1) * stride;
    }
    t.last = is_empty ? -1 : t.last;
    t.is_sane = t.is_sane && t.elements <= WORD_MAX && t.last <= WORD_MAX;
    return t;
}

/* Whether all tensors have sizes and lie inside their roots. */
static int all_hold(const fx_extents *e, const int64_t *values) {
    for (int64_t i = 0; i < e->count; i++) {
        const exact t = exactly(e, values, i);
        const __int128 width = e->widths[i];
        if (!t.is_sane || width <= 0 || t.elements * width > BYTES_MAX || t.start * width > WORD_MAX)
            return 0;
    }
    for (int64_t i = 0; i < e->count; i++) {
        const exact t = exactly(e, values, i), root = exactly(e, values, e->roots[i]);
        if (e->widths[i] != e->widths[e->roots[i]] || t.last >= root.elements)
            return 0;
    }
    return 1;
}

/* An array of its exact size, which the address sanitizer sees: indices below `below` or -1, rarely others. */
static int32_t *indices(input *in, int64_t count, int64_t below) {
    int32_t *made = malloc(sizeof *made * (size_t)(count ? count : 1));
    CHECK(made);
    for (int64_t i = 0; i < count; i++) {
        const uint8_t drawn = take_byte(in);
        made[i] = drawn >= 0xfc ? (int32_t)take(in, 4) : (int32_t)(drawn % (below + 1)) - 1;
    }
    return made;
}

static int64_t *numbers(input *in, int64_t count, uint64_t usual) {
    int64_t *made = malloc(sizeof *made * (size_t)(count ? count : 1));
    CHECK(made);
    for (int64_t i = 0; i < count; i++)
        made[i] = (int64_t)(take_byte(in) % 4 ? take_below(in, usual + 1) : changed(in, usual));
    return made;
}

static int are_in_range(const int32_t *made, int64_t count, int64_t least, int64_t below) {
    for (int64_t i = 0; i < count; i++)
        if (made[i] < least || made[i] >= below)
            return 0;
    return 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    input in = {data, size, 0};
    fx_extents e = {.count = (int64_t)take_below(&in, TENSORS_MAX + 1), .rank = (int64_t)take_below(&in, RANK_MAX + 1)};
    e.value_count = (int64_t)take_below(&in, VALUES_MAX + 1);
    const int64_t sides = e.count * e.rank;
    int64_t *values = numbers(&in, e.value_count, 6), *widths = numbers(&in, e.count, 2);
    int32_t *shapes = indices(&in, sides, e.value_count), *strides = indices(&in, sides, e.value_count);
    int32_t *offsets = indices(&in, e.count, e.value_count), *roots = indices(&in, e.count, e.count);
    int64_t *nbytes = numbers(&in, e.count, 1), *starts = numbers(&in, e.count, 1);
    int holds = -1;
    for (int64_t i = 0; i < e.count; i++) /* often its own */
        roots[i] = roots[i] == -1 ? (int32_t)i : roots[i];
    e.shapes = shapes, e.strides = strides, e.offsets = offsets, e.roots = roots, e.widths = widths;
    const int is_good = are_in_range(shapes, sides, -1, e.value_count) && are_in_range(roots, e.count, 0, e.count) &&
                        are_in_range(strides, sides, -1, e.value_count) &&
                        are_in_range(offsets, e.count, -1, e.value_count);
    CHECK(fx_trail_extents(&e, values, nbytes, starts, &holds) == (is_good ? FX_OK : FX_ERR_PARAMS));
    CHECK(holds == (is_good && all_hold(&e, values)));
    for (int64_t i = 0; holds && i < e.count; i++) {
        const exact t = exactly(&e, values, i);
        CHECK(nbytes[i] == t.elements * widths[i] && starts[i] == t.start * widths[i]);
    }
    free(values), free(widths), free(shapes), free(strides), free(offsets), free(roots), free(nbytes), free(starts);
    return 0;
}
