/* Bands of rows: see flexnn/bands.h.
 *
 * A root that lives inside the walked nodes alone is *inner*: in each band it holds the rows that are read in that
 * band. Every other root that they write is kept whole, and grows: a band writes the rows that follow those of the band
 * before, as many as its share, or as are read in the band. */
#include "flexnn/bands.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define LINE 64
/* Bands above which two of them stand for all while choices are compared. */
#define SAMPLED 6
/* Percent of its share that a band has at least, as rows are whole. */
#define SHARE_PERCENT 90

typedef struct span {
    int64_t low, high; /* high is behind the last; low >= high: nothing */
} span;

/* What is known while nodes are walked. */
typedef struct walk {
    const fx_band_graph *g;
    int64_t first, last, bands;
    bool *inner, *written;   /* of each root */
    span *want;              /* rows of each root that are read in the band */
    span *kept;              /* rows of each inner root in the band */
    span *rows;              /* of each node */
    int64_t *done;           /* rows that earlier bands have written, of each node */
    int64_t *change;         /* of the bytes alive at each node */
    int64_t *end;            /* last node so far that touches an inner root in the band; -1: none */
    int64_t *size;           /* bytes of that root's rows */
    int64_t *writer, *next;  /* first of the nodes that write a root, and the next one that writes the root of a node */
    int64_t *ahead, *behind; /* what the neediest node before, or after, each node needs */
    double work, read;       /* the whole work of the walked nodes, and that of reading their weights once more */
} walk;

static int64_t floor_div(int64_t a, int64_t b) {
    return b == 1 ? a : a / b - (a % b < 0);
}

static int64_t clip(int64_t value, int64_t low, int64_t high) {
    return value < low ? low : value > high ? high : value;
}

static void *table(int64_t count, size_t size) {
    return calloc((size_t)(count + 1), size);
}

static void walk_free(walk *w) {
    free(w->inner), free(w->written), free(w->want), free(w->kept), free(w->rows), free(w->done);
    free(w->change), free(w->end), free(w->size), free(w->ahead), free(w->behind);
    free(w->writer), free(w->next);
}

static bool walk_make(walk *w, const fx_band_graph *g) {
    const int64_t roots = g->root_count, nodes = g->node_count;
    *w = (walk){.g = g, .first = -1, .last = -1};
    w->inner = table(roots, sizeof(bool)), w->written = table(roots, sizeof(bool));
    w->want = table(roots, sizeof(span)), w->kept = table(roots, sizeof(span));
    w->end = table(roots, sizeof(int64_t)), w->size = table(roots, sizeof(int64_t));
    w->rows = table(nodes, sizeof(span)), w->done = table(nodes, sizeof(int64_t));
    w->change = table(nodes, sizeof(int64_t));
    w->writer = table(roots, sizeof(int64_t)), w->next = table(nodes, sizeof(int64_t));
    w->ahead = table(nodes, sizeof(int64_t)), w->behind = table(nodes, sizeof(int64_t));
    if (!w->inner || !w->written || !w->want || !w->kept || !w->end || !w->size || !w->rows || !w->done || !w->change ||
        !w->ahead || !w->behind || !w->writer || !w->next)
        return false;
    for (int64_t i = 1; i < nodes; i++) {
        const int64_t j = nodes - 1 - i, before = g->nodes[i - 1].need_bytes, after = g->nodes[j + 1].need_bytes;
        w->ahead[i] = w->ahead[i - 1] > before ? w->ahead[i - 1] : before;
        w->behind[j] = w->behind[j + 1] > after ? w->behind[j + 1] : after;
    }
    return true;
}

static const fx_band_use *uses_of(const walk *w, int64_t node) {
    return w->g->uses + w->g->nodes[node].first_use;
}

static span join(span a, span b) {
    if (a.low >= a.high)
        return b;
    if (b.low >= b.high)
        return a;
    return (span){a.low < b.low ? a.low : b.low, a.high > b.high ? a.high : b.high};
}

/* Rows of a root that rows of a view are. */
static span of_root(const fx_band_use *use, span view) {
    if (view.low >= view.high)
        return (span){0, 0};
    return (span){use->at + use->step * view.low, use->at + use->step * (view.high - 1) + use->thick};
}

