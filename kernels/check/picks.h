/* Cases of operators whose indices name rows of a tensor: gather_at and scatter_at. */
#ifndef FLEXNN_CHECK_PICKS_H
#define FLEXNN_CHECK_PICKS_H

#include "check.h"

typedef struct check_picks {
    int32_t *index_bytes, *depth, *inner;
    int32_t *d, *xs, *n, *ns; /* FX_DIMS each */
} check_picks;

#define CHECK_PICKS(c, op)                                                                                             \
    (check_picks) {                                                                                                    \
        &(c)->params.op.index_bytes, &(c)->params.op.depth, &(c)->params.op.inner, &(c)->params.op.d0,                 \
            &(c)->params.op.xs0, &(c)->params.op.n0, &(c)->params.op.ns0                                               \
    }

/* Draws sizes and strides, and fills in[1] with indices, one of which may be out of range. */
void check_draw_picks(check_case *c, check_picks p);
void check_fill_picks(check_case *c, check_picks p);

int64_t check_picks_rows(check_picks p);

/* The element that row `row` begins at; -1 if an index is out of range. */
int64_t check_picks_at(const check_case *c, check_picks p, int64_t row);

/* What a run must end with. */
fx_status check_picks_status(const check_case *c, check_picks p);

#endif
