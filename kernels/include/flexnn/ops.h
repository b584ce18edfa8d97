/* The operators, as functions over an output window. No engine, no Python, no allocation: everything an
 * operator touches is handed in by fx_call. An operator's driver (kernels/ops) is portable C over the table of micro
 * kernels (kernels.h) that the CPU's instruction-set level fills. */
#ifndef FLEXNN_OPS_H
#define FLEXNN_OPS_H

#include <stddef.h>
#include <stdint.h>

#include "flexnn/params.h"
#include "flexnn/record.h"

#define FX_MAX_INPUTS 4
#define FX_OUTPUT FX_MAX_INPUTS /* operand number of the output in fx_op_extent */
#define FX_MAX_THREADS 64

typedef struct fx_kernels fx_kernels; /* kernels.h */

typedef enum fx_status {
    FX_OK = 0,
    FX_ERR_PARAMS, /* a parameter is out of its range */
    FX_ERR_BOUNDS, /* an operand reaches outside its memory */
    FX_ERR_INDEX,  /* found in the data: a Gather index out of range */
    FX_ERR_MEMORY, /* allocation failed */
    FX_ERR_IO,     /* a read or write failed; errno kept */
    FX_ERR_EOF,    /* file shorter than the program says */
    FX_ERR_CHECKSUM,
    FX_ERR_THREAD, /* threads could not be started */
    FX_ERR_CANCELLED,
    FX_ERR_FORK,    /* the session belongs to the process before a fork */
    FX_ERR_OVERLAP, /* a load or an operand overlaps memory that is in use */
    FX_ERR_RUNNING, /* refused while a run goes on */
    FX_ERR_SEAL,    /* what is bound is not in memory as it was bound */
    FX_ERR_RANGE,   /* found in the data: a number beyond what 16 bits hold */
    FX_STATUS_COUNT
} fx_status;

/* Output rows [y0, y1) of n*oh and output channels [c0, c1). c0 is a multiple of the panel width; c1 too, or cout.
 * Operators without FX_TRAIT_ROWS get all rows, those without FX_TRAIT_CHANNELS all channels. */
#define FX_WINDOW_FIELDS(F, A, R) F(R, int32_t, y0) F(R, int32_t, y1) F(R, int32_t, c0) F(R, int32_t, c1)
FX_RECORD(fx_window, FX_WINDOW_FIELDS);

/* A table of rows that is not in memory. read returns chunk i, checked; it is given a workspace of workspace_bytes and
 * may leave the chunk there. Any thread may call it. */
typedef struct fx_row_table {
    int64_t chunk_bytes; /* a whole number of rows */
    int64_t workspace_bytes;
    fx_status (*read)(const struct fx_row_table *table, int64_t i, void *workspace, const char **chunk);
} fx_row_table;

/* A place for rows that is not in memory. write takes rows [u0, u1), which lie one after the other behind the address
 * of the first of all. Any thread may call it. */
typedef struct fx_row_sink {
    fx_status (*write)(const struct fx_row_sink *sink, const void *rows, uint32_t u0, uint32_t u1);
} fx_row_sink;

typedef struct fx_call {
    const fx_kernels *kernels;
    const fx_params *params;
    uint32_t op, kernel; /* kernel: fx_conv_kernel for CONV, else 0 */
    uint32_t phase;      /* that is computed, from 1; 0: all, with the units of fx_op_units */
    fx_window window;
    const void *in[FX_MAX_INPUTS]; /* CONV, DWCONV: in[1] is the residual */
    void *out;
    const float *weight; /* the panel that holds channel window.c0, followed by the others of the window */
    const float *zeros;  /* at least fx_op_zeros floats of 0.0 */
    void *workspace;     /* this thread's, fx_op_workspace bytes, 64-byte aligned */
    /* In a phase: the first thread's workspace, and bytes from one to the next, of which there are two or more. What a
     * unit leaves there, and no unit as its own thread's, is there in the phases behind. */
    void *shared;
    int64_t shared_step;
    const fx_row_table
        *table;              /* GATHER with outer = 1, GATHER_PANELS: replaces in[0], and workspace is its; else NULL */
    uint64_t draw;           /* NOISE: a number that no other run of a program has */
    const fx_row_sink *sink; /* COPY of rows as they are: replaces out, and units are rows; else NULL */
} fx_call;

/* Properties of an operator. FLUSHES: it adds products, and numbers below FLT_MIN count as 0 (ops/flush.h). KEEPS: its
 * output is state, most of which it leaves as it was. */
enum { FX_TRAIT_ROWS = 1, FX_TRAIT_CHANNELS = 2, FX_TRAIT_PANELS = 4, FX_TRAIT_FLUSHES = 8, FX_TRAIT_KEEPS = 16 };
uint32_t fx_op_traits(uint32_t op);

