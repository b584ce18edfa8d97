/* Attention that never holds all scores at once (Dao et al., "FlashAttention", 2022; sums carried over blocks of keys
 * as in Milakov and Gimelshein, 2018). Rows are queries of all heads, [batch][head][query]; those whose heads share
 * keys lie together. A unit walks its rows in runs that share keys; of each run a block of keys and values is packed
 * into panels, then for each tile of rows: scores, their softmax so far, and the product with the values, added up in
 * y. Packing does not pay for few rows: they read keys and values where they are. */
#include "attend.h"
#include "units.h"

#include "flexnn/half.h"
#include "flexnn/weight_form.h"

#include <math.h>
#include <string.h>

#define AXIS_MAX (INT32_MAX - 1024)
#define PACKED_BYTES (FX_CACHE_BYTES / 2) /* of a block of keys and values */
#define KEYS_MAX 256                      /* of a block: a tile's scores stay in L1 */
#define RUN_ROWS 512                      /* most rows that one packing serves */
#define FEW 4                             /* fewer rows than this do not pay for it */
#define FEW_OF_STATE 8                    /* most new tokens that do not: keys are widened into cache anyway */
#define ROWS_MIN 32                       /* of a unit, where there are too few heads for the threads */
#define HIDDEN (-1e30f)                   /* a mask of at most this leaves a key no weight beside one that is seen */

static fx_window full_window(const fx_params *u) {
    const fx_attention_params *p = &u->attention;
    return (fx_window){0, p->batch * p->heads * p->m, 0, p->dv};
}

/* Sizes and strides of an operand or of the output. */
static fx_operand operand_of(const fx_attention_params *p, int operand) {
    switch (operand) {
    case 0:
        return (fx_operand){{p->batch, p->heads, p->m, p->d}, {p->q_sb, p->q_sh, p->q_st, 1}};
    case 1:
        return (fx_operand){{p->batch, p->groups, p->n, p->d}, {p->k_sb, p->k_sh, p->k_st, 1}};
    case 2:
        return (fx_operand){{p->batch, p->groups, p->n, p->dv}, {p->v_sb, p->v_sh, p->v_st, 1}};
    case 3:
        return (fx_operand){{p->batch, p->heads, p->m, p->n}, {p->mask_sb, p->mask_sh, p->mask_sm, p->mask_sn}};
    default:
        return (fx_operand){{p->batch, p->heads, p->m, p->dv}, {p->y_sb, p->y_sh, p->y_st, 1}};
    }
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_attention_params *p = &u->attention;
    const int32_t positive[] = {p->batch, p->heads, p->groups, p->m, p->n, p->d, p->dv};
    for (size_t i = 0; i < sizeof positive / sizeof *positive; i++)
        if (positive[i] < 1 || positive[i] > AXIS_MAX)
            return FX_ERR_PARAMS;
    if (kernel != 0 || p->heads % p->groups || p->has_mask < 0 || p->has_mask > 1 || p->is_causal < 0 ||
        p->is_causal > 1 || p->past < 0 || isnan(p->scale) || (p->has_mask && p->mask_sn != 0 && p->mask_sn != 1))
        return FX_ERR_PARAMS;
    if (p->window < 0 || (p->window && !p->is_causal) || !(p->softcap >= 0) || isinf(p->softcap))
        return FX_ERR_PARAMS;
    if ((int64_t)p->batch * p->heads > INT32_MAX / p->m)
        return FX_ERR_PARAMS;
    for (int i = 0; i <= FX_OUTPUT; i++) {
        const fx_operand o = operand_of(p, i);
        if ((i != 3 || p->has_mask) && !fx_operand_fits(o, i == FX_OUTPUT))
            return FX_ERR_PARAMS;
    }
    return FX_OK;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    if (operand == 3 && !u->attention.has_mask)
        return;
    const fx_operand o = operand_of(&u->attention, operand);
    fx_operand_extent(o, lo, hi);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_operand_bytes(operand_of(&u->attention, FX_OUTPUT));
}

