/* Bands of rows through some nodes that follow each other: which rows each of them computes band by band, what memory
 * that takes, and which nodes and how many bands are best. Numbers are int64, so that Python makes plain tables. */
#ifndef FLEXNN_BANDS_H
#define FLEXNN_BANDS_H

#include <stdint.h>

#include "flexnn/ops.h"

/* A root: the storage of an activation. Rows are of one image. */
typedef struct fx_band_root {
    int64_t row_bytes, nbytes;     /* of a row; of all in the arena, 0: it lies elsewhere */
    int64_t first_node, last_node; /* that touch it */
    int64_t kind; /* 0: its rows do not lie one after the other; else a number for the type of its elements */
} fx_band_root;

/* A node's use of a root: rows y of a view are rows at + step * y to at + step * y + thick - 1 of the root. */
typedef struct fx_band_use {
    int64_t root;
    int64_t at, step, thick, height; /* height: rows of the view; 0: all of it is used, whatever the rows */
    int64_t num, low, high, den;     /* rows of an input that rows of the output need, as Need (operators/rows.py) */
    int64_t part_low, part_high;     /* columns of the root that it touches */
} fx_band_use;

/* A node; its uses are its output's and then its inputs'. */
typedef struct fx_band_node {
    int64_t first_use, use_count;
    int64_t height, images;  /* rows of its output; 0: it cannot compute some rows alone */
    int64_t beside_bytes;    /* beside activations */
    int64_t need_bytes;      /* the same with the activations alive */
    int64_t work, read_work; /* of all of its rows; of reading its weights */
} fx_band_node;

typedef struct fx_band_graph {
    const fx_band_node *nodes;
    const fx_band_use *uses;
    const fx_band_root *roots;
    int64_t node_count, use_count, root_count;
} fx_band_graph;

/* What bands may take. Bands of all images count. */
typedef struct fx_band_limits {
    int64_t nodes_max, bands_max;
    int64_t added_work_max; /* that bands repeat */
    int64_t node_bytes;     /* memory of a node */
    int64_t floor_bytes;    /* memory below which nothing is gained */
    int64_t counts_others;  /* whether nodes that are not walked count: a choice spares all of the neediest ones */
    int64_t below_bytes;    /* memory, with that of nodes, that a choice in which roots grow over others that end may
                               take: others are not looked at; 0: no root does */
    double enough;          /* memory as a multiple of the least, within which the cheapest bands are chosen */
} fx_band_limits;

/* Nodes first to last, walked in `bands` bands of each image. */
typedef struct fx_band_choice {
    int64_t first, last, bands;
    int64_t need_bytes; /* of the neediest node */
    int64_t added_work;
    int64_t spared_bytes; /* by pairs */
} fx_band_choice;

/* A root that grows from band to band over one that ends in the walk: rows that no band reads any more are written
 * over.
 */
typedef struct fx_band_pair {
    int64_t ends, grows;
    int64_t shift;  /* bytes from the begin of the one that grows to that of the other one */
    int64_t nbytes; /* of both together; 0: they do better apart */
} fx_band_pair;

enum { FX_BAND_PAIRS = 4 }; /* most of a walk */

/* A choice that was found, and its pairs. */
typedef struct fx_band_found {
    fx_band_choice choice;
    fx_band_pair pairs[FX_BAND_PAIRS];
    int64_t count;
    int64_t refused_work; /* least added work for which a choice was refused: with more allowed, up to that, nothing
                             else would be found; INT64_MAX: none was */
} fx_band_found;

/* What earlier searches of the same graph found out; zeros at first. */
typedef struct fx_band_memo {
    int64_t key; /* 0: nothing */
    int64_t need_bytes, added_work, spared_bytes;
} fx_band_memo;

enum {
    FX_BANDS_BARRED = 1,   /* in bands */
    FX_BANDS_NO_START = 2, /* the first */
    FX_BANDS_NO_END = 4    /* the last */
};

/* Finds the nodes around `worst` whose bands need the least memory, or nearly so at a lower cost; bands is 0 where
 * there are none. `barred`: what each node may not be (FX_BANDS_BARRED …). `memo`: memo_count records, a power of two,
 * or none.  */
fx_status fx_bands_find(const fx_band_graph *graph, const fx_band_limits *limits, int64_t worst, const uint8_t *barred,
                        fx_band_memo *memo, int64_t memo_count, fx_band_found *told);

/* Fills rows [bands][last - first + 1][2] with the rows of each node's output, first and behind the last, and finds
 * what the choice needs, and its pairs, if it may have some. FX_ERR_PARAMS: these nodes have no bands. */
fx_status fx_bands_rows(const fx_band_graph *graph, fx_band_choice *choice, int64_t may_pair, int64_t *rows,
                        fx_band_found *told);

#endif
