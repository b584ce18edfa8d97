/* The smallest world that the engine's code runs in: programs in a few numbers, and a file, kernels and poison that are
 * made up. A load brings numbers that say whose bytes they are, and a step finds those of its own load or fails. */
#ifndef FLEXNN_TESTS_WORLD_H
#define FLEXNN_TESTS_WORLD_H

#include "checker.h"
#include "protocol.h"

enum { PROGRAMS = 3, STEPS = 3, LOADS = 3, UNITS = 2, REQUEST = 64, ARENA = 8 * REQUEST };

/* Of a load: whose bytes lie where. */
typedef struct part {
    int slot, requests, wait_steps;
} part;

/* A program in a few numbers. reads: the load of each step, -1: none. */
typedef struct sketch {
    int steps, loads;
    int reads[STEPS];
    part parts[LOADS];
} sketch;

typedef struct world {
    fx_engine e;
    fx_bound bound[PROGRAMS];
    fx_node nodes[PROGRAMS][STEPS];
    fx_step steps[PROGRAMS][STEPS];
    fx_load loads[PROGRAMS][LOADS];
    fx_touch used[PROGRAMS][STEPS];
    fx_range writes[PROGRAMS][LOADS];
    fx_task tasks[PROGRAMS][1];
    fx_cost costs[PROGRAMS][STEPS];
    uint32_t after[PROGRAMS][FX_PREDECESSORS][LOADS], waits[PROGRAMS][FX_RUNS * LOADS];
    int reads[PROGRAMS][STEPS];
    const fx_load *held[PROGRAMS][STEPS]; /* of another program, which brought what a step finds; NULL: none */
    int64_t spilled[2];                   /* the spill file: a number of each of two rows */
    uint32_t spill_crcs[2];               /* of them */
    fx_spill_store stores[1];
    int64_t runs;                     /* of the program that spills: each stores other numbers */
    int done[PROGRAMS][STEPS][UNITS]; /* how often, in this run */
    int units;
    int may_fail, may_miss, may_spoil; /* how often a read may fail, not be cached, bring wrong bytes */
    int may_not_store;                 /* how often a row may not be stored */
    int wants_cancel;
    int readers;
    int was_freed;
    int is_checked[ARENA / REQUEST]; /* what lies in each place of the arena */
    _Alignas(64) char arena[ARENA];
} world;

extern world *w;

/* An engine; readers: 0 without a loader, -1: one, and workers that read as steps leave it no CPU. */
fx_engine *open_engine(int threads, int readers, int units);
void close_engine(fx_engine *e);
/* Binds program `number`. */
void make(int number, const sketch *s);
/* Makes the first step of program `number` store rows in the spill file, and a load of one request bring them. */
void spill_through(int number, int load);
/* Places the loads of a program, each so many slots behind where its sketch says. */
void lay_loads(int number, const sketch *s, int shift);
/* Makes the first step of a program, which reads nothing of its own, find what the holder's first load brought. */
void hold(int number, int holder);
/* Checks that a place holds all of a load. */
void check_load(const fx_load *load);

/* Runs a program, and checks what it did. */
fx_status run(int number, fx_bound *const *next, uint32_t count);
void good(int number, fx_bound *const *next, uint32_t count);

#endif
