/* See band_walk.h. */
#include "band_walk.h"

#include <stdlib.h>

#define LINE 64

static void *table(int64_t count, size_t size) {
    return calloc((size_t)(count + 1), size);
}

void fx_walk_free(fx_walk *w) {
    free(w->inner), free(w->written), free(w->want), free(w->kept), free(w->rows), free(w->done);
    free(w->change), free(w->begin), free(w->end), free(w->reads), free(w->read_count);
    free(w->ahead), free(w->behind), free(w->writer), free(w->next);
}

bool fx_walk_make(fx_walk *w, const fx_band_graph *g, bool may_pair) {
    const int64_t roots = g->root_count, nodes = g->node_count;
    *w = (fx_walk){.g = g, .first = -1, .last = -1, .may_pair = may_pair};
    w->inner = table(roots, sizeof(bool)), w->written = table(roots, sizeof(bool));
    w->want = table(roots, sizeof(fx_band_span)), w->kept = table(roots, sizeof(fx_band_span));
    w->begin = table(roots, sizeof(int64_t)), w->end = table(roots, sizeof(int64_t));
    w->reads = table(g->use_count, sizeof *w->reads), w->read_count = table(nodes, sizeof(int64_t));
    w->rows = table(nodes, sizeof(fx_band_span)), w->done = table(nodes, sizeof(int64_t));
    w->change = table(nodes, sizeof(int64_t));
    w->writer = table(roots, sizeof(int64_t)), w->next = table(nodes, sizeof(int64_t));
    w->ahead = table(nodes, sizeof(int64_t)), w->behind = table(nodes, sizeof(int64_t));
    if (!w->inner || !w->written || !w->want || !w->kept || !w->begin || !w->end || !w->reads || !w->read_count ||
        !w->rows || !w->done || !w->change || !w->ahead || !w->behind || !w->writer || !w->next)
        return false;
    for (int64_t i = 1; i < nodes; i++) {
        const int64_t j = nodes - 1 - i, before = g->nodes[i - 1].need_bytes, after = g->nodes[j + 1].need_bytes;
        w->ahead[i] = w->ahead[i - 1] > before ? w->ahead[i - 1] : before;
        w->behind[j] = w->behind[j + 1] > after ? w->behind[j + 1] : after;
    }
    return true;
}

static fx_band_span join(fx_band_span a, fx_band_span b) {
    if (a.low >= a.high)
        return b;
    if (b.low >= b.high)
        return a;
    return (fx_band_span){a.low < b.low ? a.low : b.low, a.high > b.high ? a.high : b.high};
}

/* Rows of a view in which rows of its root lie. */
static fx_band_span of_view(const fx_band_use *use, fx_band_span root) {
    if (root.low >= root.high)
        return (fx_band_span){0, 0};
    const int64_t low = fx_floor_div(root.low - use->at - use->thick, use->step) + 1;
    const int64_t high = -fx_floor_div(use->at - root.high, use->step);
    return (fx_band_span){fx_clip(low, 0, use->height), fx_clip(high, 0, use->height)};
}

bool fx_walk_begin(fx_walk *w, int64_t first, int64_t last) {
    const fx_band_graph *g = w->g;
    w->first = first, w->last = last;
    w->work = w->read = 0;
    for (int64_t i = first; i <= last; i++) {
        w->work += (double)g->nodes[i].work;
        w->read += (double)g->nodes[i].read_work;
        for (int64_t k = 0; k < g->nodes[i].use_count; k++) {
            const int64_t r = fx_uses_of(w, i)[k].root;
            const fx_band_root *root = &g->roots[r];
            w->inner[r] = root->kind && root->nbytes && root->first_node >= first && root->last_node <= last;
            w->written[r] = false, w->writer[r] = w->end[r] = -1;
            w->kept[r] = (fx_band_span){0, 0};
        }
    }
    for (int64_t i = last; i >= first; i--) {
        const int64_t r = fx_uses_of(w, i)[0].root;
        w->written[r] = true;
        w->next[i] = w->writer[r], w->writer[r] = i;
    }
    int64_t count = 0;
    for (int64_t i = first; i <= last; i++) {
        const int64_t before = count;
        for (int64_t k = 1; k < g->nodes[i].use_count; k++) {
            const fx_band_use *use = &fx_uses_of(w, i)[k];
            if (!w->written[use->root])
                continue;
            if (!use->height || !g->roots[use->root].kind)
                return false;
            w->reads[count++] = use;
        }
        w->read_count[i] = count - before;
    }
    w->reads_end = count;
    if (w->may_pair)
        fx_pairs_find(w);
    return true;
}

/* Whether nodes behind one that reads some rows of a root, or itself, have written over them in an earlier band. */
static bool is_overwritten(const fx_walk *w, int64_t node, const fx_band_use *use, fx_band_span read) {
    for (int64_t j = w->writer[use->root]; j >= 0; j = w->next[j]) {
        const fx_band_use *over = fx_uses_of(w, j);
        const bool meets = j >= node && over->part_low < use->part_high && use->part_low < over->part_high;
        if (meets && w->done[j] > 0 && read.low < over->at + over->step * (w->done[j] - 1) + over->thick)
            return true;
    }
    return false;
}

