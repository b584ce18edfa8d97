/* Drafts of a plan: the steps and slices of weights that follow from chosen kernels, slices and pins, and the time of
 * such a run. No engine, no Python: the planner's hot loops.
 *
 * A node's panels are pinned up to some panel and streamed in even slices after it; each slice is read by one step.
 * Streamed constants are slices of their node's first step. A load is a streamed slice. */
#ifndef FLEXNN_DRAFT_H
#define FLEXNN_DRAFT_H

#include "flexnn/interrupt.h"
#include "flexnn/ops.h"
#include "flexnn/record.h"

#define FX_CONSTANTS_MAX FX_MAX_INPUTS /* of a node */

/* The records that Python fills or reads, an array of each (flexnn/record.h). Sizes and offsets in bytes. */

/* One kernel of a node. workspace_bytes: of all threads; fixed_s: seconds of each step; channels_s: seconds of all
 * channels, of which a step takes the part of its window. */
#define FX_VARIANT_FIELDS(F, A, R) F(R, int64_t, workspace_bytes) F(R, double, fixed_s) F(R, double, channels_s)
FX_RECORD(fx_variant, FX_VARIANT_FIELDS);

/* A raw constant that is streamed or pinned. room_bytes: most bytes that it takes in the arena, wherever it lies in the
 * file. after_node: -1; or it is rows of an activation that the nodes up to this one store in the spill file, which are
 * streamed when they are stored. */
#define FX_CONSTANT_FIELDS(F, A, R)                                                                                    \
    F(R, int64_t, file_offset)                                                                                         \
    F(R, int64_t, bytes)                                                                                               \
    F(R, int64_t, room_bytes)                                                                                          \
    F(R, int64_t, operand)                                                                                             \
    F(R, int64_t, after_node)
FX_RECORD(fx_constant, FX_CONSTANT_FIELDS);

/* A node of the graph, with its ranges in the tables of variants (the fastest first, the one with the smallest
 * workspace last), constants and gaps. Everything above top_offset is free. live_bytes: activations that are alive;
 * tight_bytes: the smallest working part that holds them, the smallest workspace, the constants and one panel. */
#define FX_DRAFT_NODE_FIELDS(F, A, R)                                                                                  \
    F(R, int64_t, panel_count)                                                                                         \
    F(R, int64_t, panel_bytes)                                                                                         \
    F(R, int64_t, weight_offset)                                                                                       \
    F(R, int64_t, variant_first)                                                                                       \
    F(R, int64_t, variant_count)                                                                                       \
    F(R, int64_t, constant_first)                                                                                      \
    F(R, int64_t, constant_count)                                                                                      \
    F(R, int64_t, gap_first)                                                                                           \
    F(R, int64_t, gap_count)                                                                                           \
    F(R, int64_t, top_offset)                                                                                          \
    F(R, int64_t, live_bytes)                                                                                          \
    F(R, int64_t, tight_bytes)
FX_RECORD(fx_draft_node, FX_DRAFT_NODE_FIELDS);

/* Free bytes [start, end) of the working part between the activations alive. */
#define FX_GAP_FIELDS(F, A, R) F(R, int64_t, start) F(R, int64_t, end)
FX_RECORD(fx_gap, FX_GAP_FIELDS);

/* Bytes [start, end) of the working part that an activation occupies from one node to another, both included. */
#define FX_LIFETIME_FIELDS(F, A, R)                                                                                    \
    F(R, int64_t, start)                                                                                               \
    F(R, int64_t, end)                                                                                                 \
    F(R, int64_t, first_node)                                                                                          \
    F(R, int64_t, last_node)
FX_RECORD(fx_lifetime, FX_LIFETIME_FIELDS);

/* An item that may be pinned or streamed by itself: a node's panels (constant -1) or one of its constants. twin: the
 * next item with the same bytes of the file, which nodes share, round a ring; itself if there is none. Twins are pinned
 * together, and take memory once. */
#define FX_ITEM_FIELDS(F, A, R) F(R, int64_t, node) F(R, int64_t, constant) F(R, int64_t, twin)
FX_RECORD(fx_item, FX_ITEM_FIELDS);

/* The choice for a node. variant: index among the node's; slice_panels: panels of each streamed slice (the last may
 * have fewer); pinned_panels: how many, from the first on; pinned_constants: bit i stands for the node's i-th
 * constant. */
#define FX_CHOICE_FIELDS(F, A, R)                                                                                      \
    F(R, int32_t, variant)                                                                                             \
    F(R, int32_t, slice_panels)                                                                                        \
    F(R, int32_t, pinned_panels)                                                                                       \
    F(R, uint32_t, pinned_constants)
FX_RECORD(fx_choice, FX_CHOICE_FIELDS);

/* A step: panels [p0, p1) of a node (0, 0 without panels). wait_loads: loads up to this step; free_bytes: bytes of the
 * working part beside activations and workspace. */
#define FX_DRAFT_STEP_FIELDS(F, A, R)                                                                                  \
    F(R, int32_t, node)                                                                                                \
    F(R, int32_t, p0)                                                                                                  \
    F(R, int32_t, p1)                                                                                                  \
    F(R, int32_t, wait_loads)                                                                                          \
    F(R, double, seconds)                                                                                              \
    F(R, int64_t, free_bytes)