/* Rows of a view in which rows of its root lie. */
static span of_view(const fx_band_use *use, span root) {
    if (root.low >= root.high)
        return (span){0, 0};
    const int64_t low = floor_div(root.low - use->at - use->thick, use->step) + 1;
    const int64_t high = -floor_div(use->at - root.high, use->step);
    return (span){clip(low, 0, use->height), clip(high, 0, use->height)};
}

/* Rows of an input that rows of the output need. */
static span needed(const fx_band_use *use, span rows) {
    if (rows.low >= rows.high || !use->height)
        return (span){0, 0};
    const int64_t low = floor_div(use->num * rows.low + use->low, use->den);
    const int64_t high = floor_div(use->num * (rows.high - 1) + use->high, use->den);
    return (span){clip(low, 0, use->height - 1), clip(high, 0, use->height - 1) + 1};
}

/* Whether the nodes from `first` to `last` can be walked in bands; finds which roots are inner, and which are written.
 */
static bool begin_walk(walk *w, int64_t first, int64_t last) {
    const fx_band_graph *g = w->g;
    w->first = first, w->last = last;
    w->work = w->read = 0;
    for (int64_t i = first; i <= last; i++) {
        w->work += (double)g->nodes[i].work;
        w->read += (double)g->nodes[i].read_work;
        for (int64_t k = 0; k < g->nodes[i].use_count; k++) {
            const int64_t r = uses_of(w, i)[k].root;
            const fx_band_root *root = &g->roots[r];
            w->inner[r] = root->has_rows && root->nbytes && root->first_node >= first && root->last_node <= last;
            w->written[r] = false, w->writer[r] = w->end[r] = -1;
            w->kept[r] = (span){0, 0};
        }
    }
    for (int64_t i = last; i >= first; i--) {
        const int64_t r = uses_of(w, i)[0].root;
        w->written[r] = true;
        w->next[i] = w->writer[r], w->writer[r] = i;
    }
    for (int64_t i = first; i <= last; i++)
        for (int64_t k = 1; k < g->nodes[i].use_count; k++) {
            const fx_band_use *use = &uses_of(w, i)[k];
            if (w->written[use->root] && (!use->height || !g->roots[use->root].has_rows))
                return false;
        }
    return true;
}

/* Finds the rows of each node in a band, from the last node to the first. False: a row would be overwritten before it
 * is read. */
static bool find_rows(walk *w, int64_t band) {
    const fx_band_graph *g = w->g;
    for (int64_t i = w->first; i <= w->last; i++) {
        const int64_t out = uses_of(w, i)[0].root; /* what no node here writes has no rows */
        w->want[out] = w->kept[out] = (span){0, 0}, w->end[out] = -1;
    }
    for (int64_t i = w->last; i >= w->first; i--) {
        const fx_band_use *out = uses_of(w, i);
        const span wanted = of_view(out, w->want[out->root]);
        const int64_t share = out->height * (band + 1) / w->bands;
        span rows = wanted;
        if (!w->inner[out->root]) {
            rows = (span){w->done[i], wanted.high > share && wanted.low < wanted.high ? wanted.high : share};
            rows.high = rows.high < rows.low ? rows.low : rows.high;
        } else
            w->kept[out->root] = join(w->kept[out->root], of_root(out, rows));
        w->rows[i] = rows;
        for (int64_t k = 1; k < g->nodes[i].use_count; k++) {
            const fx_band_use *use = &out[k];
            if (!w->written[use->root])
                continue;
            const span read = of_root(use, needed(use, rows));
            if (read.low >= read.high)
                continue;
            w->want[use->root] = join(w->want[use->root], read);
            /* Nodes behind this one that write over what it reads must not have done so in an earlier band. */
            for (int64_t j = w->inner[use->root] ? -1 : w->writer[use->root]; j >= 0; j = w->next[j]) {
                const fx_band_use *over = uses_of(w, j);
                const bool meets = j >= i && over->part_low < use->part_high && use->part_low < over->part_high;
                if (meets && w->done[j] > 0 && read.low < over->at + over->step * (w->done[j] - 1) + over->thick)
                    return false;
            }
        }
    }
    return true;
}

static int64_t bytes_of(const walk *w, int64_t root) {
    const span rows = w->kept[root];
    const int64_t size = (rows.high - rows.low) * w->g->roots[root].row_bytes;
    return rows.low < rows.high ? (size + LINE - 1) / LINE * LINE : 0;
}

