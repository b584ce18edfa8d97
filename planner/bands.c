/* The search for bands of rows: see flexnn/bands.h. */
#include <stdbool.h>
#include <stdlib.h>

#include "band_walk.h"

/* Bands above which two of them stand for all while choices are compared. */
#define SAMPLED 6
/* Percent of its share that a band has at least, as rows are whole. */
#define SHARE_PERCENT 90
/* Part of the memory that roots which grow over others must be able to spare, for which they are looked at. */
#define SPARED_PART 16

/* Added work of what was not judged to the end. */
#define UNKNOWN (-1)

/* What the nodes need in so many bands: judged by two bands in the middle or, if it is to be exact, by all of them.
 * Where one needs more than `enough` inside, that is what is told, less `spared`, the most that pairs may spare. */
static bool judge(fx_walk *w, fx_band_choice *c, int64_t around, bool is_exact, int64_t enough, int64_t spared,
                  int64_t *rows) {
    const int64_t images = w->g->nodes[w->first].images, bands = c->bands;
    double done;
    int64_t most;
    w->bands = bands;
    const bool is_sample = !is_exact && bands > SAMPLED;
    const int64_t from = is_sample ? bands / 2 - 1 : 0, to = is_sample ? bands / 2 + 1 : bands;
    if (!fx_walk_bands(w, from, to, enough, &most, &done, rows))
        return false;
    if (most > enough) {
        *c = (fx_band_choice){w->first, w->last, bands, around + most - spared, UNKNOWN, spared};
        return true;
    }
    const double added = is_sample ? done * (double)bands - w->work : done - w->work;
    const double work = (added > 0 ? added : 0) * (double)images + w->read * (double)(images * bands - 1);
    const int64_t added_work = work < 9e18 ? (int64_t)work : INT64_MAX;
    const int64_t by = fx_pairs_end(w, from, to);
    *c = (fx_band_choice){w->first, w->last, bands, around + most - by, added_work, by};
    return true;
}

static bool judge_exactly(fx_walk *w, fx_band_choice *c, int64_t *rows) {
    return fx_walk_begin(w, c->first, c->last) &&
           judge(w, c, fx_walk_around(w->g, c->first, c->last), true, INT64_MAX, 0, rows);
}

typedef struct search {
    const fx_band_limits *limits;
    fx_band_choice *found;
    bool *exact; /* of each found: all of its bands were walked */
    int64_t count, room;
    int64_t least;         /* value of the best so far */
    int64_t refused_work;  /* as in fx_band_found */
    int64_t refused_value; /* least value that was refused */
    fx_band_memo *memo;
    int64_t memo_count;
    int64_t *begin_bytes; /* bytes of the roots that begin at each node */
    int64_t *ending;      /* of each node: the first of the roots that end there; -1: none */
    int64_t *next_ending; /* of each root: the next one that ends at the same node; -1: none */
} search;

/* Where the memo holds what is known of so many bands of the nodes; of 0 bands: what pairs may spare. Negative bytes:
 * they cannot be walked. NULL: there is no memo. *known: whether it holds it. */
static fx_band_memo *recall(const search *s, int64_t nodes, int64_t first, int64_t last, int64_t bands, bool *known) {
    *known = false;
    if (!s->memo_count)
        return NULL;
    const int64_t bounds = first * nodes + last;
    const int64_t key = 1 + 2 * (bounds * (s->limits->bands_max + 1) + bands) + (s->limits->below_bytes > 0);
    uint64_t mixed = (uint64_t)key * UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ mixed >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
    fx_band_memo *memo = &s->memo[(mixed >> 32) & (uint64_t)(s->memo_count - 1)];
    *known = memo->key == key;
    if (!*known)
        *memo = (fx_band_memo){.key = key};
    return memo;
}

/* Memory of the nodes that a choice adds. */
static int64_t bytes_added(const fx_walk *w, const fx_band_limits *limits, const fx_band_choice *c) {
    return (c->last - c->first + 1) * (w->g->nodes[c->first].images * c->bands - 1) * limits->node_bytes;
}

