/* Product of two computed matrices of bytes: a group of b's columns becomes panels as conv_u8 reads them, its bytes
 * less 128; then the tile of bytes walks a's rows, which are copied so that their depth is whole fours. What the zero
 * points subtract is a number for each column, the panel's bias, and one for each row: sum (a - za) (b - zb) = sum a b'
 * - za sum b' + k za zb' - zb' sum a, where b' = b - 128 and zb' = zb - 128. */
#include "bytes.h"
#include "units.h"

#include <string.h>

static fx_window full_window(const fx_params *u) {
    const fx_matmul_u8_params *p = &u->matmul_u8;
    return (fx_window){0, p->b0 * p->b1 * p->m, 0, p->n};
}

static fx_operand operand_of(const fx_matmul_u8_params *p, int operand) {
    switch (operand) {
    case 0:
        return (fx_operand){{p->b0, p->b1, p->m, p->k}, {p->a_s0, p->a_s1, p->a_sm, p->a_sk}};
    case 1:
        return (fx_operand){{p->b0, p->b1, p->k, p->n}, {p->b_s0, p->b_s1, p->b_sk, p->b_sn}};
    default:
        return (fx_operand){{p->b0, p->b1, p->m, p->n}, {p->y_s0, p->y_s1, p->y_sm, 1}};
    }
}

static fx_byte_finish finish_of(const fx_matmul_u8_params *p) {
    return (fx_byte_finish){.to = p->to, .zero = p->zero, .lo = p->lo, .hi = p->hi};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_matmul_u8_params *p = &u->matmul_u8;
    const fx_byte_finish finish = finish_of(p);
    if (kernel != 0 || p->b0 < 1 || p->b1 < 1 || p->m < 1 || p->n < 1 || p->k < 1 || p->n > INT32_MAX - 1024 ||
        p->k > INT32_MAX - 1024 || (int64_t)p->b0 * p->b1 > INT32_MAX / p->m)
        return FX_ERR_PARAMS;
    if (p->a_zero < 0 || p->a_zero > UINT8_MAX || p->b_zero < 0 || p->b_zero > UINT8_MAX ||
        !fx_byte_finish_fits(&finish, 0))
        return FX_ERR_PARAMS;
    for (int i = 0; i < 2; i++)
        if (!fx_operand_fits(operand_of(p, i), 0))
            return FX_ERR_PARAMS;
    return fx_operand_fits(operand_of(p, FX_OUTPUT), 1) ? FX_OK : FX_ERR_PARAMS;
}

static int64_t element_bytes(const fx_params *u, int operand) {
    return operand == FX_OUTPUT ? fx_byte_or_float(u->matmul_u8.to) : 1;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_operand o = operand_of(&u->matmul_u8, operand);
    fx_box_extent(4, o.d, o.s, element_bytes(u, operand), lo, hi);
}

static int64_t output_bytes(const fx_params *u) {
    const fx_matmul_u8_params *p = &u->matmul_u8;
    return (int64_t)p->b0 * p->b1 * p->m * p->n * fx_byte_or_float(p->to);
}

/* Depth in whole fours, and in what levels read at once where they lay operands out. */
static int64_t depth(const fx_matmul_u8_params *p) {
    return fx_round_up(p->k, 4);
}
static int64_t laid_depth(const fx_matmul_u8_params *p) {
    return fx_round_up(p->k, FX_LAID_BYTES);
}

static int64_t panel_bytes(const fx_matmul_u8_params *p) {
    return fx_byte_panel_head(p->to) + depth(p) * FX_NR;
}

static int64_t groups(const fx_kernels *k, const fx_matmul_u8_params *p) {
    return fx_div_up(fx_div_up(p->n, FX_NR), k->bytes->panels);
}

/* Groups of panels that stay in a cache. */
static int64_t groups_at_most(const fx_kernels *k, const fx_matmul_u8_params *p) {
    return fx_min64(groups(k, p), fx_max64(1, FX_CACHE_BYTES / (panel_bytes(p) * k->bytes->panels)));
}

typedef struct workspace {
    char *panels, *laid_w;
    const uint8_t **a; /* [rows] */
    void **c;          /* [rows] */
    int32_t *more;     /* [rows] */
    uint8_t *rows, *laid;
    int64_t size;
} workspace;

