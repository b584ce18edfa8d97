/* Max and average pools: each output pixel's window is clipped to the input, then one micro kernel walks it. */
#include "clip.h"
#include "units.h"

static fx_window full_window(const fx_params *u) {
    const fx_pool_params *p = &u->pool;
    return (fx_window){0, p->n * p->oh, 0, p->c};
}

static fx_operand operand_of(const fx_pool_params *p, int operand) {
    if (operand == 0)
        return (fx_operand){{p->n, p->h, p->w, p->c}, {p->x_sn, p->x_sh, p->x_sw, 1}};
    return (fx_operand){{p->n, p->oh, p->ow, p->c}, {p->y_sn, p->y_sh, p->y_sw, 1}};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_pool_params *p = &u->pool;
    const int32_t positive[] = {p->n, p->h, p->w, p->c, p->oh, p->ow, p->kh, p->kw, p->sh, p->sw, p->dh, p->dw};
    for (size_t i = 0; i < sizeof positive / sizeof *positive; i++)
        if (positive[i] < 1)
            return FX_ERR_PARAMS;
    if (kernel != 0 || p->kind < 0 || p->kind >= FX_POOL_COUNT || p->pt < 0 || p->pl < 0 || p->pb < 0 || p->pr < 0 ||
        p->count_include_pad < 0 || p->count_include_pad > 1)
        return FX_ERR_PARAMS;
    if ((int64_t)p->n * p->oh > INT32_MAX || (int64_t)p->kh * p->kw > INT32_MAX)
        return FX_ERR_PARAMS;
    return fx_operand_fits(operand_of(p, 0), 0) && fx_operand_fits(operand_of(p, FX_OUTPUT), 1) ? FX_OK : FX_ERR_PARAMS;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    fx_operand_extent(operand_of(&u->pool, operand), lo, hi);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_operand_bytes(operand_of(&u->pool, FX_OUTPUT));
}

/* Blocks of channels are units of their own: a global pool has one pixel only. */
static fx_cut cut_window(const fx_pool_params *p, fx_window w, int threads) {
    const int64_t pixels = (int64_t)(w.y1 - w.y0) * p->ow, channels = w.c1 - w.c0;
    const int64_t taps = fx_min64(p->kh, p->h) * fx_min64(p->kw, p->w);
    const uint32_t units = fx_units_of(pixels * fx_div_up(channels, 16), 64 * taps, threads);
    fx_cut cut = {.items = pixels, .groups = fx_div_up(channels, 16)};
    cut.parts = fx_min64(pixels, units);
    cut.cuts = cut.parts ? fx_min64(cut.groups, units / cut.parts) : 0;
    return cut;
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    if (w.y0 >= w.y1 || w.c0 >= w.c1)
        return 0;
    const fx_cut cut = cut_window(&u->pool, w, threads);
    return (uint32_t)(cut.parts * cut.cuts);
}

/* Pixels [ox, ox1) of one output row. Divisions are for rows and edges: inside, a window of few channels takes no
 * longer than one of them. */
static void run_pixels(const fx_call *call, fx_pool *pool, int64_t row, int64_t ox, int64_t ox1, int64_t channel) {
    const fx_pool_params *p = &call->params->pool;
    const int64_t batch = row / p->oh, oy = row % p->oh, iy = oy * p->sh - p->pt;
    const float *x = (const float *)call->in[0] + batch * p->x_sn + channel;
    int64_t y0, y1, x0, x1, py0, py1, px0, px1;
    fx_clip(iy, p->kh, p->dh, p->h, &y0, &y1);
    fx_clip(iy + p->pt, p->kh, p->dh, (int32_t)fx_min64((int64_t)p->h + p->pt + p->pb, INT32_MAX), &py0, &py1);
    pool->y = (float *)call->out + batch * p->y_sn + oy * p->y_sh + ox * p->y_sw + channel;
    pool->rows = (int32_t)(y1 - y0);
    for (; ox < ox1; ox++, pool->y += p->y_sw) {
        const int64_t ix = ox * p->sw - p->pl;
        x0 = 0, x1 = p->kw;
        if (ix < 0 || ix + (int64_t)(p->kw - 1) * p->dw >= p->w)
            fx_clip(ix, p->kw, p->dw, p->w, &x0, &x1);
        int64_t count = (y1 - y0) * (x1 - x0);
        if (!count) { /* a window of padding alone */
            for (int32_t j = 0; j < pool->channels; j++)
                pool->y[j] = p->kind == FX_POOL_MAX ? -__builtin_inff() : 0;
            continue;
        }
        if (p->count_include_pad) {
            fx_clip(ix + p->pl, p->kw, p->dw, (int32_t)fx_min64((int64_t)p->w + p->pl + p->pr, INT32_MAX), &px0, &px1);
            count = (py1 - py0) * (px1 - px0);
        }
        pool->x = x + (iy + y0 * p->dh) * p->x_sh + (ix + x0 * p->dw) * p->x_sw;
        pool->pixels = (int32_t)(x1 - x0);
        pool->scale = 1 / (float)count;
        call->kernels->pool_f32(pool);
    }
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_pool_params *p = &call->params->pool;
    const fx_window *w = &call->window;
    const fx_cut cut = cut_window(p, *w, threads);
    fx_pool pool = {.kind = p->kind, .x_row = (int64_t)p->dh * p->x_sh, .x_pixel = (int64_t)p->dw * p->x_sw};
    for (uint32_t u = u0; u < u1; u++) {
        const int64_t part = u % cut.parts, group = u / cut.parts;
        const int64_t c0 = w->c0 + fx_cut_at(cut.groups, cut.cuts, group) * 16;
        const int64_t c1 = fx_min64(w->c1, w->c0 + fx_cut_at(cut.groups, cut.cuts, group + 1) * 16);
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

FX_DRIVER(pool, .traits = FX_TRAIT_ROWS | FX_TRAIT_CHANNELS);
