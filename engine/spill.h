/* The spill file: activations that a step stores and a later load of the same run brings back, in rows that each have a
 * checksum. The file has no other use, and what it holds is worth nothing after the run. */
#ifndef FLEXNN_ENGINE_SPILL_H
#define FLEXNN_ENGINE_SPILL_H

#include "flexnn/engine.h"

/* What a step that stores rows hands to its kernel. */
typedef struct fx_spill_store {
    fx_row_sink face; /* first, so that it leads back here */
    struct fx_bound *bound;
    const fx_load *place; /* of the activation */
    int64_t first_row;
} fx_spill_store;

/* Whether a load is of the spill file. */
static inline int fx_load_is_spilled(const fx_load *load) {
    return load->file_offset >= FX_SPILL_FROM;
}

/* FX_OK if a node may have its output in the spill file: it copies whole rows of one activation as they are. */
fx_status fx_spill_check_node(const fx_program *p, const fx_node *node);
/* Checks what lies where in the file, that each row is stored by one step, and that no load of rows begins before all
 * of them are stored. */
fx_status fx_spill_check(const fx_program *p, fx_error *error);

/* Makes *store that of a node's step, and returns how many units it has: rows. */
uint32_t fx_spill_begin(struct fx_bound *b, const fx_node *node, fx_spill_store *store);

#endif