/* The most bytes that a node of the band needs, apart from what lives around the walk. */
static int64_t most_bytes(walk *w) {
    const fx_band_graph *g = w->g;
    for (int64_t i = w->first; i <= w->last + 1; i++)
        w->change[i] = 0;
    for (int64_t i = w->first; i <= w->last; i++) {
        const fx_band_use *uses = uses_of(w, i);
        for (int64_t k = 0; w->rows[i].low < w->rows[i].high && k < g->nodes[i].use_count; k++) {
            const int64_t r = uses[k].root;
            if (!w->inner[r])
                continue;
            const int64_t before = w->end[r];
            if (before < 0)
                w->size[r] = bytes_of(w, r);
            if (before == i)
                continue;
            w->change[before < 0 ? i : before + 1] += w->size[r];
            w->change[i + 1] -= w->size[r];
            w->end[r] = i;
        }
    }
    int64_t most = 0, alive = 0;
    for (int64_t i = w->first; i <= w->last; i++) {
        alive += w->change[i];
        const int64_t own = w->rows[i].low < w->rows[i].high ? alive + g->nodes[i].beside_bytes : 0;
        most = own > most ? own : most;
    }
    return most;
}

static void end_band(walk *w) {
    for (int64_t i = w->first; i <= w->last; i++)
        if (!w->inner[uses_of(w, i)[0].root])
            w->done[i] = w->rows[i].high;
}

static void add_work(const walk *w, double *work) {
    for (int64_t i = w->first; i <= w->last; i++)
        *work +=
            (double)w->g->nodes[i].work * (double)(w->rows[i].high - w->rows[i].low) / (double)w->g->nodes[i].height;
}