/* An inner root lives at a node; nodes come from the last to the first. */
static void touch(fx_walk *w, int64_t root, int64_t node) {
    w->begin[root] = node;
    if (w->end[root] < 0)
        w->end[root] = node;
}

/* Finds the rows of each node in a band, from the last node to the first, and where inner roots live. False: a row
 * would be overwritten before it is read. */
static bool find_rows(fx_walk *w, int64_t band) {
    for (int64_t i = w->first; i <= w->last; i++) {
        const int64_t out = fx_uses_of(w, i)[0].root; /* what no node here writes has no rows */
        w->want[out] = w->kept[out] = (fx_band_span){0, 0}, w->end[out] = -1;
    }
    const fx_band_use **reads = w->reads + w->reads_end;
    for (int64_t i = w->last; i >= w->first; i--) {
        const fx_band_use *out = fx_uses_of(w, i);
        const fx_band_span wanted = of_view(out, w->want[out->root]);
        fx_band_span rows = wanted;
        if (!w->inner[out->root]) {
            const int64_t share = out->height * (band + 1) / w->bands;
            rows = (fx_band_span){w->done[i], wanted.high > share && wanted.low < wanted.high ? wanted.high : share};
            rows.high = rows.high < rows.low ? rows.low : rows.high;
        } else
            w->kept[out->root] = join(w->kept[out->root], fx_rows_of_root(out, rows));
        w->rows[i] = rows;
        reads -= w->read_count[i];
        if (rows.low >= rows.high)
            continue;
        if (w->inner[out->root])
            touch(w, out->root, i);
        for (int64_t k = 0; k < w->read_count[i]; k++) {
            const fx_band_use *use = reads[k];
            const bool is_inner = w->inner[use->root];
            if (is_inner)
                touch(w, use->root, i);
            const fx_band_span read = fx_rows_of_root(use, fx_rows_needed(use, rows));
            if (read.low >= read.high)
                continue;
            w->want[use->root] = join(w->want[use->root], read);
            if (!is_inner && is_overwritten(w, i, use, read))
                return false;
        }
    }
    return true;
}

static int64_t bytes_of(const fx_walk *w, int64_t root) {
    const fx_band_span rows = w->kept[root];
    const int64_t size = (rows.high - rows.low) * w->g->roots[root].row_bytes;
    return rows.low < rows.high ? (size + LINE - 1) / LINE * LINE : 0;
}

/* The most bytes that a node of the band needs, apart from what lives around the walk. */
static int64_t most_bytes(fx_walk *w) {
    const fx_band_graph *g = w->g;
    for (int64_t i = w->first; i <= w->last + 1; i++)
        w->change[i] = 0;
    for (int64_t i = w->first; i <= w->last; i++) {
        const int64_t r = fx_uses_of(w, i)[0].root;
        if (w->writer[r] != i || w->end[r] < 0)
            continue;
        const int64_t size = bytes_of(w, r);
        w->change[w->begin[r]] += size;
        w->change[w->end[r] + 1] -= size;
    }
    int64_t most = 0, alive = 0;
    for (int64_t i = w->first; i <= w->last; i++) {
        alive += w->change[i];
        const int64_t own = w->rows[i].low < w->rows[i].high ? alive + g->nodes[i].beside_bytes : 0;
        most = own > most ? own : most;
    }
    return most;
}

static void end_band(fx_walk *w) {
    for (int64_t i = w->first; i <= w->last; i++)
        if (!w->inner[fx_uses_of(w, i)[0].root])
            w->done[i] = w->rows[i].high;
}

static void add_work(const fx_walk *w, double *work) {
    for (int64_t i = w->first; i <= w->last; i++)
        *work +=
            (double)w->g->nodes[i].work * (double)(w->rows[i].high - w->rows[i].low) / (double)w->g->nodes[i].height;
}

bool fx_walk_bands(fx_walk *w, int64_t from, int64_t to, int64_t enough, int64_t *most, double *work, int64_t *rows) {
    for (int64_t i = w->first; i <= w->last; i++)
        w->done[i] = w->g->nodes[i].height * from / w->bands;
    *most = 0, *work = 0;
    fx_pairs_begin(w, from);
    for (int64_t band = from; band < to; band++) {
        if (!find_rows(w, band))
            return false;
        const int64_t bytes = most_bytes(w);
        *most = bytes > *most ? bytes : *most;
        if (*most > enough)
            return true;
        fx_pairs_follow(w);
        if (!from || band > from)
            add_work(w, work);
        for (int64_t i = w->first; rows && i <= w->last; i++) {
            *rows++ = w->rows[i].low;
            *rows++ = w->rows[i].high > w->rows[i].low ? w->rows[i].high : w->rows[i].low;
        }
        end_band(w);
    }
    return true;
}

int64_t fx_walk_around(const fx_band_graph *g, int64_t first, int64_t last) {
    int64_t bytes = 0;
    for (int64_t r = 0; r < g->root_count; r++) {
        const fx_band_root *root = &g->roots[r];
        const bool is_inner = root->kind && root->first_node >= first && root->last_node <= last;
        if (!is_inner && root->first_node <= last && root->last_node >= first)
            bytes += root->nbytes;
    }
    return bytes;
}
