/* Tables that stay in the file: their rows are read when a step needs them. */
#ifndef FLEXNN_ENGINE_TABLE_ROWS_H
#define FLEXNN_ENGINE_TABLE_ROWS_H

#include "flexnn/engine.h"

typedef struct fx_stored_table {
    fx_row_table face; /* what the kernel sees; first, so that it leads back here */
    struct fx_bound *bound;
    const fx_load *place;
} fx_stored_table;

/* FX_OK if a gather may read operand `o` of its in[0] from a table of the program. */
fx_status fx_table_check(const fx_program *p, const fx_node *node, const fx_place *o);

void fx_tables_start(struct fx_bound *b);

#endif
