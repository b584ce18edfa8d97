/* Convolutions that add up halves, depthwise ones too: tiles of pixels the outer loop and panels the inner one, as in
 * conv_gemm.c, over the map as it is. Rows of floats that one tap sees are rounded to halves in the workspace.
 *
 * A sum that is not finite, as one of halves may become although all numbers are small enough, is computed again, in
 * double. So what is stored is infinite or fails the run only where it is with floats. */
#include "conv.h"
#include "half_sums.h"

#include "flexnn/half.h"

#include <math.h>

#define PANELS_MAX 32 /* of a tile: with its sums they are a third of L1 */

/* What both operators have. */
typedef struct shape {
    int64_t n, h, w, oh, ow, kh, kw, sh, sw, dh, dw, pt, pl;
    int64_t x_sn, x_sh, x_sw, r_sn, r_sh, r_sw, y_sn, y_sh, y_sw;
    int64_t cin, cout, deep, block; /* deep: input channels that an output channel sees */
    int32_t f16, wtype, has_residual, is_depthwise;
    fx_activation act;
    const fx_conv_params *conv; /* NULL where it is depthwise */
} shape;

#define SHAPE_OF(p, ...)                                                                                               \
    (shape) {                                                                                                          \
        (p)->n, (p)->h, (p)->w, (p)->oh, (p)->ow, (p)->kh, (p)->kw, (p)->sh, (p)->sw, (p)->dh, (p)->dw, (p)->pt,       \
            (p)->pl, (p)->x_sn, (p)->x_sh, (p)->x_sw, (p)->r_sn, (p)->r_sh, (p)->r_sw, (p)->y_sn, (p)->y_sh,           \
            (p)->y_sw, __VA_ARGS__, .f16 = (p)->f16, .wtype = (p)->wtype, .has_residual = (p)->has_residual,           \
            .act = {(p)->act, (p)->alpha, (p)->beta}                                                                   \
    }

static shape shape_of(uint32_t op, const fx_params *u) {
    if (op == FX_OP_DWCONV_F16) {
        const fx_dwconv_f16_params *p = &u->dwconv_f16;
        shape s = SHAPE_OF(p, p->c, p->c, 1, 1);
        s.is_depthwise = 1;
        return s;
    }
    const fx_conv_f16_params *p = &u->conv_f16;
    shape s = SHAPE_OF(p, p->cin, p->cout, p->cin_panel, fx_min64(p->cin_block, p->cin_panel));
    s.conv = &u->conv;
    return s;
}

static int64_t weights_of(const shape *s) {
    return s->kh * s->kw * s->deep * FX_NR;
}

/* Panels that stay in a cache. */
static int64_t panels_at_most(const shape *s) {
    const int64_t fits = fx_max64(1, FX_CACHE_BYTES / (weights_of(s) * (int64_t)sizeof(uint16_t)));
    return fx_min64(fx_min64(fits, PANELS_MAX), fx_div_up(s->cout, FX_NR));
}

typedef struct workspace {
    const uint16_t **a; /* [taps][rows] */
    float *sums;        /* [rows][panel][FX_NR] */
    float *residual;    /* a row of them */
    float *slopes;      /* of PRELU */
    uint16_t *rows;     /* of a tile, where the map is not of halves: [FX_HALF_ROWS][cin] */
    uint16_t *panels;   /* of a unit, where they are not stored as halves */
    int64_t size;
} workspace;

static workspace workspace_at(void *base, const shape *s) {
    const int64_t panels = panels_at_most(s);
    int64_t at = 0;
    workspace w;
    FX_TAKE(w.a, base, at, s->kh * s->kw * FX_HALF_ROWS);
    FX_TAKE(w.sums, base, at, FX_HALF_ROWS * panels * FX_NR);
    FX_TAKE(w.residual, base, at, s->has_residual ? panels * FX_NR : 0);
    FX_TAKE(w.slopes, base, at, s->act.act == FX_ACT_PRELU ? panels * FX_NR : 0);
    FX_TAKE(w.rows, base, at, fx_is_half(s->f16, 0) ? 0 : FX_HALF_ROWS * s->cin);
    FX_TAKE(w.panels, base, at, fx_half_panels_room(s->wtype, weights_of(s), panels));
    w.size = at;
    return w;
}

int64_t fx_conv_half_workspace(uint32_t op, const fx_params *u) {
    const shape s = shape_of(op, u);
    return workspace_at(NULL, &s).size;
}

/* Of few output pixels reading the weights takes all the time, and conv_gemv.c is better at that. Sums of more taps
 * than a run of them would lose more. */
