/* Max and average pools of bytes: each output pixel's window is clipped to the map, then one micro kernel walks it. */
#include "bytes.h"
#include "clip.h"
#include "units.h"

#include <string.h>

static fx_window full_window(const fx_params *u) {
    const fx_pool_u8_params *p = &u->pool_u8;
    return (fx_window){0, p->n * p->oh, 0, p->c};
}

static fx_operand operand_of(const fx_pool_u8_params *p, int operand) {
    if (operand == 0)
        return (fx_operand){{p->n, p->h, p->w, p->c}, {p->x_sn, p->x_sh, p->x_sw, 1}};
    return (fx_operand){{p->n, p->oh, p->ow, p->c}, {p->y_sn, p->y_sh, p->y_sw, 1}};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_pool_u8_params *p = &u->pool_u8;
    const int32_t positive[] = {p->n, p->h, p->w, p->c, p->oh, p->ow, p->kh, p->kw, p->sh, p->sw, p->dh, p->dw};
    for (size_t i = 0; i < sizeof positive / sizeof *positive; i++)
        if (positive[i] < 1)
            return FX_ERR_PARAMS;
    if (kernel != 0 || p->kind < 0 || p->kind >= FX_POOL_COUNT || p->pt < 0 || p->pl < 0 || p->pb < 0 || p->pr < 0 ||
        p->count_include_pad < 0 || p->count_include_pad > 1 || p->x_zero < 0 || p->x_zero > UINT8_MAX ||
        !fx_byte_clamp_fits(p->zero, p->lo, p->hi))
        return FX_ERR_PARAMS;
    /* Sums of a window are int32. */
    if ((int64_t)p->n * p->oh > INT32_MAX || (int64_t)p->kh * p->kw > INT32_MAX / UINT8_MAX)
        return FX_ERR_PARAMS;
    return fx_operand_fits(operand_of(p, 0), 0) && fx_operand_fits(operand_of(p, FX_OUTPUT), 1) ? FX_OK : FX_ERR_PARAMS;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_operand o = operand_of(&u->pool_u8, operand);
    fx_box_extent(4, o.d, o.s, 1, lo, hi);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_operand_bytes(operand_of(&u->pool_u8, FX_OUTPUT)) / (int64_t)sizeof(float);
}

static int64_t element_bytes(const fx_params *u, int operand) {
    (void)u, (void)operand;
    return 1;
}

#define BLOCK 64 /* channels of the smallest unit */

static fx_cut cut_window(const fx_pool_u8_params *p, fx_window w, int threads) {
    const int64_t pixels = (int64_t)(w.y1 - w.y0) * p->ow, blocks = fx_div_up(w.c1 - w.c0, BLOCK);
    const int64_t taps = fx_min64(p->kh, p->h) * fx_min64(p->kw, p->w);
    const uint32_t units = fx_units_of(pixels * blocks, BLOCK * taps, threads);
    fx_cut cut = {.items = pixels, .groups = blocks};
    cut.parts = fx_min64(pixels, units);
    cut.cuts = cut.parts ? fx_min64(cut.groups, units / cut.parts) : 0;
    return cut;
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    if (w.y0 >= w.y1 || w.c0 >= w.c1)
        return 0;
    const fx_cut cut = cut_window(&u->pool_u8, w, threads);
    return (uint32_t)(cut.parts * cut.cuts);
}

/* Pixels [ox, ox1) of one output row. */
static void run_pixels(const fx_call *call, fx_pool_u8 *pool, int64_t row, int64_t ox, int64_t ox1, int64_t channel) {
    const fx_pool_u8_params *p = &call->params->pool_u8;
    const int64_t batch = row / p->oh, oy = row % p->oh, iy = oy * p->sh - p->pt;
    const uint8_t *x = (const uint8_t *)call->in[0] + batch * p->x_sn + channel;
    int64_t y0, y1, x0, x1, py0, py1, px0, px1;
    fx_clip(iy, p->kh, p->dh, p->h, &y0, &y1);
    fx_clip(iy + p->pt, p->kh, p->dh, (int32_t)fx_min64((int64_t)p->h + p->pt + p->pb, INT32_MAX), &py0, &py1);
    pool->y = (uint8_t *)call->out + batch * p->y_sn + oy * p->y_sh + ox * p->y_sw + channel;
    pool->rows = (int32_t)(y1 - y0);
    for (; ox < ox1; ox++, pool->y += p->y_sw) {
        const int64_t ix = ox * p->sw - p->pl;
        fx_clip(ix, p->kw, p->dw, p->w, &x0, &x1);
        int64_t count = (y1 - y0) * (x1 - x0);
        if (!count) { /* a window of padding alone */
            memset(pool->y, p->zero, (size_t)pool->channels);
            continue;
        }
        if (p->count_include_pad) {
            fx_clip(ix + p->pl, p->kw, p->dw, (int32_t)fx_min64((int64_t)p->w + p->pl + p->pr, INT32_MAX), &px0, &px1);
            count = (py1 - py0) * (px1 - px0);
        }
        pool->x = x + (iy + y0 * p->dh) * p->x_sh + (ix + x0 * p->dw) * p->x_sw;
        pool->pixels = (int32_t)(x1 - x0);
        pool->scale = p->scale / (float)count;
        call->kernels->bytes->pool_u8(pool);
    }
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_pool_u8_params *p = &call->params->pool_u8;
    const fx_window *w = &call->window;
    const fx_cut cut = cut_window(p, *w, threads);
    fx_pool_u8 pool = {.kind = p->kind, .x_row = (int64_t)p->dh * p->x_sh, .x_pixel = (int64_t)p->dw * p->x_sw};
    pool.x_zero = p->x_zero, pool.zero = p->zero, pool.lo = p->lo, pool.hi = p->hi;
    for (uint32_t u = u0; u < u1; u++) {
        const int64_t part = u % cut.parts, group = u / cut.parts;
        const int64_t c0 = w->c0 + fx_cut_at(cut.groups, cut.cuts, group) * BLOCK;
        const int64_t c1 = fx_min64(w->c1, w->c0 + fx_cut_at(cut.groups, cut.cuts, group + 1) * BLOCK);
        pool.channels = (int32_t)(c1 - c0);
        const int64_t last = fx_cut_at(cut.items, cut.parts, part + 1);
        for (int64_t i = fx_cut_at(cut.items, cut.parts, part), next; i < last; i = next) {
            const int64_t row = i / p->ow;
            next = fx_min64(last, (row + 1) * p->ow);
            run_pixels(call, &pool, w->y0 + row, i - row * p->ow, next - row * p->ow, c0);
        }
    }
    return FX_OK;
}

FX_DRIVER(pool_u8, .traits = FX_TRAIT_ROWS | FX_TRAIT_CHANNELS, .element_bytes = element_bytes);