FX_RECORD(fx_draft_step, FX_DRAFT_STEP_FIELDS);

/* A slice, read by one step. constant: index among the problem's, -1: panels; wait_steps: for a streamed slice, as in
 * fx_load. */
#define FX_DRAFT_SLICE_FIELDS(F, A, R)                                                                                 \
    F(R, int32_t, step)                                                                                                \
    F(R, int32_t, constant)                                                                                            \
    F(R, int64_t, file_offset)                                                                                         \
    F(R, int64_t, bytes)                                                                                               \
    F(R, int64_t, arena_bytes)                                                                                         \
    F(R, int32_t, is_pinned)                                                                                           \
    F(R, int32_t, wait_steps)
FX_RECORD(fx_draft_slice, FX_DRAFT_SLICE_FIELDS);

#define FX_PLANNER_RECORDS(R)                                                                                          \
    R(fx_variant, FX_VARIANT_FIELDS)                                                                                   \
    R(fx_constant, FX_CONSTANT_FIELDS)                                                                                 \
    R(fx_draft_node, FX_DRAFT_NODE_FIELDS)                                                                             \
    R(fx_gap, FX_GAP_FIELDS)                                                                                           \
    R(fx_lifetime, FX_LIFETIME_FIELDS)                                                                                 \
    R(fx_item, FX_ITEM_FIELDS)                                                                                         \
    R(fx_choice, FX_CHOICE_FIELDS)                                                                                     \
    R(fx_draft_step, FX_DRAFT_STEP_FIELDS)                                                                             \
    R(fx_draft_slice, FX_DRAFT_SLICE_FIELDS)
extern const fx_record fx_planner_records[];

/* A graph on a machine. Speeds are those while both go on, as fractions of the speed alone: above 0, at most 1. */
typedef struct fx_problem {
    const fx_draft_node *nodes;
    const fx_variant *variants;
    const fx_constant *constants;
    const fx_gap *gaps;
    const fx_item *items;
    const fx_lifetime *lifetimes;
    uint32_t node_count, variant_count, constant_count, gap_count, item_count, lifetime_count;
    int64_t io_align;
    int64_t step_bytes; /* memory of a step, or of a slice, outside the arena */
    double storage_bytes_per_second, request_s;
    double latency_s; /* from when a load may start until its bytes come */
    double compute_speed, load_speed;
    int has_twins; /* whether an item has another one as its twin */
} fx_problem;

/* A load as the simulation sees it. */
typedef struct fx_draft_load {
    double seconds;
    int64_t wait_steps;
} fx_draft_load;

/* State of a simulated run when a step began: seconds, and the loader's state. */
typedef struct fx_mark {
    double now, stall;
    double left;  /* seconds left of the next load */
    double wait;  /* before its bytes come */
    int64_t done; /* loads */
} fx_mark;

/* Where a node's steps and slices begin, and how many loads come before. */
typedef struct fx_start {
    uint32_t step, slice;
    int32_t loads;
} fx_start;

typedef struct fx_rank {
    double score;
    uint32_t node;
} fx_rank;

typedef struct fx_draft {
    fx_draft_step *steps;
    fx_draft_slice *slices;
    uint32_t step_count, slice_count, step_max, slice_max;
    int64_t pinned_bytes; /* in the arena */
    int64_t stream_bytes;
    const fx_interrupt *interrupt; /* of fx_draft_place; NULL: nobody cancels */
    double seconds, stall_s;       /* predicted; after fx_draft_time as if memory were never fragmented */
    fx_draft_load *loads;          /* [slice_max + 1] */
    fx_mark *marks;                /* [step_max] */
    int is_built;                  /* steps and slices are those of the choices in `built` and of `working_bytes` */
    int64_t working_bytes;
    fx_choice *built;  /* [nodes] */
    fx_start *starts;  /* [nodes + 1] */
    int64_t *work;     /* [4 slice_max + 2] */
    fx_choice *before; /* [nodes] */
    fx_rank *ranks;    /* [nodes] */
    int32_t *twins;    /* [slice_max], of fx_fill: the next slice with the same bytes of the file, round a ring */
} fx_draft;

/* working_bytes: the size of the arena's working part, where activations, workspaces and loads lie. bytes_max: the most
 * bytes that a chosen draft may have (fx_draft_bytes). */

/* Whether the problem's counts and sizes are sane, so that nothing in the functions below overflows or leaves its
 * arrays. */
fx_status fx_problem_check(const fx_problem *p);

/* Whether the choices' variants and panels exist. */
int fx_choices_fit(const fx_problem *p, const fx_choice *choices);

/* Whether steps and slices that came from outside agree, and `order` names streamed slices; counts their bytes. From
 * then on they belong to no choices. */
int fx_draft_sane(fx_draft *d, const int32_t *order, uint32_t count);

/* Allocates room for the drafts of a problem. FX_ERR_MEMORY. */
fx_status fx_draft_make(fx_draft *d, const fx_problem *p);
void fx_draft_free(fx_draft *d);

