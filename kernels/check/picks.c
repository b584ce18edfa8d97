/* Cases of operators whose indices name rows of a tensor. */
#include "picks.h"

void check_draw_picks(check_case *c, check_picks p) {
    int32_t stride = *p.inner = check_one_in(c, 2) ? 1 : check_int(c, 2, 40);
    *p.index_bytes = CHECK_PICK(c, 4, 8);
    *p.depth = check_int(c, 1, check_one_in(c, 4) ? FX_DIMS : 2);
    for (int k = FX_DIMS - 1; k >= 0; k--) {
        p.n[k] = k < *p.depth ? check_int(c, 1, 5) : 1;
        p.ns[k] = k < *p.depth ? stride : 0;
        stride *= p.n[k];
    }
    for (int i = FX_DIMS - 1; i >= 0; i--) {
        p.d[i] = check_one_in(c, 2) ? check_int(c, 1, i == FX_DIMS - 1 ? 30 : 3) : 1;
        p.xs[i] = stride > 2000 || check_one_in(c, 2) ? 0 : stride;
        stride *= p.xs[i] ? p.d[i] : 1;
    }
}

int64_t check_picks_rows(check_picks p) {
    int64_t rows = 1;
    for (int i = 0; i < FX_DIMS; i++)
        rows *= p.d[i];
    return rows;
}

static int64_t get_index(const check_case *c, check_picks p, int64_t i) {
    return *p.index_bytes == 4 ? ((const int32_t *)c->in[1])[i] : ((const int64_t *)c->in[1])[i];
}

static void set_index(check_case *c, check_picks p, int64_t i, int64_t index) {
    if (*p.index_bytes == 4)
        ((int32_t *)c->in[1])[i] = (int32_t)index;
    else
        ((int64_t *)c->in[1])[i] = index;
}

void check_fill_picks(check_case *c, check_picks p) {
    const int64_t count = check_picks_rows(p) * *p.depth;
    for (int64_t i = 0; i < count; i++)
        set_index(c, p, i, check_int(c, -p.n[i % *p.depth], p.n[i % *p.depth] - 1));
    if (check_one_in(c, 4)) {
        const int64_t i = check_int(c, 0, (int32_t)count - 1), n = p.n[i % *p.depth];
        const int64_t far = *p.index_bytes == 8 && check_one_in(c, 2) ? INT64_C(1) << check_int(c, 33, 62) : n;
        set_index(c, p, i, check_one_in(c, 2) ? far : -far - 1);
    }
}

int64_t check_picks_at(const check_case *c, check_picks p, int64_t row) {
    int64_t at = 0, rest = row;
    for (int k = 0; k < *p.depth; k++) {
        const int64_t index = get_index(c, p, row * *p.depth + k);
        if (index < -p.n[k] || index >= p.n[k])
            return -1;
        at += (index < 0 ? index + p.n[k] : index) * p.ns[k];
    }
    for (int i = FX_DIMS - 1; i >= 0; i--) {
        at += rest % p.d[i] * p.xs[i];
        rest /= p.d[i];
    }
    return at;
}

fx_status check_picks_status(const check_case *c, check_picks p) {
    for (int64_t row = 0; row < check_picks_rows(p); row++)
        if (check_picks_at(c, p, row) < 0)
            return FX_ERR_INDEX;
    return FX_OK;
}
