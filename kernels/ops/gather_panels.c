/* Rows of a weight that lies in panels of float32, as products read it: a table that a product shares is stored once.
 */
#include "box.h"
#include "flexnn/panel.h"

static fx_window full_window(const fx_params *u) {
    return (fx_window){0, 1, 0, u->gather_panels.inner};
}

static int64_t panel_floats(const fx_gather_panels_params *p) {
    return FX_NR * ((int64_t)p->inner + 1);
}

static int64_t panels_of(const fx_gather_panels_params *p) {
    return ((int64_t)p->rows + FX_NR - 1) / FX_NR;
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_gather_panels_params *p = &u->gather_panels;
    if (kernel != 0 || (p->index_bytes != 4 && p->index_bytes != 8) || p->rows < 1 || p->inner < 1 || p->count < 1)
        return FX_ERR_PARAMS;
    if (panels_of(p) > FX_ELEMENTS_MAX / panel_floats(p) || p->inner > FX_ELEMENTS_MAX / p->count)
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
                                 : panels_of(p) * panel_floats(p) * (int64_t)sizeof(float);
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

static fx_status find_panel(const fx_call *call, int64_t panel, cursor *c, const float **found) {
    const int64_t bytes = panel_floats(&call->params->gather_panels) * (int64_t)sizeof(float);
    if (!call->table) {
        *found = (const float *)((const char *)call->in[0] + panel * bytes);
        return FX_OK;
    }
    const int64_t each = call->table->chunk_bytes / bytes, number = panel / each;
    if (number != c->number) {
        c->number = number;
        const fx_status status = call->table->read(call->table, number, call->workspace, &c->data);
        if (status != FX_OK)
            return status;
    }
    *found = (const float *)(c->data + panel % each * bytes);
    return FX_OK;
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_gather_panels_params *p = &call->params->gather_panels;
    const uint32_t count = units(call->kernels, 0, call->params, call->window, threads);
    const int64_t end = fx_box_cut(p->count, count, u1);
    cursor c = {.number = -1};
    for (int64_t row = fx_box_cut(p->count, count, u0); row < end; row++) {
        int64_t index = index_at(call, row);
        if (index < -(int64_t)p->rows || index >= p->rows)
            return FX_ERR_INDEX;
        index += index < 0 ? p->rows : 0;
        const float *panel;
        const fx_status status = find_panel(call, index / FX_NR, &c, &panel);
        if (status != FX_OK)
            return status;
        const float *from = panel + FX_NR + index % FX_NR; /* behind the biases */
        float *to = (float *)call->out + row * p->inner;
        for (int64_t i = 0; i < p->inner; i++)
            to[i] = from[i * FX_NR];
    }
    return FX_OK;
}

FX_DRIVER(gather_panels, .traits = 0, .element_bytes = element_bytes);