int fx_conv_half_fits(uint32_t op, const fx_params *u) {
    const shape s = shape_of(op, u);
    if (!fx_half_form_fits(s.wtype))
        return 0;
    if (s.is_depthwise)
        return fx_is_half(s.f16, 0) && u->dwconv.sums == FX_DTYPE_F32 && s.kh * s.kw <= FX_HALF_RUN;
    return (fx_is_half(s.f16, 0) || s.kh * s.kw == 1) && u->conv.sums == FX_DTYPE_F32 && !fx_conv_is_narrow(&u->conv) &&
           !fx_conv_is_gemv(FX_CONV_DIRECT, &u->conv);
}

static fx_cut cut_of(const shape *s, fx_window w, int threads) {
    const int64_t panels = fx_div_up(w.c1 - w.c0, FX_NR);
    const int64_t tiles = fx_div_up((int64_t)(w.y1 - w.y0) * s->ow, FX_HALF_ROWS);
    return fx_cut_window(tiles, panels, fx_div_up(panels, panels_at_most(s)), threads);
}

uint32_t fx_conv_half_units(uint32_t op, const fx_params *u, fx_window w, int threads) {
    if (w.y0 >= w.y1 || w.c0 >= w.c1)
        return 0;
    const shape s = shape_of(op, u);
    const fx_cut c = cut_of(&s, w, threads);
    return (uint32_t)(c.cuts * c.parts);
}

/* An output pixel. */
typedef struct pixel {
    int64_t n, y, x;
} pixel;

/* Panels of a unit, from number `first` of the window on, and a tile of its pixels. */
typedef struct unit {
    const fx_call *call;
    shape s;
    workspace space;
    fx_half_panels w;
    const uint16_t *laid;
    int64_t step, first, count;
    pixel at[FX_HALF_ROWS];
    int rows;
} unit;

static void *number_at(const void *map, int32_t f16, int operand, int64_t at) {
    return (char *)(uintptr_t)map + at * fx_half_bytes(f16, operand);
}

/* The map's numbers under a tap, or NULL outside it. */
static const void *tap_at(const unit *u, pixel at, int64_t ky, int64_t kx) {
    const shape *s = &u->s;
    const int64_t y = at.y * s->sh - s->pt + ky * s->dh, x = at.x * s->sw - s->pl + kx * s->dw;
    if (y < 0 || y >= s->h || x < 0 || x >= s->w)
        return NULL;
    return number_at(u->call->in[0], s->f16, 0, at.n * s->x_sn + y * s->x_sh + x * s->x_sw);
}

static void point(const unit *u, int i) {
    const shape *s = &u->s;
    const uint16_t **a = u->space.a + i;
    for (int64_t ky = 0; ky < s->kh; ky++)
        for (int64_t kx = 0; kx < s->kw; kx++, a += u->rows) {
            const void *tap = tap_at(u, u->at[i], ky, kx);
            *a = tap ? tap : (const void *)u->call->zeros;
            if (!tap || fx_is_half(s->f16, 0))
                continue;
            uint16_t *row = u->space.rows + i * s->cin; /* what becomes infinite makes a sum that is computed again */
            u->call->kernels->narrow_f16(&(fx_narrowing){tap, row, 1, s->cin, s->cin, s->cin});
            *a = row;
        }
}

/* The sum of a pixel and column j of a panel that reads channels from a_at on, once more, in double. */
static float exact(const unit *u, int i, int64_t panel, int64_t a_at, int j) {
    const shape *s = &u->s;
    double sum = fx_half_panel_head(&u->w, panel)[j];
    int64_t at = j;
    a_at += s->is_depthwise ? j : 0;
    for (int64_t q0 = 0; q0 < s->deep; q0 += s->block)
        for (int64_t t = 0; t < s->kh * s->kw; t++) {
            const void *row = tap_at(u, u->at[i], t / s->kw, t % s->kw);
            for (int64_t q = q0; q < fx_min64(q0 + s->block, s->deep); q++, at += FX_NR) {
                const double x = !row                    ? 0
                                 : fx_is_half(s->f16, 0) ? fx_half_to(((const uint16_t *)row)[a_at + q])
                                                         : ((const float *)row)[a_at + q];
                sum += x * fx_half_weight(&u->w, panel, at);
            }
        }
    return (float)sum;
}

