#include "touches.h"

#include "flexnn/kernels.h"

#include <stdlib.h>
#include <string.h>

#define SORTED_AT_ONCE ((int64_t)1 << 15)

void fx_node_touches(const fx_node *node, int threads, fx_node_ranges *touched) {
    for (int i = 0; i <= FX_MAX_INPUTS; i++) {
        const fx_place *o = i == FX_OUTPUT ? &node->out : &node->in[i];
        int64_t lo, hi;
        fx_op_extent(node->op, &node->params, i, &lo, &hi);
        touched->ranges[i] = o->base == FX_BASE_ARENA ? (fx_range){o->offset + lo, o->offset + hi} : (fx_range){0, 0};
    }
    touched->ranges[FX_WORKSPACE] =
        (fx_range){node->workspace_offset, node->workspace_offset + threads * node->workspace_bytes};
}

fx_range fx_step_weights(const fx_program *p, const fx_step *step) {
    const fx_node *node = &p->nodes[step->node];
    if (!(fx_op_traits(node->op) & FX_TRAIT_PANELS))
        return (fx_range){0, 0};
    int64_t panels = (step->window.c1 + FX_NR - 1) / FX_NR - step->window.c0 / FX_NR;
    return (fx_range){step->panel_offset, step->panel_offset + panels * fx_op_panel_bytes(node->op, &node->params)};
}

static int by_place(const void *a, const void *b) {
    const int64_t x = ((const fx_range *)a)->lo, y = ((const fx_range *)b)->lo;
    return (x > y) - (x < y);
}

int64_t fx_ranges_join(fx_range *ranges, int64_t count) {
    int64_t joined = 0;
    if (count > 1) /* of none there is no array */
        qsort(ranges, (size_t)count, sizeof *ranges, by_place);
    for (int64_t i = 0; i < count; i++) {
        if (ranges[i].lo >= ranges[i].hi)
            continue;
        if (joined && ranges[i].lo <= ranges[joined - 1].hi)
            ranges[joined - 1].hi = ranges[i].hi > ranges[joined - 1].hi ? ranges[i].hi : ranges[joined - 1].hi;
        else
            ranges[joined++] = ranges[i];
    }
    return joined;
}

