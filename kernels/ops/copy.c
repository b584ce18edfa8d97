/* Moves elements: in rows where they are neighbours in x and in y, in transposed blocks where they are neighbours along
 * different dimensions, one by one otherwise. */
#include "box.h"
#include "flexnn/kernels.h"
#include "move.h"

/* A transposed block: this many elements, and at least so many along either side. */
#define BLOCK_ELEMENTS 4096
#define BLOCK_SIDE 64
/* In a copy of this many bytes the next block lies beyond L2 and is prefetched; in a smaller copy prefetching would
 * cost time. */
#define ASK_BYTES (1 << 20)
#define SHORT_LINE 8

static fx_window full_window(const fx_params *u) {
    return (fx_window){0, u->copy.d0, 0, u->copy.d5};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const int32_t *d = FX_SIX(u, copy, d), *ys = FX_SIX(u, copy, ys);
    if (kernel != 0 || !fx_is_element(u->copy.elem_bytes))
        return FX_ERR_PARAMS;
    if (!fx_box_fits(d, FX_SIX(u, copy, xs)) || !fx_box_fits(d, ys) || !fx_box_is_injective(d, ys))
        return FX_ERR_PARAMS;
    return FX_OK;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    fx_box_extent(FX_DIMS, FX_SIX(u, copy, d), operand == FX_OUTPUT ? FX_SIX(u, copy, ys) : FX_SIX(u, copy, xs),
                  u->copy.elem_bytes, lo, hi);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_six_bytes(FX_SIX(u, copy, d), u->copy.elem_bytes);
}

static int64_t element_bytes(const fx_params *u, int operand) {
    (void)operand;
    return u->copy.elem_bytes;
}

static fx_box box_of(const fx_params *u, fx_window w) {
    return fx_box_window(FX_SIX(u, copy, d), (const int32_t *[]){FX_SIX(u, copy, xs), FX_SIX(u, copy, ys)}, 2, w.y0,
                         w.y1);
}

/* How a transposing copy is walked: blocks_i x blocks_j blocks at each place of the other dimensions. */
typedef struct transposition {
    int i, j; /* dimensions along which elements are neighbours in y, in x */
    int64_t side_i, side_j, blocks_i, blocks_j, places;
} transposition;

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* 0 if the copy does not transpose. */
static int find_transposition(const fx_box *b, transposition *t) {
    t->i = t->j = -1;
    for (int i = 0; i < FX_DIMS; i++) {
        if (b->d[i] > 1 && b->s[0][i] == 1)
            t->j = i;
        if (b->d[i] > 1 && b->s[1][i] == 1)
            t->i = i;
    }
    if (t->i < 0 || t->j < 0 || t->i == t->j)
        return 0;
    const int64_t di = b->d[t->i], dj = b->d[t->j];
    t->side_j = smaller(dj, BLOCK_SIDE);
    t->side_i = smaller(di, larger(BLOCK_SIDE, BLOCK_ELEMENTS / t->side_j));
    t->side_j = smaller(dj, larger(BLOCK_SIDE, BLOCK_ELEMENTS / t->side_i));
    t->blocks_i = (di + t->side_i - 1) / t->side_i;
    t->blocks_j = (dj + t->side_j - 1) / t->side_j;
    t->places = fx_box_elements(b) / (di * dj);
    return 1;
}

static uint32_t units_of(const fx_box *b, int32_t elem_bytes, int threads) {
    transposition t;
    const uint32_t units = fx_box_units(fx_box_elements(b) * 2 * elem_bytes, threads);
    if (!find_transposition(b, &t))
        return units;
    return (uint32_t)smaller(units, t.places * t.blocks_i * t.blocks_j);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    if (w.y0 >= w.y1 || w.c0 >= w.c1)
        return 0;
    const fx_box b = box_of(u, w);
    return units_of(&b, u->copy.elem_bytes, threads);
}

/* Exchanges the two innermost dimensions where x has no neighbours along the innermost one, and that is so short that
 * starting its lines takes longer than moving them: elements may come in any order. */
