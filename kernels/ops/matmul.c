/* Product of two computed matrices, over two batch dimensions: b is packed into panels, a block of depth and a group of
 * columns at a time, small enough to stay in a core's cache and to cost the budget little; then the gemm tile walks a's
 * rows. Sums are carried from one block of depth to the next in y. A product of few rows reads b where it is. */
#include "sums.h"
#include "units.h"

#include <math.h>
#include <string.h>

#define DEPTH_MAX 512                     /* of a packed block */
#define PACKED_BYTES (FX_CACHE_BYTES / 2) /* of a packed group; the rest of the cache is for a and y */
#define ROWS_MIN 32                       /* fewer rows in a unit would take less time than packing b */

#define FEW 8            /* fewer rows than this do not pay for packing b */
#define PART_COLUMNS 256 /* of few rows, where sums are int32 */

/* Decided by the whole product, so that the result does not depend on the window. */
static int is_few(const fx_matmul_params *p) {
    return p->m < FEW && p->a_sk == 1 && (p->b_sk == 1 || p->b_sn == 1);
}

static fx_window full_window(const fx_params *u) {
    const fx_matmul_params *p = &u->matmul;
    return (fx_window){0, p->b0 * p->b1 * p->m, 0, p->n};
}

static fx_operand operand_of(const fx_matmul_params *p, int operand) {
    switch (operand) {
    case 0:
        return (fx_operand){{p->b0, p->b1, p->m, p->k}, {p->a_s0, p->a_s1, p->a_sm, p->a_sk}};
    case 1:
        return (fx_operand){{p->b0, p->b1, p->k, p->n}, {p->b_s0, p->b_s1, p->b_sk, p->b_sn}};
    default:
        return (fx_operand){{p->b0, p->b1, p->m, p->n}, {p->y_s0, p->y_s1, p->y_sm, 1}};
    }
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_matmul_params *p = &u->matmul;
    if (kernel != 0 || p->b0 < 1 || p->b1 < 1 || p->m < 1 || p->n < 1 || p->k < 1 || p->n > INT32_MAX - 1024 ||
        p->k > INT32_MAX - 1024)
        return FX_ERR_PARAMS;
    if (!fx_sums_fit(p->sums, p->act, 0))
        return FX_ERR_PARAMS;
    if (p->act < 0 || p->act >= FX_ACT_COUNT || p->act == FX_ACT_PRELU || isnan(p->alpha) || isnan(p->beta))
        return FX_ERR_PARAMS;
    if ((int64_t)p->b0 * p->b1 > INT32_MAX / p->m)
        return FX_ERR_PARAMS;
    if (!fx_operand_fits(operand_of(p, 0), 0) || !fx_operand_fits(operand_of(p, 1), 0) ||
        !fx_operand_fits(operand_of(p, FX_OUTPUT), 1))
        return FX_ERR_PARAMS;
    return FX_OK;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    fx_operand_extent(operand_of(&u->matmul, operand), lo, hi);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_operand_bytes(operand_of(&u->matmul, FX_OUTPUT));
}

/* Of int32 sums a block is a part (sums.h). */
static int32_t depth(const fx_matmul_params *p) {
    const int64_t blocks = fx_div_up(p->k, p->sums == FX_DTYPE_I32 ? FX_EXACT_TERMS(255) : DEPTH_MAX);
    return (int32_t)fx_div_up(p->k, blocks);
}

/* Panels that are packed at once, of `all`. */
static int64_t group_panels(const fx_kernels *k, const fx_matmul_params *p, int64_t all) {
    const int64_t fit = PACKED_BYTES / ((int64_t)depth(p) * FX_NR * (int64_t)sizeof(float));
    return fx_min64(all, fx_max64(1, fit / k->panels) * k->panels);
}

typedef struct workspace {
    const float **a;
    float **c;
    float *b;       /* [panels][depth][FX_NR] */
    float *rows;    /* of a, where its elements are not neighbours: [mr][depth] */
    fx_pairs pairs; /* this or part where sums are int32 */
    fx_part_tile part;
    int64_t bytes;
} workspace;