static workspace workspace_at(void *base, const fx_kernels *k, const fx_matmul_u8_params *p) {
    const fx_byte_kernels *b = k->bytes;
    const int64_t panels = groups_at_most(k, p) * b->panels;
    int64_t at = 0;
    workspace s;
    FX_TAKE(s.panels, base, at, panels * panel_bytes(p));
    FX_TAKE(s.laid_w, base, at, b->lay_panel_u8 ? panels * laid_depth(p) * FX_NR : 0);
    FX_TAKE(s.a, base, at, b->rows);
    FX_TAKE(s.c, base, at, b->rows);
    FX_TAKE(s.more, base, at, b->rows);
    FX_TAKE(s.rows, base, at, b->rows * depth(p));
    FX_TAKE(s.laid, base, at, b->lay_rows_u8 ? laid_depth(p) * b->row_bytes * b->rows : 0);
    s.size = at;
    return s;
}

static int64_t workspace_bytes(const fx_kernels *k, uint32_t kernel, const fx_params *u) {
    (void)kernel;
    return workspace_at(NULL, k, &u->matmul_u8).size;
}

/* Units: for each product of the batch, groups of columns. */
static int64_t cuts(const fx_kernels *k, const fx_matmul_u8_params *p, int threads) {
    const int64_t batch = (int64_t)p->b0 * p->b1, all = groups(k, p);
    const int64_t wanted = threads > 1 ? fx_div_up((int64_t)threads * FX_UNITS_PER_THREAD, batch) : 1;
    return fx_min64(all, fx_max64(wanted, fx_div_up(all, groups_at_most(k, p))));
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)kernel;
    const fx_matmul_u8_params *p = &u->matmul_u8;
    const int64_t count = (int64_t)p->b0 * p->b1 * cuts(k, p, threads);
    return w.y0 >= w.y1 || w.c0 >= w.c1 ? 0 : (uint32_t)fx_min64(count, INT32_MAX);
}

/* Columns of b, at most FX_NR, as fours of bytes less 128; what is missing is 0. */
static void fill_panel(const fx_matmul_u8_params *p, const uint8_t *b, int64_t columns, int8_t *to) {
    if (columns < FX_NR || p->k % 4)
        memset(to, 0, (size_t)(depth(p) * FX_NR));
    if (p->b_sk == 1) {
        for (int64_t j = 0; j < columns; j++)
            for (int64_t q = 0; q < p->k; q += 4) {
                uint8_t *four = (uint8_t *)to + q * FX_NR + j * 4;
                const uint8_t *from = b + j * p->b_sn + q;
                if (q + 4 <= p->k)
                    memcpy(four, from, 4);
                for (int64_t e = q; e < fx_min64(q + 4, p->k); e++)
                    four[e - q] = (q + 4 <= p->k ? four[e - q] : from[e - q]) ^ 0x80;
            }
        return;
    }
    for (int64_t q = 0; q < p->k; q++)
        for (int64_t j = 0; j < columns; j++)
            to[q / 4 * FX_FOUR_BYTES + j * 4 + q % 4] = (int8_t)(b[q * p->b_sk + j * p->b_sn] ^ 0x80);
}

/* A panel of the columns from b on, with its head. */
static void make_panel(const fx_matmul_u8_params *p, const uint8_t *b, int64_t columns, char *panel) {
    uint32_t *bias = (uint32_t *)(void *)panel, *sums = bias + FX_NR;
    float *scales = (float *)(void *)panel + 2 * FX_NR;
    const int8_t *w = (const int8_t *)panel + fx_byte_panel_head(p->to);
    fill_panel(p, b, columns, (int8_t *)panel + fx_byte_panel_head(p->to));
    int32_t total[FX_NR] = {0};
    for (int64_t q = 0; q < depth(p); q += 4, w += FX_FOUR_BYTES)
        for (int j = 0; j < FX_NR; j++)
            total[j] += w[4 * j] + w[4 * j + 1] + w[4 * j + 2] + w[4 * j + 3];
    const uint32_t zeros = (uint32_t)p->k * (uint32_t)p->a_zero * (uint32_t)(p->b_zero - 128);
    for (int j = 0; j < FX_NR; j++) {
        sums[j] = (uint32_t)total[j];
        bias[j] = zeros - (uint32_t)p->a_zero * sums[j];
        scales[j] = p->scale;
        if (p->to == FX_DTYPE_F32)
            scales[FX_NR + j] = 0;
    }
}

