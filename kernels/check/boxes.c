/* Random boxes of strided operands. */
#include "boxes.h"

/* Strides of a dense box whose dimensions lie in this order, outermost first; gap: one dimension in so many is spread.
 */
static void lay(check_case *c, const int32_t *d, const int *order, int gap, int32_t *s) {
    int32_t step = 1;
    for (int i = FX_DIMS - 1; i >= 0; i--) {
        if (gap && check_one_in(c, gap))
            step += check_int(c, 1, 5);
        s[order[i]] = step;
        step *= d[order[i]];
    }
}

static void draw_order(check_case *c, int is_shuffled, int *order) {
    for (int i = 0; i < FX_DIMS; i++)
        order[i] = i;
    for (int i = FX_DIMS - 1; i > 0 && is_shuffled; i--) {
        const int j = check_int(c, 0, i), t = order[i];
        order[i] = order[j], order[j] = t;
    }
}

void check_draw_box(check_case *c, int32_t *d, int32_t *ys) {
    int order[FX_DIMS];
    int64_t elements = 1;
    for (int i = 0; i < FX_DIMS; i++)
        d[i] = 1;
    for (int n = check_int(c, 1, FX_DIMS); n > 0; n--) {
        const int i = check_int(c, 0, FX_DIMS - 1);
        d[i] = check_one_in(c, 3) ? check_int(c, 1, 80) : check_int(c, 1, 9);
    }
    if (check_one_in(c, 6))
        d[FX_DIMS - 1] = check_int(c, 100, 3000);
    for (int i = FX_DIMS - 1; i >= 0; i--) {
        if (elements * d[i] > 20000)
            d[i] = 1;
        elements *= d[i];
    }
    draw_order(c, check_one_in(c, 5), order);
    lay(c, d, order, check_one_in(c, 3) ? 3 : 0, ys);
}

void check_draw_strides(check_case *c, const int32_t *d, int32_t *s) {
    int order[FX_DIMS];
    draw_order(c, check_one_in(c, 3), order);
    lay(c, d, order, check_one_in(c, 4) ? 3 : 0, s);
    for (int i = 0; i < FX_DIMS; i++) {
        if (check_one_in(c, 8))
            s[i] = 0;
        else if (check_one_in(c, 12))
            s[i] = -s[i];
    }
}
