/* Drafts of a plan: what kernels, slices and pins make of a graph, in steps and pieces of weights, and how long such a
 * run takes. No engine, no Python: the planner's hot loops.
 *
 * A layer is a node as the planner sees it. Its panels are pinned up to some panel and streamed in even slices after
 * it; each slice is one piece, read by one step. Streamed constants are pieces of their node's first step. */
#ifndef FLEXNN_DRAFT_H
#define FLEXNN_DRAFT_H

#include "flexnn/ops.h"

#define FX_CONSTANTS_MAX FX_MAX_INPUTS /* of a layer */

typedef struct fx_variant {
    int64_t workspace_bytes; /* of all threads */
    double fixed_s;          /* of each step */
    double channels_s;       /* of all channels; a window takes its share */
} fx_variant;

typedef struct fx_constant {
    int64_t file_offset, bytes; /* in the file */
    int64_t room;               /* in the arena, wherever it lies in the file */
    int64_t operand;
} fx_constant;

typedef struct fx_layer {
    int64_t panels; /* 0: none */
    int64_t panel_bytes, weight_offset;
    int64_t variant, variants;   /* the first, how many; fastest first, the last with the smallest workspace */
    int64_t constant, constants; /* streamed ones */
    int64_t gap, gaps;           /* free ranges between the activations alive */
    int64_t top;                 /* above it everything is free */
    int64_t live_bytes;          /* of the activations alive */
    int64_t tight_bytes;         /* smallest region with room for the smallest workspace, constants and one panel */
} fx_layer;

typedef struct fx_gap {
    int64_t start, end;
} fx_gap;

/* Bytes [low, high) of the region that something holds from node `first` to node `last`: the activations. */
typedef struct fx_held {
    int64_t low, high, first, last;
} fx_held;

/* What may be pinned or streamed, by itself: a layer's panels (constant -1) or one of its constants. */
typedef struct fx_item {
    int64_t layer, constant;
} fx_item;

typedef struct fx_choice {
    int32_t variant;           /* of the layer's variants */
    int32_t slice_panels;      /* of each streamed slice but perhaps the last */
    int32_t pinned_panels;     /* from the first on */
    uint32_t pinned_constants; /* bit i: the i-th constant of the layer */
} fx_choice;

typedef struct fx_problem {
    const fx_layer *layers;
    const fx_variant *variants;
    const fx_constant *constants;
    const fx_gap *gaps;
    const fx_item *items;
    const fx_held *held;
    uint32_t layer_count, variant_count, constant_count, gap_count, item_count, held_count;
    int64_t io_align;
    int64_t step_bytes; /* what a step, or a piece, takes beside the arena */
    double storage_bytes_per_second, request_s;
    double compute_share, load_share; /* speed of each while both go on, of that alone: above 0, at most 1 */
} fx_problem;

typedef struct fx_step_draft {
    int32_t node, p0, p1; /* panels [p0, p1); 0, 0 without */
    int32_t loads;        /* streamed pieces up to this step */
    double seconds;
    int64_t free_bytes; /* beside activations and workspace */
} fx_step_draft;

typedef struct fx_piece_draft {
    int32_t step;
    int32_t constant; /* of the problem's constants, -1: panels */
    int64_t file_offset, bytes, arena_bytes;
    int32_t stays;      /* pinned */
    int32_t wait_steps; /* streamed: as in fx_load */
} fx_piece_draft;

/* A streamed piece as the simulation sees it. */
typedef struct fx_load_draft {
    double seconds;
    int64_t wait_steps;
} fx_load_draft;

/* Where a simulated run was when a step began: seconds, and the loader's state. */
typedef struct fx_mark {
    double now, stall;
    double left;  /* seconds of the next load */
    int64_t done; /* loads */
} fx_mark;

/* Where a layer's steps and pieces begin, and how many streamed pieces come before. */
typedef struct fx_start {
    uint32_t step, piece;
    int32_t loads;
} fx_start;

typedef struct fx_rank {
    double score;
    uint32_t layer;
} fx_rank;

typedef struct fx_draft {
    fx_step_draft *steps;
    fx_piece_draft *pieces;
    uint32_t step_count, piece_count, step_max, piece_max;
    int64_t pinned_bytes; /* in the arena */
    int64_t stream_bytes;
    double seconds, stall_s; /* predicted; of an fx_draft_time: were memory never fragmented */
    fx_load_draft *loads;    /* [piece_max + 1] */
    fx_mark *marks;          /* [step_max] */
    int is_built;            /* steps and pieces are those of the choices `built` in `region` */
    int64_t region;
    fx_choice *built;  /* [layers] */
    fx_start *starts;  /* [layers + 1] */
    int64_t *work;     /* [4 piece_max + 2] */
    fx_choice *before; /* [layers] */
    fx_rank *ranks;    /* [layers] */
} fx_draft;