/* Copies rows [first, first + d->rows) of a, and adds up what each of them makes of b's zero point. */
static void copy_rows(const fx_matmul_u8_params *p, const uint8_t *a, int64_t first, fx_dot_u8 *d, const workspace *s) {
    for (int64_t i = 0; i < d->rows; i++) {
        uint8_t *to = s->rows + i * depth(p);
        const uint8_t *from = a + (first + i) * p->a_sm;
        uint32_t sum = 0;
        if (p->a_sk == 1)
            memcpy(to, from, (size_t)p->k);
        else
            for (int64_t q = 0; q < p->k; q++)
                to[q] = from[q * p->a_sk];
        memset(to + p->k, 0, (size_t)(depth(p) - p->k));
        for (int64_t q = 0; q < p->k; q++)
            sum += to[q];
        s->a[i] = to;
        ((uint32_t *)s->more)[i] = sum * (uint32_t)(128 - p->b_zero);
    }
}

/* All rows times panels [first, first + count) of one product. */
static void run_rows(const fx_call *call, const workspace *s, const uint8_t *a, char *y, int64_t first, int64_t count) {
    const fx_matmul_u8_params *p = &call->params->matmul_u8;
    const fx_byte_kernels *b = call->kernels->bytes;
    const int64_t tiles = fx_div_up(p->m, b->rows), bytes = panel_bytes(p), laid_panel = laid_depth(p) * FX_NR;
    fx_dot_u8 d = {.a = s->a, .laid = s->laid, .w_panel = bytes, .laid_panel = laid_panel, .c = s->c, .more = s->more};
    d.runs = 1, d.run = (int32_t)depth(p), d.finish = finish_of(p);
    for (int64_t t = 0; t < tiles; t++) {
        const int64_t row = fx_cut_at(p->m, tiles, t);
        d.rows = (int32_t)(fx_cut_at(p->m, tiles, t + 1) - row);
        copy_rows(p, a, row, &d, s);
        for (int64_t i = 0; i < d.rows; i++)
            s->c[i] = y + (row + i) * p->y_sm * fx_byte_or_float(p->to);
        if (b->lay_rows_u8) {
            const fx_lay_rows_u8 l = {.a = d.a, .to = s->laid, .rows = d.rows, .runs = 1, .run = d.run};
            b->lay_rows_u8(&l);
        }
        for (int64_t i = 0; i < count; i += b->panels) {
            d.panels = (int32_t)fx_min64(b->panels, count - i);
            d.w = s->panels + i * bytes, d.laid_w = s->laid_w + i * laid_panel;
            d.c_at = (first + i) * FX_NR;
            d.columns = (int32_t)fx_min64((int64_t)d.panels * FX_NR, p->n - d.c_at);
            b->dot_u8(&d);
        }
    }
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_matmul_u8_params *p = &call->params->matmul_u8;
    const fx_byte_kernels *b = call->kernels->bytes;
    const int64_t each = cuts(call->kernels, p, threads), all = groups(call->kernels, p);
    const workspace s = workspace_at(call->workspace, call->kernels, p);
    for (int64_t u = u0; u < u1; u++) {
        const int64_t outer = u / each / p->b1, inner = u / each % p->b1;
        const int64_t first = b->panels * fx_cut_at(all, each, u % each);
        const int64_t last = fx_min64(b->panels * fx_cut_at(all, each, u % each + 1), fx_div_up(p->n, FX_NR));
        const uint8_t *from = (const uint8_t *)call->in[1] + outer * p->b_s0 + inner * p->b_s1;
        for (int64_t i = 0; i < last - first; i++) {
            const int64_t column = (first + i) * FX_NR;
            char *panel = s.panels + i * panel_bytes(p);
            make_panel(p, from + column * p->b_sn, fx_min64(FX_NR, p->n - column), panel);
            if (b->lay_panel_u8) {
                const fx_lay_panel_u8 l = {.from = (const int8_t *)panel + fx_byte_panel_head(p->to),
                                           .to = (int8_t *)s.laid_w + i * laid_depth(p) * FX_NR,
                                           .fours = depth(p) / 4};
                b->lay_panel_u8(&l);
            }
        }
        run_rows(call, &s, (const uint8_t *)call->in[0] + outer * p->a_s0 + inner * p->a_s1,
                 (char *)call->out + (outer * p->y_s0 + inner * p->y_s1) * fx_byte_or_float(p->to), first,
                 last - first);
    }
    return FX_OK;
}

FX_DRIVER(matmul_u8, .traits = 0, .workspace = workspace_bytes, .element_bytes = element_bytes);
