/* Roots that grow over others that end in the same walk (see flexnn/bands.h). The one that grows begins at the lower
 * address, and the other one as many bytes behind it as no band writes over a row that is still to be read. */
#include "band_walk.h"

#define LINE 64

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t both_bytes(const fx_walk *w, const fx_band_pair *pair) {
    const int64_t ends = pair->shift + w->g->roots[pair->ends].nbytes, grows = w->g->roots[pair->grows].nbytes;
    return ends > grows ? ends : grows;
}

static int64_t spared_by(const fx_walk *w, const fx_band_pair *pair) {
    const int64_t apart = w->g->roots[pair->ends].nbytes + w->g->roots[pair->grows].nbytes;
    return apart - both_bytes(w, pair);
}

static bool ends_here(const fx_walk *w, int64_t root) {
    const fx_band_root *r = &w->g->roots[root];
    return r->kind && r->nbytes && !w->written[root] && r->first_node < w->first && r->last_node <= w->last;
}

static bool grows_here(const fx_walk *w, int64_t root) {
    const fx_band_root *r = &w->g->roots[root];
    return r->kind && r->nbytes && w->written[root] && r->first_node >= w->first && r->last_node > w->last;
}

/* The pair that has a root already, or the number of pairs. */
static int64_t pair_with(const fx_walk *w, int64_t root) {
    int64_t i = 0;
    while (i < w->pair_count && w->pairs[i].pair.ends != root && w->pairs[i].pair.grows != root)
        i++;
    return i;
}

/* Finds who reads the root that ends; false where these are too many. */
static bool find_readers(const fx_walk *w, fx_walk_pair *p) {
    for (int64_t i = w->first; i <= w->last; i++)
        for (int64_t k = 1; k < w->g->nodes[i].use_count; k++) {
            if (fx_uses_of(w, i)[k].root != p->pair.ends)
                continue;
            if (p->reader_count == FX_PAIR_READERS)
                return false;
            p->reads_late = p->reads_late || i >= w->writer[p->pair.grows];
            p->readers[p->reader_count] = i;
            p->uses[p->reader_count++] = k;
        }
    return true;
}

/* Adds the pair of a root that grows which spares the most, with a root that ends. */
static void add_pair(fx_walk *w, int64_t grows) {
    fx_walk_pair best = {.pair = {.ends = -1, .grows = grows}};
    int64_t most = 0;
    for (int64_t i = w->first; i <= w->last; i++)
        for (int64_t k = 1; k < w->g->nodes[i].use_count; k++) {
            const int64_t root = fx_uses_of(w, i)[k].root;
            const int64_t spares = least(w->g->roots[root].nbytes, w->g->roots[grows].nbytes);
            if (spares <= most || !ends_here(w, root) || w->g->roots[root].kind != w->g->roots[grows].kind ||
                pair_with(w, root) < w->pair_count)
                continue;
            most = spares, best.pair.ends = root;
        }
    if (best.pair.ends >= 0 && find_readers(w, &best))
        w->pairs[w->pair_count++] = best;
}

void fx_pairs_find(fx_walk *w) {
    w->pair_count = 0;
    if (w->g->nodes[w->first].images > 1)
        return;
    for (int64_t i = w->first; i <= w->last && w->pair_count < FX_BAND_PAIRS; i++) {
        const int64_t root = fx_uses_of(w, i)[0].root;
        if (grows_here(w, root) && pair_with(w, root) == w->pair_count)
            add_pair(w, root);
    }
}

/* Bytes of a root that its writers have written, `rows` of each being behind the last. */
static int64_t written_bytes(const fx_walk *w, int64_t root, bool is_band) {
    int64_t bytes = 0;
    for (int64_t i = w->writer[root]; i >= 0; i = w->next[i]) {
        const fx_band_use *out = fx_uses_of(w, i);
        const int64_t high = is_band ? w->rows[i].high : w->done[i];
        const int64_t rows = high > 0 ? out->at + out->step * (high - 1) + out->thick : 0;
        bytes = rows * w->g->roots[root].row_bytes > bytes ? rows * w->g->roots[root].row_bytes : bytes;
    }
    return bytes;
}

void fx_pairs_begin(fx_walk *w, int64_t from) {
    for (int64_t i = 0; i < w->pair_count; i++) {
        w->pairs[i].pair.shift = 0;
        w->pairs[i].done = from ? written_bytes(w, w->pairs[i].pair.grows, false) : 0;
    }
}

void fx_pairs_follow(fx_walk *w) {
    for (int64_t i = 0; i < w->pair_count; i++) {
        fx_walk_pair *p = &w->pairs[i];
        int64_t low = INT64_MAX;
        for (int64_t k = 0; k < p->reader_count; k++) {
            const fx_band_use *use = &fx_uses_of(w, p->readers[k])[p->uses[k]];
            const fx_band_span rows = w->rows[p->readers[k]];
            if (rows.low < rows.high)
                low = least(low, use->height ? fx_rows_of_root(use, fx_rows_needed(use, rows)).low : 0);
        }
        const int64_t done = written_bytes(w, p->pair.grows, true);
        const int64_t before = p->reads_late ? done : p->done;
        if (low < INT64_MAX && before - low * w->g->roots[p->pair.ends].row_bytes > p->pair.shift)
            p->pair.shift = before - low * w->g->roots[p->pair.ends].row_bytes;
        p->done = done;
    }
}

int64_t fx_pairs_end(fx_walk *w, int64_t from, int64_t to) {
    int64_t spared = 0;
    for (int64_t i = 0; i < w->pair_count; i++) {
        fx_band_pair *pair = &w->pairs[i].pair;
        const int64_t ends = w->g->roots[pair->ends].nbytes, grows = w->g->roots[pair->grows].nbytes;
        if (grows > ends) /* the last bands come nearest to what is still to be read, or else the first */
            pair->shift += (grows - ends) / w->bands * (w->bands - to);
        else
            pair->shift += (ends - grows) / w->bands * from;
        pair->shift = (pair->shift + LINE - 1) / LINE * LINE;
        const int64_t by = spared_by(w, pair);
        pair->nbytes = by > 0 ? both_bytes(w, pair) : 0;
        spared += by > 0 ? by : 0;
    }
    return spared;
}

int64_t fx_pairs_most(const fx_walk *w) {
    int64_t most = 0;
    for (int64_t i = 0; i < w->pair_count; i++)
        most += least(w->g->roots[w->pairs[i].pair.ends].nbytes, w->g->roots[w->pairs[i].pair.grows].nbytes);
    return most;
}