/* Keys of a block: a multiple of FX_NR, all blocks alike. */
static int32_t block_keys(const fx_attention_params *p) {
    const int64_t fit = PACKED_BYTES / (((int64_t)p->d + p->dv) * (int64_t)sizeof(float)) / FX_NR * FX_NR;
    const int64_t most = fx_min64(KEYS_MAX, fx_max64(FX_NR, fit));
    return (int32_t)fx_round_up(fx_div_up(p->n, fx_div_up(p->n, most)), FX_NR);
}

typedef struct workspace {
    const float **a; /* of a tile */
    float **c;
    float **y;
    float *max, *sum; /* of a run's rows */
    float *factor;    /* of a tile's */
    float *scores;    /* [mr][keys] */
    float *k;         /* [keys / FX_NR][d][FX_NR] */
    float *v;         /* [panels of dv][keys][FX_NR] */
    float *wide_k;    /* [keys][d] of narrow ones; state only */
    float *wide_v;
    int64_t bytes;
} workspace;

static workspace workspace_at(void *base, const fx_kernels *k, const fx_attention_params *p, int is_narrow) {
    const int64_t keys = block_keys(p), rows = fx_min64(RUN_ROWS, (int64_t)p->heads / p->groups * p->m);
    int64_t at = 0;
    workspace s;
    FX_TAKE(s.a, base, at, k->mr);
    FX_TAKE(s.c, base, at, k->mr);
    FX_TAKE(s.y, base, at, k->mr);
    FX_TAKE(s.max, base, at, rows);
    FX_TAKE(s.sum, base, at, rows);
    FX_TAKE(s.factor, base, at, k->mr);
    FX_TAKE(s.scores, base, at, k->mr * keys);
    FX_TAKE(s.k, base, at, keys * p->d);
    FX_TAKE(s.v, base, at, keys * fx_round_up(p->dv, FX_NR));
    FX_TAKE(s.wide_k, base, at, is_narrow ? keys * p->d : 0);
    FX_TAKE(s.wide_v, base, at, is_narrow ? keys * p->d : 0);
    s.bytes = at;
    return s;
}

static int64_t workspace_bytes(const fx_kernels *k, uint32_t kernel, const fx_params *u) {
    (void)kernel;
    return fx_attend_workspace(k, &u->attention, 0);
}

int64_t fx_attend_workspace(const fx_kernels *k, const fx_attention_params *p, int is_narrow) {
    return workspace_at(NULL, k, p, is_narrow).bytes;
}

/* ---- units ---- */

/* How a window is cut: by runs of heads that share keys if there are enough of them, else by rows. */
typedef struct pieces {
    int64_t count, first, runs; /* runs: 0 when cut by rows; else their number, the first one is `first` */
} pieces;

static int64_t rows_of_run(const fx_attention_params *p) {
    return (int64_t)(p->heads / p->groups) * p->m;
}

static pieces pieces_of(const fx_attention_params *p, fx_window w, int threads) {
    const int64_t wanted = threads > 1 ? (int64_t)threads * FX_UNITS_PER_THREAD : 1, rows = w.y1 - w.y0;
    const int64_t per = rows_of_run(p), first = w.y0 / per, runs = fx_div_up(w.y1, per) - first;
    if (runs >= threads)
        return (pieces){threads > 1 && runs < 2 * wanted ? runs : fx_min64(runs, wanted), first, runs};
    return (pieces){fx_max64(1, fx_min64(wanted, rows / ROWS_MIN)), 0, 0};
}

static int64_t piece_at(const fx_attention_params *p, fx_window w, pieces cut, int64_t i) {
    if (!cut.runs)
        return w.y0 + fx_cut_at(w.y1 - w.y0, cut.count, i);
    const int64_t row = (cut.first + fx_cut_at(cut.runs, cut.count, i)) * rows_of_run(p);
    return fx_max64(w.y0, fx_min64(w.y1, row));
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    return fx_attend_units(&u->attention, w, threads);
}

uint32_t fx_attend_units(const fx_attention_params *p, fx_window w, int threads) {
    return w.y0 >= w.y1 ? 0 : (uint32_t)pieces_of(p, w, threads).count;
}

/* ---- a run: rows that share keys ---- */