static int is_sums_of_pairs(const fx_kernels *k, const fx_matmul_params *p) {
    return p->sums == FX_DTYPE_I32 && !is_few(p) && k->gemm_s16;
}

static workspace workspace_at(void *base, const fx_kernels *k, const fx_matmul_params *p) {
    int64_t at = 0;
    workspace s;
    FX_TAKE(s.a, base, at, fx_max64(k->mr, FEW));
    FX_TAKE(s.c, base, at, fx_max64(k->mr, FEW));
    const int64_t panels = group_panels(k, p, fx_div_up(p->n, FX_NR));
    const int is_paired = is_sums_of_pairs(k, p);
    s.pairs = is_paired ? fx_pairs_at(base, &at, k, depth(p), panels) : (fx_pairs){0};
    FX_TAKE(s.b, base, at, is_few(p) ? 0 : (is_paired ? 1 : panels) * depth(p) * FX_NR);
    FX_TAKE(s.rows, base, at, p->a_sk == 1 ? 0 : (int64_t)k->mr * depth(p));
    const int64_t part_rows = p->sums == FX_DTYPE_F32 || is_paired ? 0 : is_few(p) ? FEW : k->mr;
    s.part.columns = is_few(p) ? PART_COLUMNS : k->panels * FX_NR;
    FX_TAKE(s.part.floats, base, at, part_rows * s.part.columns);
    FX_TAKE(s.part.row, base, at, part_rows);
    s.bytes = at;
    return s;
}

static int64_t workspace_bytes(const fx_kernels *k, uint32_t kernel, const fx_params *u) {
    (void)kernel;
    return workspace_at(NULL, k, &u->matmul).bytes;
}

/* items: rows; groups: of panels. Whole matrices first, then columns, then rows. */
static fx_cut cut_window(const fx_kernels *k, const fx_matmul_params *p, fx_window w, int threads) {
    const int64_t wanted = threads > 1 ? (int64_t)threads * FX_UNITS_PER_THREAD : 1;
    const int64_t rows = w.y1 - w.y0;
    fx_cut cut = {.items = rows, .groups = fx_div_up(fx_div_up(w.c1 - w.c0, FX_NR), k->panels)};
    cut.parts = fx_min64(wanted, fx_div_up(rows, p->m));
    cut.cuts = fx_min64(cut.groups, fx_div_up(wanted, cut.parts));
    if (cut.parts * cut.cuts < wanted)
        cut.parts = fx_max64(cut.parts, fx_min64(rows / ROWS_MIN, fx_div_up(wanted, cut.cuts)));
    return cut;
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)kernel;
    if (w.y0 >= w.y1 || w.c0 >= w.c1)
        return 0;
    const fx_cut cut = cut_window(k, &u->matmul, w, threads);
    return (uint32_t)(cut.parts * cut.cuts);
}

/* Depth [0, n) of `columns` columns of b from b on into a panel; missing columns are zeros. */
static void pack_panel(const fx_kernels *k, const fx_matmul_params *p, const float *b, int32_t n, int32_t columns,
                       float *to) {
    if (columns < FX_NR)
        memset(to, 0, (size_t)n * FX_NR * sizeof(float));
    if (p->b_sn == 1 && columns == FX_NR) {
        for (int32_t q = 0; q < n; q++)
            memcpy(to + (int64_t)q * FX_NR, b + (int64_t)q * p->b_sk, FX_NR * sizeof(float));
        return;
    }
    if (p->b_sk == 1) {
        k->transpose_u32(&(fx_transpose){(const uint32_t *)b, (uint32_t *)to, columns, n, p->b_sn, FX_NR, 0, 0});
        return;
    }
    for (int32_t j = 0; j < columns; j++)
        for (int32_t q = 0; q < n; q++)
            to[(int64_t)q * FX_NR + j] = b[j * (int64_t)p->b_sn + q * (int64_t)p->b_sk];
}

/* Rows [r0, r1) of one matrix, panels [first, last) from column 0 of n on: one block of depth [k0, k1). */
typedef struct block {
    const float *a, *b;
    float *y;
    int32_t r0, r1, k0, k1, panel0, panel1;
} block;