/* Walks some bands after each other; false where they cannot be. Fills rows, if there is room for them. */
static bool walk_bands(walk *w, int64_t from, int64_t to, int64_t *most, double *work, int64_t *rows) {
    for (int64_t i = w->first; i <= w->last; i++)
        w->done[i] = w->g->nodes[i].height * from / w->bands;
    *most = 0, *work = 0;
    for (int64_t band = from; band < to; band++) {
        if (!find_rows(w, band))
            return false;
        const int64_t bytes = most_bytes(w);
        *most = bytes > *most ? bytes : *most;
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

/* Bytes of the activations that live while the nodes are walked, apart from inner roots. */
static int64_t bytes_around(const walk *w) {
    int64_t bytes = 0;
    for (int64_t r = 0; r < w->g->root_count; r++) {
        const fx_band_root *root = &w->g->roots[r];
        const bool is_inner = root->has_rows && root->first_node >= w->first && root->last_node <= w->last;
        if (!is_inner && root->first_node <= w->last && root->last_node >= w->first)
            bytes += root->nbytes;
    }
    return bytes;
}

/* What the nodes need in so many bands: judged by two bands in the middle or, if it is to be exact, by all of them. */
static bool judge(walk *w, int64_t bands, int64_t around, bool is_exact, fx_band_choice *found, int64_t *rows) {
    const int64_t images = w->g->nodes[w->first].images;
    double done;
    int64_t most;
    w->bands = bands;
    const bool is_sample = !is_exact && bands > SAMPLED;
    const int64_t from = is_sample ? bands / 2 - 1 : 0, to = is_sample ? bands / 2 + 1 : bands;
    if (!walk_bands(w, from, to, &most, &done, rows))
        return false;
    const double added = is_sample ? done * (double)bands - w->work : done - w->work;
    const double work = (added > 0 ? added : 0) * (double)images + w->read * (double)(images * bands - 1);
    *found = (fx_band_choice){w->first, w->last, bands, around + most, work < 9e18 ? (int64_t)work : INT64_MAX};
    return true;
}

typedef struct search {
    const fx_band_limits *limits;
    fx_band_choice *found;
    bool *exact; /* of each found: all of its bands were walked */
    int64_t count, room;
    int64_t least; /* value of the best so far */
    fx_band_memo *memo;
    int64_t memo_count;
} search;

/* Where the memo holds what is known of so many bands of the nodes; of 0 bands: the bytes around these nodes. Negative
 * bytes: they cannot be walked. NULL: there is no memo. *known: whether it holds it. */
static fx_band_memo *recall(const search *s, int64_t nodes, int64_t first, int64_t last, int64_t bands, bool *known) {
    *known = false;
    if (!s->memo_count)
        return NULL;
    const int64_t key = 1 + (first * nodes + last) * (s->limits->bands_max + 1) + bands;
    const uint64_t mixed = (uint64_t)key * UINT64_C(0x9e3779b97f4a7c15);
    fx_band_memo *memo = &s->memo[(mixed >> 32) & (uint64_t)(s->memo_count - 1)];
    *known = memo->key == key;
    if (!*known)
        *memo = (fx_band_memo){.key = key};
    return memo;
}

/* What a choice is worth by: memory, with that of its nodes. */
static int64_t value_of(const walk *w, const fx_band_limits *limits, const fx_band_choice *c) {
    int64_t need = c->need_bytes > limits->floor_bytes ? c->need_bytes : limits->floor_bytes;
    if (limits->counts_others) {
        need = need > w->ahead[c->first] ? need : w->ahead[c->first];
        need = need > w->behind[c->last] ? need : w->behind[c->last];
    }
    const int64_t images = w->g->nodes[c->first].images;
    return need + (c->last - c->first + 1) * (images * c->bands - 1) * limits->node_bytes;
}

static bool add_found(search *s, const fx_band_choice *c) {
    if (s->count == s->room) {
        const int64_t room = s->room ? 2 * s->room : 64;
        fx_band_choice *more = realloc(s->found, (size_t)room * sizeof *more);
        if (!more)
            return false;
        s->found = more, s->room = room;
    }
    s->found[s->count++] = *c;
    return true;
}

/* The bytes around the nodes, negative where they cannot be walked. */
static int64_t around_nodes(walk *w, search *s, int64_t first, int64_t last) {
    bool known;
    fx_band_memo *memo = recall(s, w->g->node_count, first, last, 0, &known);
    if (known)
        return memo->need_bytes;
    const int64_t around = begin_walk(w, first, last) ? bytes_around(w) : -1;
    if (memo)
        memo->need_bytes = around;
    return around;
}

/* What the nodes need in so many bands, which two bands in the middle may say. False: they cannot be walked. */
static bool judge_known(walk *w, const search *s, fx_band_choice *c, int64_t around) {
    bool known;
    fx_band_memo *memo = recall(s, w->g->node_count, c->first, c->last, c->bands, &known);
    if (known) {
        c->need_bytes = memo->need_bytes, c->added_work = memo->added_work;
        return c->need_bytes >= 0;
    }
    const bool begun = (w->first == c->first && w->last == c->last) || begin_walk(w, c->first, c->last);
    const bool holds = begun && judge(w, c->bands, around, false, c, NULL);
    if (memo)
        memo->need_bytes = holds ? c->need_bytes : -1, memo->added_work = c->added_work;
    return holds;
}

/* The most bytes that one of the nodes needs where they are whole. */
static int64_t most_whole(const fx_band_graph *g, int64_t first, int64_t last) {
    int64_t most = 0;
    for (int64_t i = first; i <= last; i++)
        most = g->nodes[i].need_bytes > most ? g->nodes[i].need_bytes : most;
    return most;
}

/* Tries all numbers of bands of the nodes. False: no memory. */
static bool try_bands(walk *w, search *s, int64_t first, int64_t last) {
    const int64_t images = w->g->nodes[first].images, height = w->g->nodes[last].height;
    const int64_t around = around_nodes(w, s, first, last);
    int64_t known_bands = 1, inside = around >= 0 ? most_whole(w->g, first, last) - around : 0;
    for (int64_t bands = images > 1 ? 1 : 2; around >= 0 && bands <= height && images * bands <= s->limits->bands_max;
         bands += bands < 4 ? 1 : bands / 4) {
        fx_band_choice c = {first, last, bands, around, 0};
        if ((double)value_of(w, s->limits, &c) > (double)s->least * s->limits->enough)
            return true;
        if (inside > 0) { /* a band has at least its share of what the nodes have inside */
            c.need_bytes += inside * known_bands * SHARE_PERCENT / 100 / (images * bands);
            if ((double)value_of(w, s->limits, &c) > (double)s->least * s->limits->enough)
                continue;
        }
        if (!judge_known(w, s, &c, around))
            return true;
        if (c.need_bytes > around)
            inside = c.need_bytes - around, known_bands = images * bands;
        if (c.added_work > s->limits->added_work_max)
            continue;
        const int64_t value = value_of(w, s->limits, &c);
        s->least = value < s->least ? value : s->least;
        if ((double)value <= (double)s->least * s->limits->enough && !add_found(s, &c))
            return false;
    }
    return true;
}

static bool may_walk(const fx_band_graph *g, const uint8_t *barred, int64_t node, int64_t images) {
    return node >= 0 && node < g->node_count && !(barred[node] & FX_BANDS_BARRED) && g->nodes[node].height > 0 &&
           g->nodes[node].images == images;
}

/* The number of the cheapest choice near the least, or -1. */
static int64_t cheapest(const walk *w, const search *s) {
    int64_t least = INT64_MAX, best = -1;
    for (int64_t i = 0; i < s->count; i++) {
        const int64_t value = value_of(w, s->limits, &s->found[i]);
        least = value < least ? value : least;
    }
    for (int64_t i = 0; i < s->count; i++)
        if ((double)value_of(w, s->limits, &s->found[i]) <= (double)least * s->limits->enough &&
            (best < 0 || s->found[i].added_work < s->found[best].added_work))
            best = i;
    return best;
}

/* Picks the cheapest of those near the least. Sampled ones that are picked are walked through, and compared again. */
static void pick(walk *w, search *s, fx_band_choice *choice) {
    for (int64_t best = cheapest(w, s); best >= 0; best = cheapest(w, s)) {
        fx_band_choice *c = &s->found[best];
        if (c->bands <= SAMPLED || s->exact[best]) {
            *choice = *c;
            return;
        }
        s->exact[best] = begin_walk(w, c->first, c->last) && judge(w, c->bands, bytes_around(w), true, c, NULL);
        if (!s->exact[best] || c->added_work > s->limits->added_work_max) {
            s->count--;
            s->found[best] = s->found[s->count];
            s->exact[best] = s->exact[s->count];
        }
    }
}

static int64_t reach(const fx_band_graph *g, const uint8_t *barred, int64_t worst, int64_t by, int64_t most) {
    int64_t node = worst;
    while ((node - worst) * by < most && may_walk(g, barred, node + by, g->nodes[worst].images))
        node += by;
    return node;
}

fx_status fx_bands_find(const fx_band_graph *g, const fx_band_limits *limits, int64_t worst, const uint8_t *barred,
                        fx_band_memo *memo, int64_t memo_count, fx_band_choice *choice) {
    walk w;
    search s = {.limits = limits, .least = INT64_MAX / 4, .memo = memo, .memo_count = memo_count};
    *choice = (fx_band_choice){0};
    if (worst < 0 || worst >= g->node_count || !may_walk(g, barred, worst, g->nodes[worst].images))
        return FX_OK;
    bool has_memory = walk_make(&w, g);
    const int64_t low = reach(g, barred, worst, -1, limits->nodes_max),
                  high = reach(g, barred, worst, 1, limits->nodes_max);
    for (int64_t first = worst; has_memory && first >= low; first--)
        for (int64_t last = worst; has_memory && last <= high && last - first < limits->nodes_max; last++)
            if (last > first && (first == low || !(barred[first] & FX_BANDS_NO_START)) &&
                (last == high || !(barred[last] & FX_BANDS_NO_END)))
                has_memory = try_bands(&w, &s, first, last);
    s.exact = table(s.count, sizeof(bool));
    has_memory = has_memory && s.exact;
    if (has_memory)
        pick(&w, &s, choice);
    walk_free(&w);
    free(s.found), free(s.exact);
    return has_memory ? FX_OK : FX_ERR_MEMORY;
}

/* Whether all of the nodes compute rows alone, of as many images: what a kept plan names may be none of a graph's. */
static bool may_walk_all(const fx_band_graph *g, int64_t first, int64_t last) {
    for (int64_t i = first; i <= last; i++)
        if (!g->nodes[i].use_count || g->nodes[i].height <= 0 || g->nodes[i].images != g->nodes[first].images)
            return false;
    return true;
}

fx_status fx_bands_rows(const fx_band_graph *g, fx_band_choice *choice, int64_t *rows) {
    walk w;
    const fx_band_choice c = *choice;
    if (!may_walk_all(g, c.first, c.last))
        return FX_ERR_PARAMS;
    bool has_memory = walk_make(&w, g);
    const bool holds =
        has_memory && begin_walk(&w, c.first, c.last) && judge(&w, c.bands, bytes_around(&w), true, choice, rows);
    walk_free(&w);
    return !has_memory ? FX_ERR_MEMORY : holds ? FX_OK : FX_ERR_PARAMS;
}