/* What a choice is worth by: memory, with that of its nodes. */
static int64_t value_of(const fx_walk *w, const fx_band_limits *limits, const fx_band_choice *c) {
    int64_t need = c->need_bytes > limits->floor_bytes ? c->need_bytes : limits->floor_bytes;
    if (limits->counts_others) {
        need = need > w->ahead[c->first] ? need : w->ahead[c->first];
        need = need > w->behind[c->last] ? need : w->behind[c->last];
    }
    return need + bytes_added(w, limits, c);
}

static bool is_too_much(const fx_walk *w, const search *s, const fx_band_choice *c) {
    return (double)value_of(w, s->limits, c) > (double)s->least * s->limits->enough;
}

/* The most bytes that the neediest node of a choice may need. */
static int64_t most_worth(const fx_walk *w, const search *s, const fx_band_choice *c) {
    return (int64_t)((double)s->least * s->limits->enough) - bytes_added(w, s->limits, c);
}

/* Whether a choice may repeat so much work. What is refused is noted if it, or more bands, might have a value below the
 * best one so far: others would not be chosen, as they repeat more than those that are allowed. */
static bool may_add(search *s, int64_t added_work, int64_t value) {
    if (added_work <= s->limits->added_work_max)
        return true;
    if (value < s->least) {
        s->refused_work = added_work < s->refused_work ? added_work : s->refused_work;
        s->refused_value = value < s->refused_value ? value : s->refused_value;
    }
    return false;
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

/* Finds where roots begin and end. False: no memory. */
static bool index_roots(search *s, const fx_band_graph *g) {
    s->begin_bytes = calloc((size_t)(g->node_count + 1), sizeof(int64_t));
    s->ending = malloc((size_t)(g->node_count + 1) * sizeof(int64_t));
    s->next_ending = malloc((size_t)(g->root_count + 1) * sizeof(int64_t));
    if (!s->begin_bytes || !s->ending || !s->next_ending)
        return false;
    for (int64_t i = 0; i < g->node_count; i++)
        s->ending[i] = -1;
    for (int64_t r = 0; r < g->root_count; r++) {
        const fx_band_root *root = &g->roots[r];
        s->next_ending[r] = -1;
        if (!root->nbytes)
            continue;
        if (root->first_node >= 0 && root->first_node < g->node_count)
            s->begin_bytes[root->first_node] += root->nbytes;
        if (root->kind && root->last_node >= 0 && root->last_node < g->node_count) {
            s->next_ending[r] = s->ending[root->last_node];
            s->ending[root->last_node] = r;
        }
    }
    return true;
}

/* What fx_walk_around is more with `last` behind the other nodes. */
static int64_t around_more(const search *s, const fx_band_graph *g, int64_t first, int64_t last) {
    int64_t bytes = s->begin_bytes[last];
    for (int64_t r = s->ending[last]; r >= 0; r = s->next_ending[r])
        if (g->roots[r].first_node >= first)
            bytes -= g->roots[r].nbytes;
    return bytes;
}

/* The most bytes that pairs may spare; negative: the nodes cannot be walked. */
static int64_t most_spared(fx_walk *w, search *s, int64_t first, int64_t last) {
    bool known;
    fx_band_memo *memo = recall(s, w->g->node_count, first, last, 0, &known);
    if (known)
        return memo->spared_bytes;
    const int64_t spared = fx_walk_begin(w, first, last) ? fx_pairs_most(w) : -1;
    if (memo)
        memo->spared_bytes = spared;
    return spared;
}

/* What the nodes need in so many bands, which two bands in the middle may say; UNKNOWN work: they need too much, at
 * least so many bytes. False: they cannot be walked. */
static bool judge_known(fx_walk *w, const search *s, fx_band_choice *c, int64_t around, int64_t spared) {
    bool known;
    fx_band_memo *memo = recall(s, w->g->node_count, c->first, c->last, c->bands, &known);
    if (known) {
        c->need_bytes = memo->need_bytes, c->added_work = memo->added_work, c->spared_bytes = memo->spared_bytes;
        if (c->need_bytes < 0 || c->added_work != UNKNOWN || is_too_much(w, s, c))
            return c->need_bytes >= 0;
    }
    const bool begun = (w->first == c->first && w->last == c->last) || fx_walk_begin(w, c->first, c->last);
    const int64_t enough = most_worth(w, s, c) - around + spared;
    const bool holds = begun && judge(w, c, around, false, enough, spared, NULL);
    if (memo)
        memo->need_bytes = holds ? c->need_bytes : -1, memo->added_work = c->added_work,
        memo->spared_bytes = c->spared_bytes;
    return holds;
}

/* The most bytes that one of the nodes needs where they are whole. */
static int64_t most_whole(const fx_band_graph *g, int64_t first, int64_t last) {
    int64_t most = 0;
    for (int64_t i = first; i <= last; i++)
        most = g->nodes[i].need_bytes > most ? g->nodes[i].need_bytes : most;
    return most;
}

/* Tries all numbers of bands of the nodes, around which so many bytes live. False: no memory. */
static bool try_bands(fx_walk *w, search *s, int64_t first, int64_t last, int64_t around) {
    const int64_t images = w->g->nodes[first].images, height = w->g->nodes[last].height;
    const int64_t spared = s->limits->below_bytes ? most_spared(w, s, first, last) : 0;
    if (spared < 0 || (s->limits->below_bytes && spared * SPARED_PART <= s->limits->below_bytes))
        return true;
    int64_t least_work = INT64_MAX, known_bands = 1, inside = most_whole(w->g, first, last) - around;
    for (int64_t bands = images > 1 ? 1 : 2; bands <= height && images * bands <= s->limits->bands_max;
         bands += bands < 4 ? 1 : bands / 4) {
        fx_band_choice c = {first, last, bands, around - spared, 0, 0};
        if (is_too_much(w, s, &c))
            return true;
        if (inside > 0) { /* a band has at least its share of what the nodes have inside */
            c.need_bytes += inside * known_bands * SHARE_PERCENT / 100 / (images * bands);
            if (is_too_much(w, s, &c))
                continue;
        }
        if (!judge_known(w, s, &c, around, spared))
            return true;
        if (c.need_bytes + c.spared_bytes > around)
            inside = c.need_bytes + c.spared_bytes - around, known_bands = images * bands;
        if (c.added_work == UNKNOWN)
            continue;
        const fx_band_choice most_bands = {first, last, bands, around - spared, 0, 0};
        if (!may_add(s, c.added_work, value_of(w, s->limits, &most_bands)))
            return true; /* more bands repeat more */
        const int64_t value = value_of(w, s->limits, &c);
        s->least = value < s->least ? value : s->least;
        if ((double)value <= (double)s->least * s->limits->enough && !add_found(s, &c))
            return false;
        const bool spares_nothing = value > c.need_bytes + bytes_added(w, s->limits, &c);
        if (spares_nothing && c.added_work > least_work)
            return true; /* other things need more, and more bands repeat more */
        least_work = spares_nothing && c.added_work < least_work ? c.added_work : least_work;
    }
    return true;
}

static bool may_walk(const fx_band_graph *g, const uint8_t *barred, int64_t node, int64_t images) {
    return node >= 0 && node < g->node_count && !(barred[node] & FX_BANDS_BARRED) && g->nodes[node].height > 0 &&
           g->nodes[node].images == images;
}

/* The number of the cheapest choice near the least, or -1. */
static int64_t cheapest(const fx_walk *w, const search *s) {
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
static void pick(fx_walk *w, search *s, fx_band_choice *choice) {
    for (int64_t best = cheapest(w, s); best >= 0; best = cheapest(w, s)) {
        fx_band_choice *c = &s->found[best];
        if (c->bands <= SAMPLED || s->exact[best]) {
            *choice = *c;
            return;
        }
        s->exact[best] = judge_exactly(w, c, NULL);
        if (!s->exact[best] || !may_add(s, c->added_work, 0)) {
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

/* Tells the pairs of a walk all of whose bands were judged. */
static void tell_pairs(const fx_walk *w, fx_band_found *told) {
    for (int64_t i = 0; i < w->pair_count; i++)
        if (w->pairs[i].pair.nbytes)
            told->pairs[told->count++] = w->pairs[i].pair;
}

fx_status fx_bands_find(const fx_band_graph *g, const fx_band_limits *limits, int64_t worst, const uint8_t *barred,
                        fx_band_memo *memo, int64_t memo_count, fx_band_found *told) {
    fx_band_choice *choice = &told->choice;
    fx_walk w;
    search s = {.limits = limits,
                .least = limits->below_bytes > 0 ? limits->below_bytes : INT64_MAX / 4,
                .refused_work = INT64_MAX,
                .refused_value = INT64_MAX,
                .memo = memo,
                .memo_count = memo_count};
    *choice = (fx_band_choice){0};
    told->count = 0, told->refused_work = INT64_MAX;
    if (worst < 0 || worst >= g->node_count || !may_walk(g, barred, worst, g->nodes[worst].images))
        return FX_OK;
    bool has_memory = fx_walk_make(&w, g, limits->below_bytes > 0) && index_roots(&s, g);
    const int64_t low = reach(g, barred, worst, -1, limits->nodes_max),
                  high = reach(g, barred, worst, 1, limits->nodes_max);
    for (int64_t first = worst; has_memory && first >= low; first--) {
        int64_t around = fx_walk_around(g, first, worst);
        for (int64_t last = worst; has_memory && last <= high && last - first < limits->nodes_max; last++) {
            around += last > worst ? around_more(&s, g, first, last) : 0;
            if ((last > first || limits->below_bytes) && (first == low || !(barred[first] & FX_BANDS_NO_START)) &&
                (last == high || !(barred[last] & FX_BANDS_NO_END)))
                has_memory = try_bands(&w, &s, first, last, around);
        }
    }
    s.exact = calloc((size_t)(s.count + 1), sizeof(bool));
    has_memory = has_memory && s.exact;
    if (has_memory)
        pick(&w, &s, choice);
    if (s.refused_value < s.least)
        told->refused_work = s.refused_work;
    if (has_memory && choice->spared_bytes && judge_exactly(&w, choice, NULL))
        tell_pairs(&w, told);
    fx_walk_free(&w);
    free(s.found), free(s.exact), free(s.begin_bytes), free(s.ending), free(s.next_ending);
    return has_memory ? FX_OK : FX_ERR_MEMORY;
}

/* Whether all of the nodes compute rows alone, of as many images: what a kept plan names may be none of a graph's. */
static bool may_walk_all(const fx_band_graph *g, int64_t first, int64_t last) {
    for (int64_t i = first; i <= last; i++)
        if (!g->nodes[i].use_count || g->nodes[i].height <= 0 || g->nodes[i].images != g->nodes[first].images)
            return false;
    return true;
}

fx_status fx_bands_rows(const fx_band_graph *g, fx_band_choice *choice, int64_t may_pair, int64_t *rows,
                        fx_band_found *told) {
    fx_walk w;
    const fx_band_choice c = *choice;
    told->count = 0;
    if (!may_walk_all(g, c.first, c.last))
        return FX_ERR_PARAMS;
    bool has_memory = fx_walk_make(&w, g, may_pair != 0);
    const bool holds = has_memory && judge_exactly(&w, choice, rows);
    if (holds)
        tell_pairs(&w, told);
    fx_walk_free(&w);
    return !has_memory ? FX_ERR_MEMORY : holds ? FX_OK : FX_ERR_PARAMS;
}