typedef struct run_of {
    const fx_call *call;
    const fx_attention_params *p;
    const fx_attend_state *state; /* NULL: keys and values are operands */
    const float *k, *v;           /* of the block */
    workspace s;
    int64_t row0;       /* of the whole */
    int32_t rows, keys; /* keys: of a block */
    int is_few;
} run_of;

static void pack_keys(const run_of *r, int32_t count) {
    const fx_attention_params *p = r->p;
    for (int32_t j = 0; j < count; j += FX_NR) {
        float *to = r->s.k + (int64_t)j * p->d;
        const int32_t n = (int32_t)fx_min64(FX_NR, count - j);
        if (n < FX_NR)
            memset(to, 0, (size_t)p->d * FX_NR * sizeof(float));
        const float *from = r->k + (int64_t)j * p->k_st;
        r->call->kernels->transpose_u32(
            &(fx_transpose){(const uint32_t *)from, (uint32_t *)to, n, p->d, p->k_st, FX_NR, 0, 0});
    }
}

static void pack_values(const run_of *r, int32_t count) {
    const fx_attention_params *p = r->p;
    for (int32_t j = 0; j < p->dv; j += FX_NR) {
        float *to = r->s.v + (int64_t)j * r->keys;
        const float *from = r->v + j;
        const size_t n = (size_t)fx_min64(FX_NR, p->dv - j);
        if (n == FX_NR) {
            for (int32_t q = 0; q < count; q++, to += FX_NR, from += p->v_st)
                memcpy(to, from, FX_NR * sizeof(float));
            continue;
        }
        memset(to, 0, (size_t)count * FX_NR * sizeof(float));
        for (int32_t q = 0; q < count; q++, to += FX_NR, from += p->v_st)
            memcpy(to, from, n * sizeof(float));
    }
}

/* Keys before the one behind the last that a query sees. */
static int32_t visible(const fx_attention_params *p, int64_t row) {
    return p->is_causal ? (int32_t)fx_min64(p->n, row % p->m + p->past + 1) : p->n;
}

/* The first key that a query sees, which may be behind all. */
static int64_t first_seen(const fx_attention_params *p, int64_t row) {
    return p->window ? fx_max64(0, row % p->m + p->past + 1 - p->window) : 0;
}

/* Keys from k0 on that a query sees none of, as they lie before its window. */
static int32_t before_window(const fx_attention_params *p, int64_t row, int32_t k0, int32_t count) {
    return (int32_t)fx_max64(0, fx_min64(count, first_seen(p, row) - k0));
}

/* y[i] *= factor */
static void scale_row(const run_of *r, float *y, float factor) {
    if (factor != 1)
        r->call->kernels->binary_f32(&(fx_binary){.a = y,
                                                  .b = &factor,
                                                  .y = y,
                                                  .rows = 1,
                                                  .n = r->p->dv,
                                                  .a_step = 1,
                                                  .y_step = 1,
                                                  .kind = FX_BINARY_MUL,
                                                  .lo = -INFINITY,
                                                  .hi = INFINITY});
}

/* scores = q k for the tile's rows and the first `keys` keys of the block. */
static void multiply_keys(const run_of *r, int32_t rows, int32_t keys) {
    const fx_attention_params *p = r->p;
    const fx_kernels *k = r->call->kernels;
    if (r->is_few) {
        k->few_rows_f32(&(fx_few_rows){
            .a = r->s.a, .b = r->k, .c = r->s.c, .b_k = 1, .b_n = p->k_st, .rows = rows, .columns = keys, .k = p->d});
        return;
    }
    const int32_t panels = (int32_t)fx_div_up(keys, FX_NR);
    /* Half of the last panel is enough, and it would be alone in a tile: gemm_f32 has tiles of a panel and a half. */
    const int is_half = k->panels == 2 && panels > 1 && panels % 2 && keys <= panels * FX_NR - FX_NR / 2;
    fx_gemm g = {.a = r->s.a, .c = r->s.c, .w_panel = (int64_t)p->d * FX_NR, .taps = 1, .k = p->d, .block = p->d};
    g.rows = rows;
    g.finish = fx_finish_of(FX_ACT_NONE, 0, 0);
    for (int32_t i = 0; i < panels; i += g.panels) {
        g.panels = is_half && panels - i == 3 ? 1 : (int32_t)fx_min64(k->panels, panels - i);
        g.w = r->s.k + i * g.w_panel;
        g.c_at = (int64_t)i * FX_NR;
        g.columns = g.panels * FX_NR - (is_half && panels - i == 2 ? FX_NR / 2 : 0);
        k->gemm_f32(&g);
    }
}

