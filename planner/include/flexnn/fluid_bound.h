/* The bound that no plan of a budget can beat, from a run in which weights flow byte by byte. */
#ifndef FLEXNN_FLUID_BOUND_H
#define FLEXNN_FLUID_BOUND_H

#include "flexnn/ops.h"

#define FX_ROUNDS_MAX 40 /* more rounds gain nothing */

typedef struct fx_fluid {
    uint32_t count;        /* of nodes, in order */
    const double *seconds; /* of computing each node, not more than in any plan */
    const int64_t *bytes;  /* of its weights */
    const double *read_s;  /* to read all weights of a node: bytes, requests, and computing that no reading can hide */
    const double *byte_s;  /* most seconds of these that each byte that is not read saves */
    const double *uses;    /* nodes that share its weights, at least 1: pinned for all of them, they take memory once */
    const int64_t *free_bytes; /* most bytes of weights in memory while it computes */
    double bytes_per_second;   /* rate of the storage */
    double compute_speed;      /* while loads go on, as a fraction of the speed alone: above 0, at most 1 */
    double load_speed;
    int rounds; /* distributions of the pinned bytes that are tried, at most FX_ROUNDS_MAX */
} fx_fluid;

/* A lower bound on the time of one run of many (flexnn/planning/bound.py says why), and price[i]: seconds by which the
 * bound changes with each byte of memory that node i pins, for all who share it, the memory included; weights with the
 * lowest price are best pinned. FX_ERR_MEMORY, FX_ERR_PARAMS. */
fx_status fx_fluid_bound(const fx_fluid *f, double *bound_s, double *price);

#endif