static void turn_short_lines(fx_box *b) {
    const int i = FX_DIMS - 1, j = i - 1;
    if (b->s[0][i] <= 1 || b->d[i] >= SHORT_LINE || b->d[j] <= b->d[i])
        return;
    for (int k = 0; k < 2; k++) {
        const int64_t stride = b->s[k][i];
        b->s[k][i] = b->s[k][j], b->s[k][j] = stride;
    }
    const int64_t length = b->d[i];
    b->d[i] = b->d[j], b->d[j] = length;
}

static void copy_rows(const fx_call *call, const fx_box *b, int64_t e, int64_t end) {
    const int64_t bytes = call->params->copy.elem_bytes, *xs = &b->s[0][FX_DIMS - 2], *ys = &b->s[1][FX_DIMS - 2];
    while (e < end) {
        const fx_box_run r = fx_box_next(b, e, end, end - e);
        fx_move(bytes, (const char *)call->in[0] + r.at[0] * bytes, (char *)call->out + r.at[1] * bytes,
                &(fx_lines){r.rows, r.n, xs[0], xs[1], ys[0], ys[1]});
        e += r.rows * r.n;
    }
}

/* Where a block's first element lies in x and y, and how many rows (along i) and columns (along j) it has. */
typedef struct block {
    int64_t x, y, rows, columns;
} block;

/* Block u, numbered [place][block j][block i]. */
static block block_at(const fx_box *b, const transposition *t, int64_t u) {
    const int64_t *xs = b->s[0], *ys = b->s[1];
    const int64_t i0 = u % t->blocks_i * t->side_i, j0 = u / t->blocks_i % t->blocks_j * t->side_j;
    block at = {b->at[0] + i0 * xs[t->i] + j0, b->at[1] + i0 + j0 * ys[t->j], smaller(t->side_i, b->d[t->i] - i0),
                smaller(t->side_j, b->d[t->j] - j0)};
    int64_t place = u / (t->blocks_i * t->blocks_j);
    for (int k = FX_DIMS - 1; k >= 0 && place; k--) {
        if (k == t->i || k == t->j)
            continue;
        at.x += place % b->d[k] * xs[k];
        at.y += place % b->d[k] * ys[k];
        place /= b->d[k];
    }
    return at;
}

/* Blocks [u, end). */
static void copy_blocks(const fx_call *call, const fx_box *b, const transposition *t, int64_t u, int64_t end) {
    const int64_t bytes = call->params->copy.elem_bytes, x_row = b->s[0][t->i], y_row = b->s[1][t->j];
    const int asks = fx_box_elements(b) * 2 * bytes >= ASK_BYTES;
    for (block next = block_at(b, t, u); u < end; u++) {
        const block at = next;
        next = block_at(b, t, u + 1 < end ? u + 1 : u);
        if (bytes == 4) {
            const fx_transpose transpose = {.x = (const uint32_t *)call->in[0] + at.x,
                                            .y = (uint32_t *)call->out + at.y,
                                            .rows = at.rows,
                                            .columns = at.columns,
                                            .x_row = x_row,
                                            .y_row = y_row,
                                            .x_next = asks ? next.x - at.x : 0,
                                            .y_next = asks ? next.y - at.y : 0};
            call->kernels->transpose_u32(&transpose);
        } else {
            fx_move(bytes, (const char *)call->in[0] + at.x * bytes, (char *)call->out + at.y * bytes,
                    &(fx_lines){at.columns, at.rows, 1, x_row, y_row, 1});
        }
    }
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    if (call->sink)
        return call->sink->write(call->sink, call->in[0], u0, u1);
    fx_box b = box_of(call->params, call->window);
    const uint32_t units = units_of(&b, call->params->copy.elem_bytes, threads);
    transposition t;
    if (find_transposition(&b, &t)) {
        const int64_t blocks = t.places * t.blocks_i * t.blocks_j;
        copy_blocks(call, &b, &t, fx_box_cut(blocks, units, u0), fx_box_cut(blocks, units, u1));
    } else {
        const int64_t total = fx_box_elements(&b);
        turn_short_lines(&b);
        copy_rows(call, &b, fx_box_cut(total, units, u0), fx_box_cut(total, units, u1));
    }
    return FX_OK;
}

FX_DRIVER(copy, .traits = FX_TRAIT_ROWS, .element_bytes = element_bytes);
