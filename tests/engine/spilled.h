/* A program for the engine whose activations go to the spill file and come back. An input comes into the map, which
 * goes to the file twice: in halves, and as a whole behind them. Then it is written over. The halves come back to the
 * slots and leave as the first output; the whole comes to the map and is the second. So both outputs are the input. */
#ifndef FLEXNN_TESTS_SPILLED_H
#define FLEXNN_TESTS_SPILLED_H

#include "flexnn/engine.h"

enum {
    SPILLED_COLUMNS = 48,
    SPILLED_ROWS = 16,
    SPILLED_HALF = SPILLED_ROWS / 2,
    SPILLED_ROW_BYTES = SPILLED_COLUMNS * 4,
    SPILLED_MAP_BYTES = SPILLED_ROWS * SPILLED_ROW_BYTES,
    SPILLED_HALF_BYTES = SPILLED_HALF * SPILLED_ROW_BYTES,
    SPILLED_VALUES = SPILLED_ROWS * SPILLED_COLUMNS,
    SPILLED_SECOND = 4096, /* where the whole lies in the file */
    SPILLED_ARENA = 2 * SPILLED_MAP_BYTES,
};

/* Its steps, each of a node of the same number. */
enum { COME, FIRST_HALF, SECOND_HALF, WHOLE, CLEAR, GO, LEAVE, COPIES };

typedef struct spilled {
    fx_node nodes[COPIES];
    fx_step steps[COPIES];
    fx_load places[2], loads[3];
    int64_t io_bytes[4]; /* the input, zeros, and both outputs */
    fx_program program;
} spilled;

/* fd: of the spill file. */
void spilled_make(spilled *s, int fd);

#endif
