/* A program for the engine: a chain of convolutions whose panels are pinned, or stream through a few slots. Several of
 * them fit one arena: they share its beginning, and each has its pinned panels and zeros behind that. */
#ifndef FLEXNN_TESTS_CHAIN_H
#define FLEXNN_TESTS_CHAIN_H

#include "flexnn/engine.h"
#include "flexnn/kernels.h"

/* The convolutions' side. A sanitizer looks at each operand that the scalar kernels read, an emulator translates each
 * instruction: with 9 times fewer of them, programs about the engine spend their time in the engine. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(FLEXNN_EMULATED)
#define CHAIN_KERNEL 1
#else
#define CHAIN_KERNEL 3
#endif

enum {
    NODES = 5,
    CHANNELS = 40, /* the last panel is not full */
    PANELS = 3,
    SIDE = 7,
    SLOTS = 3,
    SLICES = NODES * PANELS, /* one panel each */
    PINNED_EVERY = 4,
    WINDOWS = 2, /* in rows */
    STEPS = SLICES * WINDOWS,
    PROGRAMS = 3,
    SHARED_BYTES = 1 << 20,
    PINNED_BYTES = 1 << 17, /* of each program, behind what they share */
};

typedef struct chain {
    fx_node nodes[NODES];
    fx_step steps[STEPS];
    fx_load pinned[SLICES], loads[SLICES];
    uint32_t crcs[SLICES], groups[STEPS];
    int64_t io_bytes[2];
    fx_program program;
    int64_t panel_bytes, map_bytes;
    float *weights;
    int fd;
    /* Arena offsets. */
    int64_t maps[2], workspace, slots[SLOTS], zeros, end;
} chain;

/* Where program `number` begins: the first two meet in part, the third is apart from them. */
int64_t chain_start(int number);

/* group: steps that run at the same time; seed: of the weights. */
void chain_make(chain *c, const fx_kernels *k, int threads, int group, int number, uint32_t *seed);
void chain_free(chain *c);

/* Has each of the chain's nodes, in a copy of them, read and write the map that it did not. */
void chain_exchange_maps(const chain *c, fx_node nodes[NODES]);

/* y: the output of the operators run one by one, whole, with all weights in memory. */
void chain_reference(const chain *c, const fx_kernels *k, const float *x, float *y);

#endif
