/* Non-maximum suppression: of each class of each picture the best boxes that overlap no better one too much, [batch,
 * class, box] each, one after the other; the first number of the last row is how many they are.
 * https://onnx.ai/onnx/operators/onnx__NonMaxSuppression.html; the order and the arithmetic are onnxruntime's. */
#include "dtypes.h"
#include "entries.h"
#include "units.h"

#include <string.h>

#define BLOCK 128 /* keys made at once */

static fx_window full_window(const fx_params *u) {
    (void)u;
    return (fx_window){0, 1, 0, 1};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_nms_params *p = &u->nms;
    if (kernel != 0 || p->batch < 1 || p->classes < 1 || p->boxes < 1 || p->most < 1 || p->most > p->boxes ||
        p->is_centered < 0 || p->is_centered > 1 || p->has_score < 0 || p->has_score > 1)
        return FX_ERR_PARAMS;
    return (int64_t)p->batch * p->classes <= FX_ELEMENTS_MAX / 4 / p->boxes ? FX_OK : FX_ERR_PARAMS;
}

static int64_t element_bytes(const fx_params *u, int operand) {
    (void)u;
    return operand == FX_OUTPUT ? 8 : 4;
}

/* Most boxes that can be selected. */
static int64_t rows_of(const fx_nms_params *p) {
    return (int64_t)p->batch * p->classes * p->most;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_nms_params *p = &u->nms;
    *lo = 0;
    *hi = operand == 0           ? (int64_t)p->batch * p->boxes * 16
          : operand == 1         ? (int64_t)p->batch * p->classes * p->boxes * 4
          : operand == FX_OUTPUT ? (rows_of(p) + 1) * 24
          : operand == 2         ? 4
                                 : 4 * p->has_score;
}

static int64_t output_bytes(const fx_params *u) {
    return fx_contiguous_bytes(extent, u);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel, (void)u, (void)threads;
    return w.y0 < w.y1 && w.c0 < w.c1;
}

/* Corners of a box, along one axis and along the other, and its area. */
typedef struct corners {
    float lo[2], hi[2], area;
} corners;

static int64_t workspace(const fx_kernels *k, uint32_t kernel, const fx_params *u) {
    (void)k, (void)kernel;
    return (int64_t)sizeof(fx_keyed) * u->nms.boxes + (int64_t)sizeof(corners) * u->nms.most;
}

static corners corners_of(const float *box, int is_centered) {
    corners c;
    for (int i = 0; i < 2; i++) {
        const float a = is_centered ? box[i] - box[i + 2] / 2 : box[i];
        const float b = is_centered ? box[i] + box[i + 2] / 2 : box[i + 2];
        const int turns = !is_centered && a > b;
        c.lo[i] = turns ? b : a;
        c.hi[i] = turns ? a : b;
    }
    c.area = (c.hi[0] - c.lo[0]) * (c.hi[1] - c.lo[1]);
    return c;
}

static int overlap(const corners *a, const corners *b, float most) {
    const float lo0 = a->lo[0] > b->lo[0] ? a->lo[0] : b->lo[0], hi0 = a->hi[0] < b->hi[0] ? a->hi[0] : b->hi[0];
    const float lo1 = a->lo[1] > b->lo[1] ? a->lo[1] : b->lo[1], hi1 = a->hi[1] < b->hi[1] ? a->hi[1] : b->hi[1];
    if (hi0 <= lo0 || hi1 <= lo1)
        return 0;
    const float common = (hi1 - lo1) * (hi0 - lo0), whole = a->area + b->area - common;
    return common > 0 && a->area > 0 && b->area > 0 && whole > 0 && common / whole > most;
}

/* Boxes of one class whose score is high enough, as a heap with the best one at its front; of equal ones the lowest. */
static int64_t candidates(const fx_nms_params *p, const float *scores, float least, fx_keyed *e) {
    int64_t n = 0;
    for (int64_t first = 0; first < p->boxes; first += BLOCK) {
        const int64_t end = fx_min64(p->boxes, first + BLOCK);
        uint64_t keys[BLOCK];
        fx_dtype_keys(FX_DTYPE_F32, scores, first, 1, end - first, keys);
        for (int64_t i = first; i < end; i++) {
            e[n] = (fx_keyed){keys[i - first], p->boxes - 1 - i};
            n += p->has_score ? scores[i] > least : scores[i] == scores[i];
        }
    }
    fx_heap_make(e, n);
    return n;
}

/* Selects boxes of one class, and returns how many. */
static int64_t select_boxes(const fx_call *call, int64_t line, fx_keyed *e, int64_t n, int64_t *y) {
    const fx_nms_params *p = &call->params->nms;
    const float *boxes = (const float *)call->in[0] + line / p->classes * p->boxes * 4;
    const float most_overlap = *(const float *)call->in[2];
    corners *kept = (corners *)((fx_keyed *)call->workspace + p->boxes);
    int64_t found = 0;
    while (n > 0 && found < p->most) {
        const int64_t best = p->boxes - 1 - e[0].index;
        const corners own = corners_of(boxes + 4 * best, p->is_centered);
        int64_t other = 0;
        while (other < found && !overlap(&own, &kept[other], most_overlap))
            other++;
        if (other == found) {
            const int64_t row[] = {line / p->classes, line % p->classes, best};
            memcpy(y + 3 * found, row, sizeof row);
            kept[found++] = own;
        }
        e[0] = e[--n];
        fx_heap_restore(e, n);
    }
    return found;
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    (void)threads;
    const fx_nms_params *p = &call->params->nms;
    const float least = p->has_score ? *(const float *)call->in[3] : 0;
    int64_t *y = call->out, found = 0;
    fx_keyed *e = call->workspace;
    if (u0 >= u1)
        return FX_OK;
    for (int64_t line = 0; line < (int64_t)p->batch * p->classes; line++) {
        const int64_t n = candidates(p, (const float *)call->in[1] + line * p->boxes, least, e);
        found += select_boxes(call, line, e, n, y + 3 * found);
    }
    const int64_t last[] = {found, 0, 0};
    memcpy(y + 3 * rows_of(p), last, sizeof last);
    return FX_OK;
}

FX_DRIVER(nms, .traits = 0, .workspace = workspace, .element_bytes = element_bytes);