static void run_block(const fx_call *call, const workspace *s, const block *t, int32_t column_end) {
    const fx_matmul_params *p = &call->params->matmul;
    const fx_kernels *k = call->kernels;
    const int32_t n = t->k1 - t->k0;
    fx_gemm g = {.a = s->a, .c = s->c, .w_panel = (int64_t)n * FX_NR, .taps = 1, .k = n, .block = n};
    const int is_last = t->k1 == p->k;
    g.finish = fx_finish_of(is_last ? p->act : FX_ACT_NONE, p->alpha, p->beta);
    g.r = t->k0 ? (const float *const *)s->c : NULL;
    const int is_paired = is_sums_of_pairs(k, p);
    for (int32_t i = t->panel0; i < t->panel1; i++) {
        float *to = s->b + (is_paired ? 0 : (i - t->panel0) * g.w_panel);
        pack_panel(k, p, t->b + t->k0 * (int64_t)p->b_sk + (int64_t)i * FX_NR * p->b_sn, n,
                   (int32_t)fx_min64(FX_NR, column_end - (int64_t)i * FX_NR), to);
        if (is_paired)
            fx_pair_panel(k, to, n, &s->pairs, i - t->panel0);
    }
    const int64_t rows = t->r1 - t->r0, tiles = fx_div_up(rows, k->mr);
    for (int64_t tile = 0, row = t->r0; tile < tiles; tile++, row += g.rows) {
        g.rows = (int32_t)(t->r0 + fx_cut_at(rows, tiles, tile + 1) - row);
        for (int32_t i = 0; i < g.rows; i++) {
            const float *from = t->a + (row + i) * p->a_sm + t->k0 * (int64_t)p->a_sk;
            s->a[i] = p->a_sk == 1 ? from : s->rows + (int64_t)i * n;
            s->c[i] = t->y + (row + i) * p->y_sm;
            if (p->a_sk != 1 && p->a_sm != 1)
                for (int32_t q = 0; q < n; q++)
                    s->rows[(int64_t)i * n + q] = from[q * (int64_t)p->a_sk];
        }
        if (p->a_sk != 1 && p->a_sm == 1) {
            const float *from = t->a + row + t->k0 * (int64_t)p->a_sk;
            k->transpose_u32(&(fx_transpose){(const uint32_t *)from, (uint32_t *)s->rows, n, g.rows, p->a_sk, n, 0, 0});
        }
        if (is_paired)
            fx_pair_rows(k, &g, &s->pairs);
        for (int32_t i = t->panel0; i < t->panel1; i += g.panels) {
            g.panels = (int32_t)fx_min64(k->panels, t->panel1 - i);
            g.w = is_paired ? NULL : s->b + (i - t->panel0) * g.w_panel;
            g.c_at = (int64_t)i * FX_NR;
            g.columns = (int32_t)fx_min64((int64_t)g.panels * FX_NR, column_end - g.c_at);
            if (is_paired)
                fx_gemm_pairs(k, &g, &s->pairs, i - t->panel0);
            else if (p->sums == FX_DTYPE_I32)
                fx_gemm_sums(k, &g, FX_EXACT_TERMS(255), &s->part);
            else
                k->gemm_f32(&g);
            if (is_last && fx_finish_is_partial(p->act))
                fx_activate_rows(k, (fx_activation){p->act, p->alpha, p->beta}, s->c[0] + g.c_at, g.rows, p->y_sm,
                                 g.columns);
        }
    }
}

/* run_few in int32: a part of the depth of PART_COLUMNS columns at a time. */
static void run_few_sums(const fx_call *call, const workspace *s, fx_few_rows *f, int32_t columns) {
    const fx_matmul_params *p = &call->params->matmul;
    const float *b = f->b;
    for (int32_t i = 0; i < f->rows; i++)
        s->part.row[i] = s->part.floats + (int64_t)i * PART_COLUMNS;
    f->c = s->part.row;
    for (int32_t j = 0; j < columns; j += PART_COLUMNS) {
        f->columns = (int32_t)fx_min64(PART_COLUMNS, columns - j);
        for (int32_t q = 0; q < p->k; q += f->k) {
            f->k = (int32_t)fx_min64(FX_EXACT_TERMS(255), p->k - q);
            f->b = b + j * (int64_t)p->b_sn + q * (int64_t)p->b_sk;
            call->kernels->few_rows_f32(f);
            for (int32_t i = 0; i < f->rows; i++) {
                fx_add_sums(s->part.row[i], (int32_t *)(void *)(s->c[i] + j), f->columns, q > 0);
                s->a[i] += f->k;
            }
        }
        for (int32_t i = 0; i < f->rows; i++)
            s->a[i] -= p->k;
    }
}