/* Whether the problem's counts and sizes are sane: nothing in the functions below overflows or leaves its arrays. */
fx_status fx_problem_check(const fx_problem *p);

/* Whether each layer has such a variant and so many panels. */
int fx_choices_fit(const fx_problem *p, const fx_choice *choices);

/* Whether steps and pieces that came from outside agree, and `order` names streamed pieces; counts their bytes. They
 * are no choices' from then on. */
int fx_draft_sane(fx_draft *d, const int32_t *order, uint32_t count);

/* Room for the drafts of a problem. FX_ERR_MEMORY. */
fx_status fx_draft_make(fx_draft *d, const fx_problem *p);
void fx_draft_free(fx_draft *d);

/* Where a layer's workspace and streamed constants lie in a region, in address[1 + FX_CONSTANTS_MAX] (-1: none), and
 * the largest gap left for a slice; -1 if they do not fit. */
int64_t fx_layer_room(const fx_problem *p, const fx_layer *layer, int64_t region, const fx_choice *choice,
                      int64_t *address);

/* Pins items in `order` (a permutation) while `memory` bytes (as fx_draft_bytes) last beside a region, the one that
 * does not fit whole in part, and gives each layer the fastest kernel that leaves room for its slices, `share` of which
 * fit that room at once; with `smallest`, the one with the smallest workspace. d is the draft of these choices. */
void fx_choose(fx_draft *d, const fx_problem *p, const int32_t *order, int64_t region, int64_t memory, int share,
               int smallest, fx_choice *choices);

/* Kernel and slices of a layer whose pins are chosen, as fx_choose. */
void fx_choose_layer(const fx_problem *p, uint32_t layer, int64_t region, int share, int smallest, fx_choice *choice);

/* Steps and pieces of `choices`, each with its predicted time. What d has of the same region stays: only layers from
 * the first to the last whose choice is another one are made anew. */
void fx_draft_build(fx_draft *d, const fx_problem *p, const fx_choice *choices, int64_t region);

/* Earliest wait_steps of the streamed pieces were memory never fragmented, and the time of such a run. */
void fx_draft_time(fx_draft *d, const fx_problem *p);

/* The time of a run with the waits as they are. */
void fx_draft_simulate(fx_draft *d, const fx_problem *p);

/* Bytes of a draft beside what every plan of the problem takes. */
int64_t fx_draft_bytes(const fx_draft *d, const fx_problem *p, int64_t region);

/* Places the streamed pieces of the draft of `choices` (fx_place_streams), which sets their wait_steps, and simulates
 * the run. address[piece]: from the start of the region; -1 for pinned ones. layer_address[layer][1 +
 * FX_CONSTANTS_MAX]: of its workspace and its streamed constants, -1: none. FX_ERR_MEMORY; FX_ERR_BOUNDS if something
 * has no room at its own step. */
fx_status fx_draft_place(fx_draft *d, const fx_problem *p, const fx_choice *choices, int64_t region, int from_top,
                         int64_t *address, int64_t *layer_address);

/* Pins streamed pieces of a draft that has its waits, those first that save the most time for a byte, or the next in
 * `order` (pieces, at most as many as the draft has) where none does, while `bytes` last, and stops where the run was
 * the shortest. What is pinned first depends on `most`, what `bytes` may be, alone: more bytes are never slower. At
 * most `looks` pieces are tried; `order` is changed. */
void fx_fill(fx_draft *d, const fx_problem *p, int32_t *order, uint32_t count, int64_t bytes, int64_t most, int looks);

/* Changes kernels and slices of single layers while that makes the run shorter, those with the most to give first, at
 * most `tries` changes tried; keeps to `memory` bytes (as fx_draft_bytes). d is the draft of the choices before and
 * after. */
void fx_improve(fx_draft *d, const fx_problem *p, fx_choice *choices, int64_t region, int64_t memory, int tries);

/* Changes pins, slices and kernels of `choices` and the region, and sets from_top, while that makes the run with
 * addresses shorter: `tries` random changes, the same ones each time; keeps to `memory` bytes (as fx_draft_bytes). d is
 * some draft after it. FX_ERR_MEMORY; FX_ERR_BOUNDS if the choices that come in take more, or have no places. */
fx_status fx_anneal(fx_draft *d, const fx_problem *p, fx_choice *choices, int64_t *region, int *from_top,
                    int64_t memory, int tries);

#endif