/* y (+)= scores v */
static void multiply_values(const run_of *r, int32_t rows, int32_t keys, int is_more) {
    const fx_attention_params *p = r->p;
    const fx_kernels *k = r->call->kernels;
    const float *const *scores = (const float *const *)r->s.c;
    if (r->is_few) {
        k->few_rows_f32(&(fx_few_rows){.a = scores,
                                       .b = r->v,
                                       .c = r->s.y,
                                       .b_k = p->v_st,
                                       .b_n = 1,
                                       .rows = rows,
                                       .columns = p->dv,
                                       .k = keys,
                                       .is_more = is_more});
        return;
    }
    const int32_t panels = (int32_t)fx_div_up(p->dv, FX_NR);
    fx_gemm g = {.a = scores, .c = r->s.y, .w_panel = (int64_t)r->keys * FX_NR, .taps = 1, .k = keys, .block = keys};
    g.r = is_more ? (const float *const *)r->s.y : NULL;
    g.rows = rows;
    g.finish = fx_finish_of(FX_ACT_NONE, 0, 0);
    for (int32_t i = 0; i < panels; i += g.panels) {
        g.panels = (int32_t)fx_min64(k->panels, panels - i);
        g.w = r->s.v + i * g.w_panel;
        g.c_at = (int64_t)i * FX_NR;
        g.columns = (int32_t)fx_min64((int64_t)g.panels * FX_NR, p->dv - g.c_at);
        k->gemm_f32(&g);
    }
}

static float *output_row(const run_of *r, int64_t row) {
    const fx_attention_params *p = r->p;
    const int64_t i = row % p->m, head = row / p->m % p->heads, batch = row / p->m / p->heads;
    return (float *)r->call->out + batch * p->y_sb + head * p->y_sh + i * p->y_st;
}

/* The mask of a row's keys from k0 on, or NULL. */
static const float *mask_row(const run_of *r, int64_t row, int32_t k0) {
    const fx_attention_params *p = r->p;
    const int64_t head = row / p->m % p->heads, batch = row / p->m / p->heads;
    if (!p->has_mask)
        return NULL;
    return (const float *)r->call->in[3] + batch * p->mask_sb + head * p->mask_sh + row % p->m * p->mask_sm +
           (int64_t)k0 * p->mask_sn;
}

/* How many of `count` keys from k0 on, up to the last that can weigh in the row's sum. Hidden keys at their end do not,
 * if the row sees a key here or saw one before. */
static int32_t weighing(const run_of *r, int64_t row, int32_t k0, int32_t count, float max) {
    const float *mask = mask_row(r, row, k0);
    if (!mask || r->p->mask_sn != 1)
        return count;
    const int32_t first = before_window(r->p, row, k0, count);
    int32_t end = count;
    while (end > first && mask[end - 1] <= HIDDEN)
        end--;
    return end > first || max > HIDDEN / 2 ? end : count;
}

/* Has a row's softmax of its first `own` keys from k0 on begin at its window, its scores capped and its bias added.
 * Returns 0 where it sees none of them, else `own`. */
static int32_t shape_scores(const run_of *r, int64_t row, int32_t k0, int32_t own, fx_online_softmax *o) {
    const fx_attention_params *p = r->p;
    const int32_t hidden = before_window(p, row, k0, own);
    if (hidden >= own)
        return 0;
    memset(o->x, 0, (size_t)hidden * sizeof(float));
    o->x += hidden;
    o->n -= hidden;
    if (o->mask)
        o->mask += (int64_t)hidden * o->mask_step;
    if (p->softcap != 0) {
        for (int32_t j = 0; j < o->n; j++)
            o->x[j] *= o->scale / p->softcap;
        fx_unary tanh = {.x = o->x, .y = o->x, .rows = 1, .n = o->n, .x_step = 1, .y_step = 1, .kind = FX_UNARY_TANH};
        r->call->kernels->unary_f32(&tanh);
        o->scale = p->softcap;
    }
    if (r->state && r->state->bias) {
        const int64_t head = row / p->m % p->heads;
        o->mask = r->state->bias + head * r->state->capacity + r->state->capacity - visible(p, row) + k0 + hidden;
        o->mask_step = 1;
    }
    return own;
}

