/* Exact sums in int32; sums.h describes them. */
#include "sums.h"

#include <string.h>

int32_t fx_exact_terms(int32_t wtype) {
    return FX_EXACT_TERMS(wtype == FX_WTYPE_S8 ? 128 : 255);
}

int fx_sums_fit(int32_t sums, int32_t act, int32_t has_residual) {
    return sums == FX_DTYPE_F32 || (sums == FX_DTYPE_I32 && act == FX_ACT_NONE && !has_residual);
}

int fx_next_part(fx_part *p) {
    p->at += p->k;
    if (p->at == p->wide)
        p->at = 0, p->tap += p->taps;
    if (p->tap == p->all_taps)
        p->tap = 0, p->first += p->wide;
    if (p->first == p->all_k)
        return 0;
    if ((int64_t)p->all_taps * p->all_k <= p->terms) {
        p->taps = p->all_taps, p->k = p->wide = p->all_k, p->block = p->all_block;
        return 1;
    }
    const int32_t block = p->all_taps == 1 ? p->all_k : p->all_block; /* with one tap the order is [q] */
    p->wide = (int32_t)fx_min64(block, p->all_k - p->first);
    p->k = p->block = (int32_t)fx_min64(p->terms, p->wide - p->at);
    p->taps = (int32_t)fx_max64(1, fx_min64(p->terms / p->wide, p->all_taps - p->tap));
    p->weight = (int64_t)p->first * p->all_taps + (int64_t)p->tap * p->wide + p->at;
    return 1;
}

/* A whole number as int32. No number that is right reaches the bounds; without them others would be undefined. They are
 * read when a loop begins: of constants the compiler makes branches, and no vectors. */
static const volatile float bound = 0x1p30f;
static inline int32_t whole(float v, float lo, float hi) {
    const float above = v > lo ? v : lo, inside = above < hi ? above : hi;
    return (int32_t)inside;
}

void fx_add_sums(const float *restrict x, int32_t *restrict y, int64_t n, int is_more) {
    const float hi = bound, lo = -hi;
    if (is_more)
        for (int64_t i = 0; i < n; i++)
            y[i] = (int32_t)((uint32_t)y[i] + (uint32_t)whole(x[i], lo, hi));
    else
        for (int64_t i = 0; i < n; i++)
            y[i] = whole(x[i], lo, hi);
}

void fx_round_rows(float *rows, int64_t count, int64_t row_step, int64_t n) {
    const float hi = bound, lo = -hi;
    for (int64_t r = 0; r < count; r++) {
        float *v = rows + r * row_step;
        for (int64_t i = 0; i < n; i++) {
            const int32_t y = whole(v[i], lo, hi);
            memcpy(&v[i], &y, sizeof y);
        }
    }
}

fx_pairs fx_pairs_at(void *base, int64_t *at, const fx_kernels *k, int64_t depth, int64_t panels) {
    fx_pairs s = {.row = fx_round_up(depth, 2)};
    s.panel = s.row * FX_NR;
    if (!k->gemm_s16)
        return s;
    FX_TAKE(s.rows, base, *at, k->mr * s.row + FX_S16_SLACK);
    FX_TAKE(s.panels, base, *at, panels * s.panel);
    return s;
}

void fx_pair_rows(const fx_kernels *k, const fx_gemm *g, const fx_pairs *s) {
    const fx_rows_s16 r = {.a = g->a,
                           .a_at = g->a_at,
                           .to = s->rows,
                           .to_row = s->row,
                           .rows = g->rows,
                           .taps = g->taps,
                           .k = g->k,
                           .block = g->block};
    k->rows_s16(&r);
}

void fx_pair_panel(const fx_kernels *k, const float *from, int64_t depth, const fx_pairs *s, int64_t i) {
    k->panel_s16(&(fx_panel_s16){.from = from, .to = s->panels + i * s->panel, .depth = (int32_t)depth});
}

void fx_gemm_pairs(const fx_kernels *k, const fx_gemm *g, const fx_pairs *s, int64_t i) {
    const fx_gemm_s16 pairs = {.a = s->rows,
                               .a_row = s->row,
                               .w = s->panels + i * s->panel,
                               .w_panel = s->panel,
                               .c = (int32_t *const *)(const void *)g->c,
                               .c_at = g->c_at,
                               .rows = g->rows,
                               .panels = g->panels,
                               .columns = g->columns,
                               .depth = (int32_t)fx_round_up((int64_t)g->taps * g->k, 2),
                               .is_more = g->r != NULL};
    k->gemm_s16(&pairs);
}

void fx_gemm_sums(const fx_kernels *k, const fx_gemm *g, int32_t terms, const fx_part_tile *tile) {
    fx_part p = {.all_taps = g->taps, .all_k = g->k, .all_block = g->block, .terms = terms};
    fx_gemm part = *g;
    part.c = tile->row, part.c_at = 0, part.r = NULL, part.head = 0;
    part.finish = fx_finish_of(FX_ACT_NONE, 0, 0);
    for (int32_t i = 0; i < g->rows; i++)
        tile->row[i] = tile->floats + (int64_t)i * tile->columns;
    int is_more = g->r != NULL;
    while (fx_next_part(&p)) {
        part.a = g->a + (int64_t)p.tap * g->rows;
        part.a_at = g->a_at + p.first + p.at;
        part.w = g->w + g->head + p.weight * FX_NR;
        part.taps = p.taps, part.k = p.k, part.block = p.block;
        k->gemm_f32(&part);
        for (int32_t i = 0; i < g->rows; i++)
            fx_add_sums(tile->row[i], (int32_t *)(void *)(g->c[i] + g->c_at), g->columns, is_more);
        is_more = 1;
    }
}