/* Columns [c0, c1) of a few rows. */
static void run_few(const fx_call *call, const workspace *s, const block *t, int64_t c0, int64_t c1) {
    const fx_matmul_params *p = &call->params->matmul;
    fx_few_rows f = {.a = s->a, .b = t->b + c0 * p->b_sn, .c = s->c, .b_k = p->b_sk, .b_n = p->b_sn, .k = p->k};
    f.rows = t->r1 - t->r0, f.columns = (int32_t)(c1 - c0);
    if (p->n == 1 && p->b_sk == 1)
        f.b_n = 0; /* one column, a run of b */
    for (int32_t i = 0; i < f.rows; i++) {
        s->a[i] = t->a + (t->r0 + i) * (int64_t)p->a_sm;
        s->c[i] = t->y + (t->r0 + i) * (int64_t)p->y_sm + c0;
    }
    if (p->sums == FX_DTYPE_I32) {
        run_few_sums(call, s, &f, f.columns);
        return;
    }
    call->kernels->few_rows_f32(&f);
    if (p->act != FX_ACT_NONE)
        fx_activate_rows(call->kernels, (fx_activation){p->act, p->alpha, p->beta}, s->c[0], f.rows, p->y_sm,
                         f.columns);
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_matmul_params *p = &call->params->matmul;
    const fx_kernels *k = call->kernels;
    const fx_window *w = &call->window;
    const fx_cut cut = cut_window(k, p, *w, threads);
    const workspace s = workspace_at(call->workspace, k, p);
    const int64_t at_most = group_panels(k, p, fx_div_up(p->n, FX_NR));
    for (uint32_t u = u0; u < u1; u++) {
        const int64_t part = u % cut.parts, group = u / cut.parts;
        const int64_t first = w->c0 / FX_NR + fx_cut_at(cut.groups, cut.cuts, group) * k->panels;
        const int64_t last =
            fx_min64(w->c0 / FX_NR + fx_cut_at(cut.groups, cut.cuts, group + 1) * k->panels, fx_div_up(w->c1, FX_NR));
        int64_t row = w->y0 + fx_cut_at(cut.items, cut.parts, part);
        const int64_t end = w->y0 + fx_cut_at(cut.items, cut.parts, part + 1);
        while (row < end) {
            const int64_t batch = row / p->m, b0 = batch / p->b1, b1 = batch % p->b1;
            block t = {.r0 = (int32_t)(row % p->m)};
            t.r1 = (int32_t)fx_min64(p->m, t.r0 + end - row);
            t.a = (const float *)call->in[0] + b0 * p->a_s0 + b1 * p->a_s1;
            t.b = (const float *)call->in[1] + b0 * p->b_s0 + b1 * p->b_s1;
            t.y = (float *)call->out + b0 * p->y_s0 + b1 * p->y_s1;
            if (is_few(p))
                run_few(call, &s, &t, first * FX_NR, fx_min64(last * FX_NR, w->c1));
            for (int64_t panel = is_few(p) ? last : first; panel < last; panel += at_most) {
                t.panel0 = (int32_t)panel, t.panel1 = (int32_t)fx_min64(last, panel + at_most);
                for (t.k0 = 0; t.k0 < p->k; t.k0 = t.k1) {
                    t.k1 = (int32_t)fx_min64(p->k, t.k0 + depth(p));
                    run_block(call, &s, &t, w->c1);
                }
            }
            row += t.r1 - t.r0;
        }
    }
    return FX_OK;
}

FX_DRIVER(matmul, .traits = FX_TRAIT_ROWS | FX_TRAIT_CHANNELS | FX_TRAIT_FLUSHES, .workspace = workspace_bytes);