/* Rows [first, first + rows) of the run against keys [k0, k0 + count). */
static void run_tile(const run_of *r, int32_t first, int32_t rows, int32_t k0, int32_t count) {
    const fx_attention_params *p = r->p;
    int32_t seen = 0;         /* keys up to the last that any row sees */
    int64_t begin = p->n - 1; /* the first key that any row sees: the sums begin in its block */
    for (int32_t i = 0; i < rows; i++) {
        const int64_t row = r->row0 + first + i, head = row / p->m % p->heads, batch = row / p->m / p->heads;
        r->s.a[i] = (const float *)r->call->in[0] + batch * p->q_sb + head * p->q_sh + row % p->m * p->q_st;
        r->s.c[i] = r->s.scores + (int64_t)i * r->keys;
        r->s.y[i] = output_row(r, row);
        const int32_t own = (int32_t)fx_max64(0, fx_min64(count, visible(p, row) - k0));
        seen = (int32_t)fx_max64(seen, weighing(r, row, k0, own, r->s.max[first + i]));
        begin = fx_min64(begin, first_seen(p, row));
    }
    if (seen <= 0 || k0 + count <= begin)
        return;
    multiply_keys(r, rows, seen);
    const int32_t step = p->has_mask || p->is_causal || p->softcap != 0 ? 1 : rows; /* rows that see the same keys */
    for (int32_t i = 0; i < rows; i += step) {
        const int64_t row = r->row0 + first + i;
        int32_t own = (int32_t)fx_max64(0, fx_min64(seen, visible(p, row) - k0));
        float *x = r->s.c[i];
        fx_online_softmax o = {.x = x, .x_step = r->keys, .rows = step, .n = own, .mask_step = p->mask_sn};
        o.scale = p->scale;
        o.max = r->s.max + first + i;
        o.sum = r->s.sum + first + i;
        o.factor = r->s.factor + i;
        o.mask = mask_row(r, row, k0);
        r->s.factor[i] = 1;
        if (step == 1)
            own = shape_scores(r, row, k0, own, &o);
        if (own)
            r->call->kernels->online_softmax_f32(&o);
        if (own < seen) /* then step is one row */
            memset(x + own, 0, (size_t)(seen - own) * sizeof(float));
    }
    const int is_more = k0 > begin;
    for (int32_t i = 0; i < rows && is_more; i++)
        scale_row(r, r->s.y[i], r->s.factor[i]);
    multiply_values(r, rows, seen, is_more);
}

/* `count` keys, or values, of state from element `at` on as floats, where they are or in `wide`. */
static const float *state_rows(const run_of *r, int64_t at, int32_t count, float *wide) {
    const int32_t d = r->p->d;
    if (r->state->dtype == FX_DTYPE_F32)
        return (const float *)r->state->rows + at;
    if (r->state->dtype == FX_DTYPE_I8) {
        const int8_t *bytes = (const int8_t *)r->state->rows + at / d * fx_state_row_bytes(d);
        r->call->kernels->state_rows_f32(&(fx_state_rows){.from = bytes, .to = wide, .rows = count, .d = d});
        return wide;
    }
    const uint16_t *from = (const uint16_t *)r->state->rows + at;
    const int64_t n = (int64_t)count * d, whole = n / FX_NR * FX_NR;
    r->call->kernels->weights_f32(&(fx_weights){.from = from, .to = wide, .n = whole, .wtype = FX_WTYPE_F16});
    for (int64_t i = whole; i < n; i++)
        wide[i] = (float)fx_half_to(from[i]);
    return wide;
}

