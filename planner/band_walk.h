/* A walk through nodes in bands of rows: see flexnn/bands.h.
 *
 * A root that lives inside the walked nodes alone is *inner*: in each band it holds the rows that are read in that
 * band. Every other root that they write is kept whole, and grows: a band writes the rows that follow those of the band
 * before, as many as its share, or as are read in the band. */
#ifndef FLEXNN_PLANNER_BAND_WALK_H
#define FLEXNN_PLANNER_BAND_WALK_H

#include <stdbool.h>

#include "flexnn/bands.h"

/* Most readers of a root that ends, where another one grows over it. */
#define FX_PAIR_READERS 8

typedef struct fx_band_span {
    int64_t low, high; /* high is behind the last; low >= high: nothing */
} fx_band_span;

/* What is known of a root that grows over one that ends. */
typedef struct fx_walk_pair {
    fx_band_pair pair;
    int64_t readers[FX_PAIR_READERS]; /* nodes that read the one that ends, and the number of the use */
    int64_t uses[FX_PAIR_READERS];
    int64_t reader_count;
    int64_t done;    /* bytes of the one that grows which earlier bands have written */
    bool reads_late; /* in a band, rows of the one that ends are read behind, or while, the other one is written */
} fx_walk_pair;

/* What is known while nodes are walked. */
typedef struct fx_walk {
    const fx_band_graph *g;
    int64_t first, last, bands;
    bool *inner, *written;     /* of each root */
    fx_band_span *want;        /* rows of each root that are read in the band */
    fx_band_span *kept;        /* rows of each inner root in the band */
    fx_band_span *rows;        /* of each node */
    int64_t *done;             /* rows that earlier bands have written, of each node */
    int64_t *change;           /* of the bytes alive at each node */
    int64_t *begin, *end;      /* first and last node that touch an inner root in the band; end -1: none does */
    const fx_band_use **reads; /* uses of the walked nodes that read what one of them writes, node by node */
    int64_t *read_count;       /* of each node */
    int64_t reads_end;         /* number of all */
    int64_t *writer, *next;  /* first of the nodes that write a root, and the next one that writes the root of a node */
    int64_t *ahead, *behind; /* what the neediest node before, or after, each node needs */
    double work, read;       /* the whole work of the walked nodes, and that of reading their weights once more */
    fx_walk_pair pairs[FX_BAND_PAIRS];
    int64_t pair_count;
    bool may_pair;
} fx_walk;

bool fx_walk_make(fx_walk *w, const fx_band_graph *g, bool may_pair);

void fx_walk_free(fx_walk *w);

/* Whether the nodes from `first` to `last` can be walked in bands; finds which roots are inner, and which are written.
 */
bool fx_walk_begin(fx_walk *w, int64_t first, int64_t last);

/* Walks some bands after each other; false where they cannot be: a row would be overwritten before it is read. *most:
 * bytes of the neediest node, apart from what lives around the walk. Ends where they are more than `enough`: the work
 * and what pairs take are not known then. Fills rows, if there is room for them. */
bool fx_walk_bands(fx_walk *w, int64_t from, int64_t to, int64_t enough, int64_t *most, double *work, int64_t *rows);

/* Bytes of the activations that live while nodes are walked, apart from inner roots. */
int64_t fx_walk_around(const fx_band_graph *g, int64_t first, int64_t last);

/* Uses of a node: that of its output, and those of its inputs. */
static inline const fx_band_use *fx_uses_of(const fx_walk *w, int64_t node) {
    return w->g->uses + w->g->nodes[node].first_use;
}

/* Rows of a root that rows of a view are. */
static inline fx_band_span fx_rows_of_root(const fx_band_use *use, fx_band_span view) {
    if (view.low >= view.high)
        return (fx_band_span){0, 0};
    return (fx_band_span){use->at + use->step * view.low, use->at + use->step * (view.high - 1) + use->thick};
}

static inline int64_t fx_floor_div(int64_t a, int64_t b) {
    return b == 1 ? a : a / b - (a % b < 0);
}

static inline int64_t fx_clip(int64_t value, int64_t low, int64_t high) {
    return value < low ? low : value > high ? high : value;
}

/* Rows of an input that rows of the output need. */
static inline fx_band_span fx_rows_needed(const fx_band_use *use, fx_band_span rows) {
    if (rows.low >= rows.high || !use->height)
        return (fx_band_span){0, 0};
    const int64_t low = fx_floor_div(use->num * rows.low + use->low, use->den);
    const int64_t high = fx_floor_div(use->num * (rows.high - 1) + use->high, use->den);
    return (fx_band_span){fx_clip(low, 0, use->height - 1), fx_clip(high, 0, use->height - 1) + 1};
}

/* Finds roots that may grow over others that end in the walk. */
void fx_pairs_find(fx_walk *w);

/* Begins with what bands before `from` have written. */
void fx_pairs_begin(fx_walk *w, int64_t from);

/* Looks at a band, whose rows are known. */
void fx_pairs_follow(fx_walk *w);

/* Tells what pairs take, and returns the bytes that they spare; bands `from` to `to` were followed, and the others are
 * taken for like them. */
int64_t fx_pairs_end(fx_walk *w, int64_t from, int64_t to);

/* The most bytes that pairs may spare. */
int64_t fx_pairs_most(const fx_walk *w);

#endif
