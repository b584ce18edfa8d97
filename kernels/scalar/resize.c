/* The definition of resize_f32 (kernels.h). */
#include "flexnn/kernels.h"

void FX_SYMBOL(resize_f32)(const fx_resize *r) {
    for (int32_t i = 0; i < r->pixels; i++) {
        const fx_resize_tap *t = &r->taps[i];
        const float *a = r->x[0] + t->left, *b = r->x[0] + t->right;
        const float *c = r->x[1] + t->left, *d = r->x[1] + t->right;
        float *y = r->y + i * r->y_pixel;
        for (int32_t j = 0; j < r->channels; j++) {
            const float top = a[j] * (1 - t->fraction) + b[j] * t->fraction;
            const float bottom = c[j] * (1 - t->fraction) + d[j] * t->fraction;
            y[j] = top * (1 - r->fraction) + bottom * r->fraction;
        }
    }
}
