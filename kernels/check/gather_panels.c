/* Rows of a weight in panels of any form, element by element; some cases hold one index that is out of range and must
 * fail. */
#include "weights.h"

#include <stdio.h>

static void draw(check_case *c) {
    fx_gather_panels_params *p = &c->params.gather_panels;
    p->index_bytes = CHECK_PICK(c, 4, 8);
    p->rows = check_int(c, 1, 50);
    p->inner = check_one_in(c, 3) ? check_int(c, 100, 700) : check_int(c, 1, 20);
    p->count = check_one_in(c, 5) ? check_int(c, 20, 200) : check_int(c, 1, 9);
    p->wtype = check_int(c, 0, FX_WTYPE_COUNT - 1);
    if (!fx_form_fits(p->wtype, 1, p->inner, p->inner))
        p->inner = (fx_weight_forms[p->wtype].shared ? 256 : 32) * check_int(c, 1, 3);
}

static int64_t get_index(const check_case *c, int64_t i) {
    if (c->params.gather_panels.index_bytes == 4)
        return ((const int32_t *)c->in[1])[i];
    return ((const int64_t *)c->in[1])[i];
}

static void set_index(const check_case *c, int64_t i, int64_t index) {
    if (c->params.gather_panels.index_bytes == 4)
        ((int32_t *)c->in[1])[i] = (int32_t)index;
    else
        ((int64_t *)c->in[1])[i] = index;
}

static check_panels panels_of(const fx_gather_panels_params *p) {
    return check_panels_of(FX_ACT_NONE, p->wtype, FX_DTYPE_F32, (int64_t)p->inner * FX_NR);
}

static void fill(check_case *c) {
    const fx_gather_panels_params *p = &c->params.gather_panels;
    check_case panels = *c;
    panels.weight = c->in[0];
    check_fill_panels(&panels, panels_of(p), (p->rows + FX_NR - 1) / FX_NR, 1);
    for (int64_t i = 0; i < p->count; i++)
        set_index(c, i, check_int(c, -p->rows, p->rows - 1));
    if (check_one_in(c, 4)) {
        const int64_t far = p->index_bytes == 8 && check_one_in(c, 2) ? INT64_C(1) << check_int(c, 33, 62) : p->rows;
        set_index(c, check_int(c, 0, p->count - 1), check_one_in(c, 2) ? far : -far - 1);
    }
}

static fx_status status(const check_case *c) {
    const fx_gather_panels_params *p = &c->params.gather_panels;
    for (int64_t i = 0; i < p->count; i++)
        if (get_index(c, i) < -p->rows || get_index(c, i) >= p->rows)
            return FX_ERR_INDEX;
    return FX_OK;
}

static void expect(const check_case *c, check_expected *e) {
    const fx_gather_panels_params *p = &c->params.gather_panels;
    const double rounding = fx_weight_forms[p->wtype].scales ? 3e-7 : 0; /* floats are exact */
    check_case panels = *c;
    panels.weight = c->in[0];
    for (int i = 0; i < p->count; i++)
        for (int j = 0; j < p->inner; j++) {
            const int64_t index = get_index(c, i), row = index < 0 ? index + p->rows : index;
            const double want = check_weight(&panels, panels_of(p), (int)row, (int64_t)j * FX_NR + row % FX_NR);
            check_set(c, e, (int64_t)i * p->inner + j, want, rounding);
        }
}

static int bench(int i, check_case *c, char *name, double *flops, double *bytes) {
    static const fx_gather_panels_params shapes[] = {{8, 32000, 1024, 64, FX_WTYPE_F32},
                                                     {8, 32000, 1024, 64, FX_WTYPE_S8B},
                                                     {8, 32000, 1024, 64, FX_WTYPE_Q4M},
                                                     {8, 32000, 1024, 64, FX_WTYPE_Q6K}};
    if (i >= (int)(sizeof shapes / sizeof *shapes))
        return 0;
    const fx_gather_panels_params *p = &shapes[i];
    c->params.gather_panels = *p;
    *flops = 0;
    *bytes = 4.0 * p->count * p->inner + (double)panels_of(p).layout.bytes * p->count;
    snprintf(name, 64, "%d rows of %d, %d bits", p->count, p->inner, fx_weight_forms[p->wtype].bits);
    return 1;
}

const check_op check_gather_panels = {.draw = draw, .fill = fill, .expect = expect, .bench = bench, .status = status};
