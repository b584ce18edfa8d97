/* Blocks of pixels from the channels of one: what a transposed convolution computes beside each other is put in order.
 */
#include "move.h"
#include "units.h"

static fx_window full_window(const fx_params *u) {
    const fx_depth_to_space_params *p = &u->depth_to_space;
    return (fx_window){0, p->n * p->oh, 0, p->c};
}

static fx_operand operand_of(const fx_depth_to_space_params *p, int operand) {
    if (operand == 0)
        return (fx_operand){{p->n, p->h, p->w, p->sh * p->sw * p->c}, {p->x_sn, p->x_sh, p->x_sw, 1}};
    return (fx_operand){{p->n, p->oh, p->ow, p->c}, {p->y_sn, p->y_sh, p->y_sw, 1}};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_depth_to_space_params *p = &u->depth_to_space;
    if (kernel != 0 || !fx_is_element(p->elem_bytes) || p->n < 1 || p->oh < 1 || p->ow < 1 || p->c < 1 || p->sh < 1 ||
        p->sw < 1 || (int64_t)p->n * p->oh > INT32_MAX)
        return FX_ERR_PARAMS;
    if ((int64_t)p->sh * p->sw > INT32_MAX / p->c || p->top < 0 || p->top >= p->sh || p->left < 0 || p->left >= p->sw)
        return FX_ERR_PARAMS;
    if ((int64_t)p->top + p->oh > (int64_t)p->sh * p->h || (int64_t)p->left + p->ow > (int64_t)p->sw * p->w)
        return FX_ERR_PARAMS;
    return fx_operand_fits(operand_of(p, 0), 0) && fx_operand_fits(operand_of(p, FX_OUTPUT), 1) ? FX_OK : FX_ERR_PARAMS;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_operand o = operand_of(&u->depth_to_space, operand);
    fx_box_extent(4, o.d, o.s, u->depth_to_space.elem_bytes, lo, hi);
}

static int64_t output_bytes(const fx_params *u) {
    const fx_depth_to_space_params *p = &u->depth_to_space;
    return (int64_t)p->n * p->oh * p->ow * p->c * p->elem_bytes;
}

static int64_t element_bytes(const fx_params *u, int operand) {
    (void)operand;
    return u->depth_to_space.elem_bytes;
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    const fx_depth_to_space_params *p = &u->depth_to_space;
    return w.c0 >= w.c1 ? 0 : fx_units_of(w.y1 - w.y0, (int64_t)p->ow * (w.c1 - w.c0) * 2 * p->elem_bytes, threads);
}

/* Columns [j, end) of a row, of which x is the pixel that the first column's block was, y the first column. */
static void move_columns(const fx_depth_to_space_params *p, const char *x, char *y, int64_t j, int64_t end,
                         fx_window w) {
    const int64_t bytes = p->elem_bytes, n = w.c1 - w.c0;
    if (n == p->c && p->y_sw == p->c) { /* columns of a block are neighbours in x and in y */
        const int64_t blocks = (end - j) / p->sw;
        fx_move(bytes, x + j % p->sw * n * bytes, y,
                &(fx_lines){blocks ? blocks : 1, (blocks ? p->sw : end - j) * n, p->x_sw, 1, p->sw * n, 1});
        return;
    }
    for (int64_t i = j; i < fx_min64(j + p->sw, end); i++)
        fx_move(bytes, x + (i % p->sw * p->c + w.c0) * bytes, y + (i - j) * p->y_sw * bytes,
                &(fx_lines){fx_div_up(end - i, p->sw), n, p->x_sw, 1, (int64_t)p->sw * p->y_sw, 1});
}

static void move_row(const fx_call *call, int64_t row) {
    const fx_depth_to_space_params *p = &call->params->depth_to_space;
    const int64_t bytes = p->elem_bytes, i = row % p->oh + p->top, end = (int64_t)p->left + p->ow;
    const char *x =
        (const char *)call->in[0] + (row / p->oh * p->x_sn + i / p->sh * p->x_sh + i % p->sh * p->sw * p->c) * bytes;
    char *y = (char *)call->out + (row / p->oh * p->y_sn + row % p->oh * p->y_sh + call->window.c0) * bytes;
    for (int64_t j = p->left; j < end;) { /* the rest of the first block, whole blocks, what is left */
        const int64_t in_block = j % p->sw, whole = (end - j) / p->sw * p->sw;
        const int64_t next = in_block ? fx_min64(j - in_block + p->sw, end) : whole ? j + whole : end;
        move_columns(p, x + j / p->sw * p->x_sw * bytes, y + (j - p->left) * p->y_sw * bytes, j, next, call->window);
        j = next;
    }
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_window *w = &call->window;
    const int64_t rows = w->y1 - w->y0, pieces = units(call->kernels, 0, call->params, *w, threads);
    const int64_t last = w->y0 + fx_cut_at(rows, pieces, u1);
    for (int64_t row = w->y0 + fx_cut_at(rows, pieces, u0); row < last; row++)
        move_row(call, row);
    return FX_OK;
}

FX_DRIVER(depth_to_space, .traits = FX_TRAIT_ROWS | FX_TRAIT_CHANNELS, .element_bytes = element_bytes);
