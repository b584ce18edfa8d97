/* Rows of a tensor that indices name. */
#include "picks.h"

/* Adds (size - 1) * stride to the reach; 0 if that is too far or backwards. */
static int reach_on(int64_t *reach, int32_t size, int32_t stride) {
    if (size < 1 || stride < 0)
        return 0;
    *reach += (int64_t)(size - 1) * stride;
    return *reach < FX_ELEMENTS_MAX;
}

int fx_picks_fit(const fx_picks *p) {
    if ((p->index_bytes != 4 && p->index_bytes != 8) || p->depth < 1 || p->depth > FX_DIMS || p->inner < 1)
        return 0;
    int64_t rows = 1, reach = 0;
    for (int i = 0; i < FX_DIMS; i++) {
        if (!reach_on(&reach, p->d[i], p->xs[i]) || !reach_on(&reach, p->n[i], p->ns[i]))
            return 0;
        if (rows > FX_ELEMENTS_MAX / p->d[i])
            return 0;
        rows *= p->d[i];
    }
    return rows <= FX_ELEMENTS_MAX / p->inner && rows <= FX_ELEMENTS_MAX / p->depth;
}

int64_t fx_picks_rows(const fx_picks *p) {
    int64_t rows = 1;
    for (int i = 0; i < FX_DIMS; i++)
        rows *= p->d[i];
    return rows;
}

int64_t fx_picks_reach(const fx_picks *p) {
    int64_t reach = p->inner;
    for (int i = 0; i < FX_DIMS; i++)
        reach += (int64_t)(p->d[i] - 1) * p->xs[i] + (i < p->depth ? (int64_t)(p->n[i] - 1) * p->ns[i] : 0);
    return reach;
}

fx_picks_run fx_picks_next(const fx_picks *p, int64_t first, int64_t end) {
    const int64_t columns = p->d[FX_DIMS - 1], column = first % columns;
    fx_picks_run r = {first, columns - column, column * p->xs[FX_DIMS - 1]};
    int64_t rest = first / columns;
    for (int i = FX_DIMS - 2; i >= 0 && rest; i--) {
        r.at += rest % p->d[i] * p->xs[i];
        rest /= p->d[i];
    }
    r.rows = r.rows < end - first ? r.rows : end - first;
    return r;
}