/* Finds the block's keys and values, and packs them where that pays. */
static void take_block(run_of *r, int64_t batch, int64_t group, int32_t k0, int32_t count) {
    const fx_attention_params *p = r->p;
    const int64_t k_at = batch * p->k_sb + group * p->k_sh + (int64_t)k0 * p->k_st;
    const int64_t v_at = batch * p->v_sb + group * p->v_sh + (int64_t)k0 * p->v_st;
    if (r->state) {
        r->k = state_rows(r, k_at, count, r->s.wide_k);
        r->v = state_rows(r, v_at + (int64_t)p->groups * p->k_sh, count, r->s.wide_v);
    } else {
        r->k = (const float *)r->call->in[1] + k_at;
        r->v = (const float *)r->call->in[2] + v_at;
    }
    if (!r->is_few) {
        pack_keys(r, count);
        pack_values(r, count);
    }
}

static void start_sums(const run_of *r) {
    const fx_attention_params *p = r->p;
    for (int32_t i = 0; i < r->rows; i++) {
        const float *sinks = r->state ? r->state->sinks : NULL;
        r->s.max[i] = sinks ? sinks[(r->row0 + i) / p->m % p->heads] : -INFINITY;
        r->s.sum[i] = sinks ? 1 : 0;
    }
}

static void run_rows(run_of *r) {
    const fx_attention_params *p = r->p;
    const int64_t run = r->row0 / rows_of_run(p), batch = run / p->groups, group = run % p->groups;
    const int64_t tiles = fx_div_up(r->rows, r->call->kernels->mr);
    int64_t begin = p->n - 1, end = 1; /* keys that any row sees */
    /* Decided by the whole, so that the result does not depend on how rows are cut. With state, a few new tokens are
     * added up as one is: where products round their rows to 8 bits, the last bit of a sum decides how. */
    r->is_few = r->state ? p->m <= FEW_OF_STATE : rows_of_run(p) < FEW;
    for (int64_t row = r->row0; row < r->row0 + r->rows; row++) {
        begin = fx_min64(begin, first_seen(p, row));
        end = fx_max64(end, visible(p, row));
    }
    start_sums(r);
    for (int64_t k0 = fx_min64(p->n - 1, first_seen(p, 0)); k0 < end; k0 += r->keys) {
        const int32_t count = (int32_t)fx_min64(r->keys, p->n - k0);
        if (k0 + count <= begin)
            continue;
        take_block(r, batch, group, (int32_t)k0, count);
        for (int64_t t = 0, first = 0; t < tiles; t++) {
            const int64_t next = fx_cut_at(r->rows, tiles, t + 1);
            run_tile(r, (int32_t)first, (int32_t)(next - first), (int32_t)k0, count);
            first = next;
        }
    }
    for (int32_t i = 0; i < r->rows; i++) /* the row of a query that sees no key holds zeros */
        scale_row(r, output_row(r, r->row0 + i), r->s.sum[i] == 0 ? 1 : 1 / r->s.sum[i]);
}

void fx_attend(const fx_call *call, const fx_attention_params *most, const fx_attend_state *state, int threads,
               uint32_t u0, uint32_t u1) {
    fx_attention_params own = *most;
    if (state) {
        own.past = state->length;
        own.n = state->is_whole ? state->length : state->length + own.m;
    }
    const fx_attention_params *p = &own;
    const pieces cut = pieces_of(p, call->window, threads);
    const workspace s = workspace_at(call->workspace, call->kernels, most, state && state->dtype != FX_DTYPE_F32);
    run_of r = {.call = call, .p = p, .state = state, .s = s, .keys = block_keys(most)};
    const int64_t end = piece_at(p, call->window, cut, u1), per = rows_of_run(p);
    for (r.row0 = piece_at(p, call->window, cut, u0); r.row0 < end; r.row0 += r.rows) {
        r.rows = (int32_t)fx_min64(fx_min64(RUN_ROWS, per - r.row0 % per), end - r.row0);
        run_rows(&r);
    }
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    fx_attend(call, &call->params->attention, NULL, threads, u0, u1);
    return FX_OK;
}

FX_DRIVER(attention, .traits = FX_TRAIT_ROWS | FX_TRAIT_FLUSHES, .workspace = workspace_bytes);
