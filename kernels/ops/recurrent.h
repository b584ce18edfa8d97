/* Recurrent layers: what their driver (recurrent.c) and their cells (recurrent_cells.c) share. */
#ifndef FLEXNN_OPS_RECURRENT_H
#define FLEXNN_OPS_RECURRENT_H

#include "sums.h"

static inline int fx_cell_is_lstm(int32_t kind) {
    return kind == FX_CELL_LSTM || kind == FX_CELL_LSTM_QUANTISED;
}

static inline int32_t fx_cell_gates(int32_t kind) {
    return fx_cell_is_lstm(kind) ? 4 : kind == FX_CELL_GRU || kind == FX_CELL_GRU_AFTER ? 3 : 1;
}

/* A panel of [hidden][FX_NR] weights. Those of floats have no head. */
static inline fx_panel_layout fx_cell_panel(const fx_recurrent_params *p) {
    const int64_t weights = (int64_t)p->hidden * FX_NR;
    if (p->wtype == FX_WTYPE_F32)
        return (fx_panel_layout){.bytes = weights * (int64_t)sizeof(float)};
    return fx_panel_layout_of(FX_ACT_NONE, p->wtype, weights);
}

/* Floats that the panels of so many columns take. */
static inline int64_t fx_cell_floats(const fx_recurrent_params *p, int64_t columns) {
    return fx_div_up(columns, FX_NR) * fx_cell_panel(p).bytes / (int64_t)sizeof(float);
}

/* Rows of panels of bytes, and bytes of a row: those beyond the last one are multiplied by zeros. */
static inline int64_t fx_cell_depth(const fx_recurrent_params *p) {
    return fx_round_up(p->hidden, 4);
}

/* Columns of an LSTM's panels. */
static inline int64_t fx_cell_columns(const fx_recurrent_params *p) {
    return fx_round_up(INT64_C(4) * p->hidden, FX_NR);
}

typedef struct fx_cell_workspace {
    const float **a, **r;
    float **c;
    float *gates;   /* [mr][gates][stride of fx_cell_step] */
    float *inner;   /* [mr][hidden] */
    float *hidden;  /* [batch][hidden], rounded; this and the rest of LSTM_QUANTISED */
    uint8_t *bytes; /* the same as bytes, fx_cell_depth apart */
    int8_t *panels; /* a direction's, for fx_cell_step */
    int32_t *columns;
    int64_t size;
} fx_cell_workspace;

/* Rows of a direction at one step, and which of their hidden values are computed: all, or in a phase a slice. */
typedef struct fx_cell_step {
    const fx_kernels *k;
    const fx_recurrent_params *p;
    const fx_cell_workspace *s;
    const float *x; /* the input's part of the gates: row 0 */
    int64_t x_row;
    const float *h;       /* hidden values before: row 0 */
    float *y;             /* hidden values after: row 0 */
    float *cell;          /* LSTM: row 0, in place */
    const float *weight;  /* packed, the direction's */
    const uint8_t *bytes; /* LSTM_QUANTISED: hidden values before, row 0, less `zero` in steps of `scale` */
    int8_t *panels;       /* the direction's weights as products of bytes read them; NULL: bytes are not multiplied */
    int32_t *columns;     /* sums of the weights of each column */
    float scale;
    int32_t zero;
    int32_t direction, rows;
    int64_t first, width; /* of hidden values; first is a multiple of fx_cell_grain */
    int64_t stride;       /* floats from one gate of a row to the next */
} fx_cell_step;

#define FX_CELL_FEW 4 /* rows of the batch whose sums in the gemm tile would wait for one another */

/* Whether panels are multiplied one by one as they are stored, and not in the gemm tile. */
static inline int fx_cell_reads_stored(const fx_recurrent_params *p) {
    return p->wtype != FX_WTYPE_F32 || p->batch <= FX_CELL_FEW;
}

/* Columns that are multiplied together, which decides in what order a sum is added up. */
static inline int64_t fx_cell_grain(const fx_kernels *k, const fx_recurrent_params *p) {
    return fx_cell_reads_stored(p) ? FX_NR : (int64_t)FX_NR * k->panels;
}

/* Floats from one gate to the next where `width` hidden values are computed, all or a slice: its columns may begin
 * inside what is multiplied together. */
static inline int64_t fx_cell_stride(const fx_kernels *k, const fx_recurrent_params *p, int64_t width) {
    const int64_t grain = fx_cell_grain(k, p);
    return width == p->hidden ? width : fx_round_up(width + (p->hidden % grain ? grain - 1 : 0), grain);
}

/* Lays the step's slice of t->panels and t->columns, which all steps read. */
void fx_cell_lay_panels(const fx_cell_step *t);
void fx_cell_run(const fx_cell_step *t);

#endif