static int by_number(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Merges sorted numbers from `first` to `middle` with those up to `end`; `spare` has room for all. */
static void merge(int64_t *numbers, int64_t first, int64_t middle, int64_t end, int64_t *spare) {
    int64_t count = 0, left = first, right = middle;
    while (left < middle || right < end)
        spare[count++] =
            right == end || (left < middle && numbers[left] <= numbers[right]) ? numbers[left++] : numbers[right++];
    memcpy(numbers + first, spare, (size_t)count * sizeof *spare);
}

/* Sorts numbers; `spare` has room for all. Leaves them out of order if poll says so. */
static void sort_numbers(int64_t *numbers, int64_t count, int64_t *spare, fx_poll *poll) {
    for (int64_t i = 0; i < count && !fx_polled(poll); i += SORTED_AT_ONCE)
        qsort(numbers + i, (size_t)(count - i < SORTED_AT_ONCE ? count - i : SORTED_AT_ONCE), sizeof *numbers,
              by_number);
    for (int64_t run = SORTED_AT_ONCE; run < count; run *= 2)
        for (int64_t i = 0; i + run < count && !fx_polled(poll); i += 2 * run)
            merge(numbers, i, i + run, i + 2 * run < count ? i + 2 * run : count, spare);
}

/* Index of the first edge that is not below a place. */
static int64_t find(const int64_t *edges, int64_t count, int64_t place) {
    int64_t low = 0, high = count;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (edges[middle] < place)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Paints the uses onto the stretches between edges, the last steps first; a painted stretch is not painted again.
 * painted[i]: steps of the stretch from edge i, 0: none yet; skip[i]: the next stretch that may be free. `used` becomes
 * the stretches, with equal neighbours joined; a list that is cut short if poll says so. */
static int64_t paint(fx_touch *used, int64_t count, int64_t *edges, uint32_t *painted, int64_t *skip, fx_poll *poll) {
    int64_t edge_count = 0, joined = 0;
    for (int64_t i = 0; i < count; i++) {
        edges[edge_count++] = used[i].range.lo;
        edges[edge_count++] = used[i].range.hi;
    }
    sort_numbers(edges, edge_count, skip, poll);
    for (int64_t i = 0; i <= edge_count; i++)
        skip[i] = i;
    for (int64_t i = count; i-- > 0;) { /* `used` is in the order of steps */
        if (!(i % FX_ASK_EVERY) && fx_polled(poll))
            return 0;
        int64_t end = find(edges, edge_count, used[i].range.hi), at = find(edges, edge_count, used[i].range.lo);
        for (;;) {
            while (skip[at] != at)
                at = skip[at] = skip[skip[at]];
            if (at >= end)
                break;
            painted[at] = used[i].steps;
            skip[at] = at + 1;
        }
    }
    for (int64_t i = 0; i + 1 < edge_count; i++) {
        if (!painted[i] || edges[i] == edges[i + 1])
            continue;
        if (joined && used[joined - 1].range.hi == edges[i] && used[joined - 1].steps == painted[i])
            used[joined - 1].range.hi = edges[i + 1];
        else
            used[joined++] = (fx_touch){{edges[i], edges[i + 1]}, painted[i]};
    }
    return joined;
}

static void *shrunk(void *memory, int64_t bytes) {
    void *smaller = realloc(memory, (size_t)bytes + 1);
    return smaller ? smaller : memory;
}

fx_status fx_touches_make(fx_touches *t, const fx_program *p, int threads, fx_poll *poll) {
    const int64_t most = (int64_t)p->step_count * (FX_RANGES + 1) + p->load_count + p->pinned_count + 1;
    memset(t, 0, sizeof *t);
    t->used = malloc((size_t)most * sizeof *t->used);
    t->writes = malloc((size_t)most * sizeof *t->writes);
    t->pinned = malloc((size_t)most * sizeof *t->pinned);
    int64_t *edges = malloc((size_t)(2 * most) * sizeof *edges), *skip = malloc((size_t)(2 * most + 1) * sizeof *skip);
    uint32_t *painted = calloc((size_t)(2 * most), sizeof *painted);
    const int good = t->used && t->writes && t->pinned && edges && skip && painted;
    for (uint32_t i = 0; good && i < p->step_count && (i % FX_ASK_EVERY || !fx_polled(poll)); i++) {
        fx_node_ranges node;
        fx_node_touches(&p->nodes[p->steps[i].node], threads, &node);
        for (int j = 0; j <= FX_RANGES; j++) {
            fx_range range = j < FX_RANGES ? node.ranges[j] : fx_step_weights(p, &p->steps[i]);
            if (range.lo < range.hi)
                t->used[t->used_count++] = (fx_touch){range, i + 1};
            if (j == FX_OUTPUT || j == FX_WORKSPACE)
                t->writes[t->write_count++] = range;
        }
    }
    if (good) {
        for (uint32_t i = 0; i < p->load_count; i++)
            t->writes[t->write_count++] = fx_load_target(&p->loads[i]);
        for (uint32_t i = 0; i < p->pinned_count; i++)
            t->pinned[t->pinned_count++] = fx_load_target(&p->pinned[i]);
        t->pinned[t->pinned_count++] = (fx_range){p->zeros_offset, p->zeros_offset + 4 * p->zeros_count};
        t->used_count = paint(t->used, t->used_count, edges, painted, skip, poll);
        fx_polled(poll);
        t->write_count = fx_ranges_join(t->writes, t->write_count);
        t->pinned_count = fx_ranges_join(t->pinned, t->pinned_count);
        t->used = shrunk(t->used, t->used_count * (int64_t)sizeof *t->used);
        t->writes = shrunk(t->writes, t->write_count * (int64_t)sizeof *t->writes);
        t->pinned = shrunk(t->pinned, t->pinned_count * (int64_t)sizeof *t->pinned);
        t->bytes =
            t->used_count * (int64_t)sizeof *t->used + (t->write_count + t->pinned_count) * (int64_t)sizeof *t->writes;
    }
    free(edges);
    free(skip);
    free(painted);
    if (!good || poll->cancelled)
        fx_touches_free(t);
    return !good ? FX_ERR_MEMORY : poll->cancelled ? FX_ERR_CANCELLED : FX_OK;
}

void fx_touches_free(fx_touches *t) {
    free(t->used);
    free(t->writes);
    free(t->pinned);
    memset(t, 0, sizeof *t);
}

uint32_t fx_touches_until(const fx_touches *t, fx_range range) {
    int64_t low = 0, high = t->used_count;
    uint32_t steps = 0;
    while (low < high) { /* the first that ends after the range begins */
        int64_t middle = (low + high) / 2;
        if (t->used[middle].range.hi <= range.lo)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < t->used_count && t->used[low].range.lo < range.hi; low++)
        steps = t->used[low].steps > steps ? t->used[low].steps : steps;
    return steps;
}

int fx_list_meets(const fx_range *list, int64_t count, fx_range range) {
    int64_t low = 0, high = count;
    while (low < high) { /* the first that ends after the range begins */
        const int64_t middle = (low + high) / 2;
        if (list[middle].hi <= range.lo)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && fx_ranges_meet(list[low], range);
}

int fx_lists_meet(const fx_range *a, int64_t a_count, const fx_range *b, int64_t b_count) {
    for (int64_t i = 0, j = 0; i < a_count && j < b_count;) {
        if (fx_ranges_meet(a[i], b[j]))
            return 1;
        if (a[i].hi <= b[j].hi)
            i++;
        else
            j++;
    }
    return 0;
}
