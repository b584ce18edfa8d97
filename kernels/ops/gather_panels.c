/* Rows of a weight that lies in panels of any form, as products read it: a table that a product shares is stored once,
 * and is widened row by row. */
#include "box.h"
#include "flexnn/stored_weight.h"

static fx_window full_window(const fx_params *u) {
    return (fx_window){0, 1, 0, u->gather_panels.inner};
}

static fx_panel_layout layout_of(const fx_gather_panels_params *p) {
    return fx_panel_layout_of(FX_ACT_NONE, p->wtype, (int64_t)p->inner * FX_NR);
}

static int64_t panels_of(const fx_gather_panels_params *p) {
    return ((int64_t)p->rows + FX_NR - 1) / FX_NR;
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_gather_panels_params *p = &u->gather_panels;
    if (kernel != 0 || (p->index_bytes != 4 && p->index_bytes != 8) || p->rows < 1 || p->inner < 1 || p->count < 1 ||
        p->wtype < 0 || p->wtype >= FX_WTYPE_COUNT || !fx_form_fits(p->wtype, 1, p->inner, p->inner))
        return FX_ERR_PARAMS;
    if (panels_of(p) > FX_ELEMENTS_MAX / (FX_NR * ((int64_t)p->inner + 1)) || p->inner > FX_ELEMENTS_MAX / p->count)
        return FX_ERR_PARAMS;
    return FX_OK;
}

static int64_t element_bytes(const fx_params *u, int operand) {
    return operand == 1 ? u->gather_panels.index_bytes : (int64_t)sizeof(float);
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_gather_panels_params *p = &u->gather_panels;
    *lo = 0;
    *hi = operand == 1           ? (int64_t)p->count * p->index_bytes
          : operand == FX_OUTPUT ? (int64_t)p->count * p->inner * (int64_t)sizeof(float)
                                 : panels_of(p) * layout_of(p).bytes;
}

static int64_t output_bytes(const fx_params *u) {
    return fx_contiguous_bytes(extent, u);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    const fx_gather_panels_params *p = &u->gather_panels;
    if (w.y0 >= w.y1 || w.c0 >= w.c1)
        return 0;
    const uint32_t count = fx_box_units((int64_t)p->count * p->inner * FX_NR * (int64_t)sizeof(float), threads);
    return p->count < (int64_t)count ? (uint32_t)p->count : count;
}

static int64_t index_at(const fx_call *call, int64_t i) {
    return call->params->gather_panels.index_bytes == 4 ? ((const int32_t *)call->in[1])[i]
                                                        : ((const int64_t *)call->in[1])[i];
}

/* The table in the file that a thread reads, and the chunk that it read last. */
typedef struct cursor {
    int64_t number;
    const char *data;
} cursor;

static fx_status find_panel(const fx_call *call, int64_t panel, int64_t bytes, cursor *c, const char **found) {
    if (!call->table) {
        *found = (const char *)call->in[0] + panel * bytes;
        return FX_OK;
    }
    const int64_t each = call->table->chunk_bytes / bytes, number = panel / each;
    if (number != c->number) {
        c->number = number;
        const fx_status status = call->table->read(call->table, number, call->workspace, &c->data);
        if (status != FX_OK)
            return status;
    }
    *found = c->data + panel % each * bytes;
    return FX_OK;
}

/* Row `lane` of a panel, block by block. */
static inline void widen_row(float *to, const char *panel, int64_t lane, int64_t inner, fx_panel_layout at,
                             const int32_t wtype) {
    const int64_t block = fx_weight_forms[wtype].block ? fx_weight_forms[wtype].block : inner;
    for (int64_t first = 0; first < inner; first += block) {
        const fx_scaling s = fx_scaling_of(panel + at.scales, panel + at.minimum, first * FX_NR + lane, wtype);
        const int64_t end = inner - first < block ? inner : first + block;
        for (int64_t i = first; i < end; i++)
            to[i] = fx_weight_scalar(panel + at.weights, i * FX_NR + lane, wtype) * s.scale + s.minimum;
    }
}

/* The same of any form: each has a loop of its own. */
static void widen(float *to, const char *panel, int64_t lane, int64_t inner, fx_panel_layout at, int32_t wtype) {
#define WIDEN(E, NAME, name)                                                                                           \
    case FX_##E##_##NAME:                                                                                              \
        widen_row(to, panel, lane, inner, at, FX_##E##_##NAME);                                                        \
        return;
    switch (wtype) { FX_WTYPES(WIDEN, WTYPE) }
#undef WIDEN
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_gather_panels_params *p = &call->params->gather_panels;
    const uint32_t count = units(call->kernels, 0, call->params, call->window, threads);
    const int64_t end = fx_box_cut(p->count, count, u1);
    const fx_panel_layout layout = layout_of(p);
    cursor c = {.number = -1};
    for (int64_t row = fx_box_cut(p->count, count, u0); row < end; row++) {
        int64_t index = index_at(call, row);
        if (index < -(int64_t)p->rows || index >= p->rows)
            return FX_ERR_INDEX;
        index += index < 0 ? p->rows : 0;
        const char *panel;
        const fx_status status = find_panel(call, index / FX_NR, layout.bytes, &c, &panel);
        if (status != FX_OK)
            return status;
        widen((float *)call->out + row * p->inner, panel, index % FX_NR, p->inner, layout, p->wtype);
    }
    return FX_OK;
}

FX_DRIVER(gather_panels, .traits = 0, .element_bytes = element_bytes);