/* Sets address[1 + FX_CONSTANTS_MAX] to where a node's workspace and streamed constants lie (-1: none) and returns the
 * largest gap left for a slice; -1 if they do not fit. */
int64_t fx_node_room(const fx_problem *p, const fx_draft_node *node, int64_t working_bytes, const fx_choice *choice,
                     int64_t *address);

/* How a draft is chosen. */
typedef struct fx_recipe {
    const int32_t *order; /* order in which items are pinned, a permutation */
    int64_t working_bytes, bytes_max;
    int slices_in_room; /* slices of a node that must fit its room at once */
    int smallest;       /* each node uses its smallest workspace, not its fastest kernel with room for slices */
} fx_recipe;

/* Pins items while bytes_max lasts, in part if an item does not fit whole, and chooses each node's kernel and slices. d
 * is the draft of these choices. */
void fx_choose(fx_draft *d, const fx_problem *p, const fx_recipe *recipe, fx_choice *choices);

/* Pins so many panels of an item and of its twins, or these whole constants. */
void fx_pin_item(const fx_problem *p, int64_t item, int64_t panels, fx_choice *choices);

/* Chooses kernel and slices of a node whose pins are chosen, as fx_choose does. */
void fx_choose_node(const fx_problem *p, uint32_t node, int64_t working_bytes, int slices_in_room, int smallest,
                    fx_choice *choice);

/* Makes steps and slices of `choices`, each with its predicted time. If d was built for the same working part, only
 * nodes from the first to the last whose choice differs are made again. */
void fx_draft_build(fx_draft *d, const fx_problem *p, const fx_choice *choices, int64_t working_bytes);

/* Step of the run from which on the bytes of a slice are in their file, of a draft that was built; below the first step
 * of any load: always. */
static inline int64_t fx_stored_step(const fx_draft *d, const fx_problem *p, const fx_draft_slice *slice) {
    const int64_t after = slice->constant < 0 ? -1 : p->constants[slice->constant].after_node;
    return after < 0 ? -(int64_t)d->step_count : (int64_t)d->starts[after + 1].step;
}
/* Sets the earliest wait_steps of the loads if memory were never fragmented, and the time of such a run. */
void fx_draft_time(fx_draft *d, const fx_problem *p);

/* Sets the time of a run with the waits as they are. */
void fx_draft_simulate(fx_draft *d, const fx_problem *p);

/* Bytes of a draft, without those that every plan of the problem takes. Twins that are pinned alike count once. */
int64_t fx_draft_bytes(const fx_draft *d, const fx_problem *p, int64_t working_bytes);

/* Places the loads of the draft of `choices` (fx_place_streams), which sets their wait_steps, and simulates the run.
 * address[slice]: from the start of the working part; -1 for pinned ones. node_address[node][1 + FX_CONSTANTS_MAX]: of
 * its workspace and its streamed constants, -1: none. FX_ERR_MEMORY; FX_ERR_BOUNDS if something has no room at its own
 * step; FX_ERR_CANCELLED. */
fx_status fx_draft_place(fx_draft *d, const fx_problem *p, const fx_choice *choices, int64_t working_bytes,
                         int from_top, int64_t *address, int64_t *node_address);

typedef struct fx_limits {
    int64_t working_bytes, bytes_max, next_bytes_max;
} fx_limits;

/* Pins streamed slices of a draft that has its waits while it takes at most `bytes_max`, and stops where the run was
 * the shortest. Slices that save the most time per byte come first; where none saves any, the next in `order` (slices,
 * at most as many as the draft has). The sequence depends on `next_bytes_max`, the most that `bytes_max` may be, and
 * not on `bytes_max`, so more bytes are never slower. At most `looks` slices are tried. Of many slices, several are
 * pinned between two looks at the whole run. Slices of the same bytes of the file, which nodes share, are pinned
 * together and take memory once. FX_OK, or FX_ERR_CANCELLED, and d is no draft: interrupt, which may be NULL, is asked
 * meanwhile. */
fx_status fx_fill(fx_draft *d, const fx_problem *p, const int32_t *order, uint32_t count, const fx_limits *limits,
                  int looks, const fx_interrupt *interrupt);

/* Changes kernels and slices of single nodes while that makes the run shorter, nodes that may save the most first;
 * tries at most `tries` changes and keeps to bytes_max. d is the draft of the choices before and after. */
void fx_improve(fx_draft *d, const fx_problem *p, fx_choice *choices, int64_t working_bytes, int64_t bytes_max,
                int tries);

/* Changes pins, slices and kernels of `choices` and the working part, and sets from_top, to make the run with addresses
 * shorter: `tries` random changes, the same in every call; keeps to bytes_max. Afterwards d is some draft.
 * FX_ERR_MEMORY; FX_ERR_BOUNDS if the choices that come in take more, or have no places. */
fx_status fx_anneal(fx_draft *d, const fx_problem *p, fx_choice *choices, int64_t *working_bytes, int *from_top,
                    int64_t bytes_max, int tries);

#endif