/* The window of the whole output: all rows (n*oh, or the outermost dimension) and all channels. */
fx_window fx_op_full_window(uint32_t op, const fx_params *p);

/* FX_OK if every parameter is in range and no size, stride product or sum can overflow. It does not look at memory. */
fx_status fx_op_check(uint32_t op, uint32_t kernel, const fx_params *p);

/* Byte range [*lo, *hi) that the operator may touch of an operand, relative to the operand's address (lo <= 0 where
 * strides are negative). Only for params that fx_op_check accepts. *lo = *hi = 0 for an operand that the operator does
 * not have. */
void fx_op_extent(uint32_t op, const fx_params *p, int operand, int64_t *lo, int64_t *hi);

/* Bytes of one element of an operand, whose address is a multiple of them; and of a type. */
int64_t fx_op_element_bytes(uint32_t op, const fx_params *p, int operand);
int64_t fx_dtype_bytes(int32_t dtype);

/* Bytes of the output's elements: fewer than its extent where it is a view with other tensors' values between its
 * own. */
int64_t fx_op_output_bytes(uint32_t op, const fx_params *p);

/* Bytes of one weight panel (0 without FX_TRAIT_PANELS), and the number of panels. */
int64_t fx_op_panel_bytes(uint32_t op, const fx_params *p);
int32_t fx_op_panels(uint32_t op, const fx_params *p);

/* First input channel that panel i reads. Grouped convolution packs nr consecutive output channels into a panel,
 * whatever their groups; the panel reads the input channels of the groups it touches, cin_panel of them (the most any
 * panel needs), zeros in the weights where an output does not see an input. Narrow groups need no zeros: where cin =
 * cout and a group has g = 2, 4 or 8 channels, cin_panel = g says that row q of a tap, q < g, holds in lane j the
 * weight of input channel j / g * g + q from the panel's first on. */
int32_t fx_conv_panel_cin(const fx_conv_params *p, int32_t panel);

/* 1 if the groups are narrow; and cin_panel of a convolution's panels, which hold no zeros if its groups are narrow.
 * cin and cout are multiples of group. */
int fx_conv_groups_are_narrow(int64_t cin, int64_t cout, int64_t group);
int64_t fx_conv_cin_panel(int64_t cin, int64_t cout, int64_t group);

/* Most products of integers, less their zero points 255 in size at most, whose sum floats hold exactly in whatever
 * order they are added; of weights of this form. Where sums are I32, those of depthwise and narrow groups have no more.
 */
int32_t fx_exact_terms(int32_t wtype);

/* 1 if the kernel can compute this convolution. */
int fx_conv_kernel_fits(uint32_t kernel, const fx_conv_params *p);

/* Workspace bytes per thread for any window of the node, and floats of zeros that it reads. */
int64_t fx_op_workspace(const fx_kernels *k, uint32_t op, uint32_t kernel, const fx_params *p);
int64_t fx_op_zeros(uint32_t op, const fx_params *p);

/* Independent units of work in a window, for this many threads: they may run in any order and at the same time. */
uint32_t fx_op_units(const fx_kernels *k, uint32_t op, uint32_t kernel, const fx_params *p, fx_window w, int threads);

/* How an operator of few units is computed by more threads: in `count` phases, one after the other, each of which has
 * so many units. A count of 1: it is not. */
typedef struct fx_phases {
    int32_t count;
    uint32_t units;
} fx_phases;

fx_phases fx_op_phases(const fx_kernels *k, uint32_t op, const fx_params *p, int threads);

/* Computes units [u0, u1) of fx_op_units(..., threads), or of the call's phase of fx_op_phases(..., threads). */
fx_status fx_op_run(const fx_call *call, int threads, uint32_t u0, uint32_t u1);

/* Names, for Python and messages. Field i of op: name, and whether it is a float; NULL past the end. */
const char *fx_op_name(uint32_t op);
int fx_op_inputs(uint32_t op);
const char *fx_op_field(uint32_t op, int i, int *is_float);
const char *fx_status_text(fx_status s);

/* Name i of an enumeration of FX_ENUMS ("act", "conv_kernel", ...); NULL past the end or for an unknown enumeration. */
const char *fx_enum_name(const char *enumeration, int i);

/* The micro kernels of a level, or NULL if this build or CPU does not have it. level NULL: FLEXNN_ISA, or the best. */
const fx_kernels *fx_kernels_for(const char *level);
const char *fx_kernels_level(const fx_kernels *k);
int fx_kernels_add_halves(const fx_kernels *k); /* 1: faster than floats */

#endif
