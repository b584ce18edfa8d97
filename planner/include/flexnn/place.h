/* Placement of blocks of memory: rectangles of bytes by time. No engine, no Python: the planner's hot loops. */
#ifndef FLEXNN_PLACE_H
#define FLEXNN_PLACE_H

#include "flexnn/ops.h"

#define FX_PLACE_BLOCKS_MAX (1 << 20)
#define FX_SEARCH_BLOCKS_MAX 4096 /* recursion is as deep as the number of blocks */

typedef struct fx_blocks {
    int32_t count;
    const int64_t *bytes;        /* of each, > 0 */
    const int32_t *first, *last; /* a block lives from first to last, both included; 0 <= first <= last */
} fx_blocks;

typedef enum fx_order {
    FX_ORDER_LARGE,   /* bytes, the most first; then first moments */
    FX_ORDER_AREA,    /* bytes times moments, the most first; then first moments */
    FX_ORDER_TIME,    /* first moments; then last ones, the latest first */
    FX_ORDER_SHORT,   /* moments, the fewest first; then bytes, the most first */
    FX_ORDER_LONG,    /* moments, the most first; then bytes, the most first */
    FX_ORDER_BREADTH, /* blocks of the moments with the most bytes first; then bytes, the most first */
    FX_ORDER_COUNT
} fx_order;

/* Fills `numbers` with all blocks in an order; equal ones in the order of their numbers. FX_ERR_PARAMS (times, sizes,
 * no such order), FX_ERR_MEMORY. */
fx_status fx_place_order(const fx_blocks *b, fx_order order, int32_t *numbers);

/* Fills live[m] with the bytes alive at each of `moments` moments. FX_ERR_PARAMS (times, sizes). */
fx_status fx_blocks_live(const fx_blocks *b, int32_t moments, int64_t *live);

/* The number of pairs of blocks that live together. FX_ERR_PARAMS, FX_ERR_MEMORY. */
fx_status fx_blocks_pairs(const fx_blocks *b, int64_t *pairs);

/* The bytes that a placement takes. */
int64_t fx_blocks_top(const fx_blocks *b, const int64_t *address);

typedef enum fx_fit {
    FX_FIT_BEST,  /* the smallest hole that holds the block */
    FX_FIT_FIRST, /* the lowest one */
} fx_fit;

/* Places blocks in `order` (a permutation), each in a hole between those placed before that live with it, above all of
 * them where none holds it. A block with hangs[i] != 0 (hangs may be NULL) hangs from the end of the highest hole below
 * `ceiling` instead. FX_ERR_PARAMS (times, sizes, order), FX_ERR_MEMORY. */
fx_status fx_place_in_order(const fx_blocks *b, const int32_t *order, const uint8_t *hangs, int64_t ceiling, fx_fit fit,
                            int64_t *address);

typedef enum fx_found {
    FX_FOUND_NONE,    /* proven: no placement has this capacity */
    FX_FOUND_SOME,    /* addresses are set */
    FX_FOUND_UNKNOWN, /* gave up after nodes_max nodes */
} fx_found;

/* Looks for addresses with address + bytes <= capacity for all blocks, by exhaustive search of at most nodes_max nodes:
 * the same for the same arguments on every machine. FX_ERR_PARAMS (also more than FX_SEARCH_BLOCKS_MAX blocks),
 * FX_ERR_MEMORY. */
fx_status fx_place_search(const fx_blocks *b, int64_t capacity, int64_t nodes_max, int64_t *address, fx_found *found,
                          int64_t *nodes);

/* Places blocks in the order of their first moments, those that live longer first, each in the smallest hole that holds
 * it: what fx_place_in_order does with that order, in a time that does not grow with the blocks that live together.
 * FX_ERR_PARAMS (times, sizes), FX_ERR_MEMORY. */
fx_status fx_place_by_time(const fx_blocks *b, int64_t *address);

/* Free bytes [start, end). */
typedef struct fx_hole {
    int64_t start, end;
} fx_hole;

typedef struct fx_gaps {
    fx_hole *holes; /* the caller frees them, also after an error */
    int64_t count, max;
} fx_gaps;

/* The free ranges between placed blocks at each of `moments` moments: holes first[m] to first[m + 1] of an empty
 * `gaps`, in the order of their addresses, at most the `most` largest; from top[m] on everything is free. first has
 * moments + 1 numbers, top has moments. FX_ERR_PARAMS (times, blocks that overlap), FX_ERR_MEMORY. */
fx_status fx_place_gaps(const fx_blocks *b, const int64_t *address, int32_t moments, int64_t most, int64_t *first,
                        int64_t *top, fx_gaps *gaps);

/* Whether counts, sizes and times are sane, and no sum of sizes overflows. */
int fx_blocks_sane(const fx_blocks *b);

#endif
