/* Rows of a tensor that indices name, for gather_at and scatter_at.
 *
 * Row r of the indices, at (r0 .. r5) in the box d, names the `inner` neighbours that begin at element
 * sum r_i * xs_i + sum index_k * ns_k of the tensor, where index_k, k < depth, are its numbers: 0 <= index_k < n_k
 * after n_k was added to a negative one. Indices and rows follow each other without gaps. */
#ifndef FLEXNN_OPS_PICKS_H
#define FLEXNN_OPS_PICKS_H

#include "impl.h"

typedef struct fx_picks {
    const int32_t *d, *xs, *n, *ns; /* FX_DIMS each */
    int32_t index_bytes, depth, inner;
    const void *indices; /* NULL where only sizes matter */
} fx_picks;

/* Rows `first` to `first + rows - 1`, neighbours along the innermost dimension of the box. */
typedef struct fx_picks_run {
    int64_t first, rows;
    int64_t at; /* element where row `first` begins if its indices are 0; the next ones are xs[FX_DIMS - 1] apart */
} fx_picks_run;

/* 1 if every size is in its range and no sum or product can overflow. */
int fx_picks_fit(const fx_picks *p);

int64_t fx_picks_rows(const fx_picks *p);

/* Elements of the tensor, from its first on, among which all lie that rows can name. */
int64_t fx_picks_reach(const fx_picks *p);

/* The longest run from row `first` on that ends before row `end`. */
fx_picks_run fx_picks_next(const fx_picks *p, int64_t first, int64_t end);

/* The sum of index_k * ns_k of a row; -1 if an index is out of range. */
static inline int64_t fx_picks_offset(const fx_picks *p, int64_t row) {
    int64_t offset = 0;
    for (int64_t k = 0; k < p->depth; k++) {
        const int64_t i = row * p->depth + k, n = p->n[k];
        const int64_t index = p->index_bytes == 4 ? ((const int32_t *)p->indices)[i] : ((const int64_t *)p->indices)[i];
        if (index < -n || index >= n)
            return -1;
        offset += (index < 0 ? index + n : index) * p->ns[k];
    }
    return offset;
}

#endif