/* Panel i of the unit. Returns whether a sum is not finite. */
static int sums_of(const unit *u, int64_t i, int64_t a_at, float *sums) {
    const shape *s = &u->s;
    const fx_kernels *k = u->call->kernels;
    const uint16_t *w = u->laid + i * u->step;
    const float *start = fx_half_panel_head(&u->w, u->first + i);
    if (!s->is_depthwise)
        return k->gemm_f16(&(fx_gemm_f16){.a = u->space.a,
                                          .w = w,
                                          .start = start,
                                          .c = sums,
                                          .a_at = a_at,
                                          .c_row = u->count * FX_NR,
                                          .rows = u->rows,
                                          .taps = (int32_t)(s->kh * s->kw),
                                          .k = (int32_t)s->deep,
                                          .block = (int32_t)s->block});
    return k->dwconv_f16(&(fx_dwconv_f16){.x = u->space.a,
                                          .w = w,
                                          .start = start,
                                          .y = sums,
                                          .at = a_at,
                                          .y_step = u->count * FX_NR,
                                          .pixels = u->rows,
                                          .taps = (int32_t)(s->kh * s->kw),
                                          .channels = (int32_t)fx_min64(s->cout - a_at, FX_NR)});
}

static void multiply(const unit *u) {
    const int64_t first = u->call->window.c0 / FX_NR + u->first, step = u->count * FX_NR;
    for (int64_t i = 0; i < u->count; i++) {
        float *sums = u->space.sums + i * FX_NR;
        const int64_t a_at =
            u->s.is_depthwise ? (first + i) * FX_NR : fx_conv_panel_cin(u->s.conv, (int32_t)(first + i));
        if (!sums_of(u, i, a_at, sums))
            continue;
        const int64_t columns = fx_min64(u->s.cout - (first + i) * FX_NR, FX_NR);
        for (int r = 0; r < u->rows; r++)
            for (int j = 0; j < columns; j++)
                if (!isfinite(sums[r * step + j]))
                    sums[r * step + j] = exact(u, r, u->first + i, a_at, j);
    }
}

/* Tile [first, first + u->rows) of the window's pixels. Returns whether a number is beyond what a half holds. */
static int run_tile(unit *u, int64_t first) {
    const shape *s = &u->s;
    const fx_call *call = u->call;
    const int64_t c0 = call->window.c0 + u->first * FX_NR;
    for (int i = 0; i < u->rows; i++) {
        const int64_t row = call->window.y0 + (first + i) / s->ow;
        u->at[i] = (pixel){row / s->oh, row % s->oh, (first + i) % s->ow};
        point(u, i);
    }
    multiply(u);
    fx_half_pixel f = {.slopes = u->space.slopes, .f16 = s->f16, .act = s->act};
    f.n = fx_min64(u->count * FX_NR, call->window.c1 - c0);
    f.residual = s->has_residual ? u->space.residual : NULL;
    int is_beyond = 0;
    for (int i = 0; i < u->rows; i++) {
        const pixel at = u->at[i];
        f.sums = u->space.sums + i * u->count * FX_NR;
        if (f.residual)
            f.r = number_at(call->in[1], s->f16, 1, at.n * s->r_sn + at.y * s->r_sh + at.x * s->r_sw + c0);
        f.y = number_at(call->out, s->f16, FX_OUTPUT, at.n * s->y_sn + at.y * s->y_sh + at.x * s->y_sw + c0);
        is_beyond |= fx_finish_half_pixel(call->kernels, &f);
    }
    return is_beyond;
}

fx_status fx_conv_half_run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    unit u = {.call = call, .s = shape_of(call->op, call->params)};
    const shape *s = &u.s;
    const fx_cut cut = cut_of(s, call->window, threads);
    const int64_t pixels = (int64_t)(call->window.y1 - call->window.y0) * s->ow;
    u.space = workspace_at(call->workspace, s);
    u.w = (fx_half_panels){
        .call = call, .room = u.space.panels, .weights = weights_of(s), .act = s->act.act, .wtype = s->wtype};
    for (uint32_t n = u0; n < u1; n++) {
        const int64_t part = n % cut.parts, group = n / cut.parts;
        u.first = fx_cut_at(cut.groups, cut.cuts, group);
        u.count = fx_cut_at(cut.groups, cut.cuts, group + 1) - u.first;
        u.laid = fx_half_panels_at(&u.w, u.first, u.count, &u.step);
        for (int64_t i = 0; s->act.act == FX_ACT_PRELU && i < u.count * FX_NR; i++)
            u.space.slopes[i] = fx_half_panel_head(&u.w, u.first + i / FX_NR)[FX_NR + i % FX_NR];
        const int64_t end = fx_cut_at(cut.items, cut.parts, part + 1);
        for (int64_t t = fx_cut_at(cut.items, cut.parts, part); t < end; t++) {
            const int64_t first = fx_cut_at(pixels, cut.items, t);
            u.rows = (int)(fx_cut_at(pixels, cut.items, t + 1) - first);
            if (run_tile(&u, first))
                return FX_ERR_RANGE;
        }
    }
    return FX_OK;
}
