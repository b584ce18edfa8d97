/* The definition of resize_f32 (kernels.h): these products, added in this order and not contracted, are what
 * onnxruntime computes on x86-64. Integers that are made of the result hang on its last bit. */
#include "flexnn/kernels.h"

void FX_SYMBOL(resize_f32)(const fx_resize *r) {
    for (int32_t i = 0; i < r->pixels; i++) {
        const fx_resize_tap *t = &r->taps[i];
        const float *a = r->x[0] + t->left, *b = r->x[0] + t->right;
        const float *c = r->x[1] + t->left, *d = r->x[1] + t->right;
        const float w[4] = {(1 - t->fraction) * (1 - r->fraction), t->fraction * (1 - r->fraction),
                            (1 - t->fraction) * r->fraction, t->fraction * r->fraction};
        float *y = r->y + i * r->y_pixel;
        for (int32_t j = 0; j < r->channels; j++) {
            y[j] = a[j] * w[0] + b[j] * w[1] + c[j] * w[2] + d[j] * w[3];
        }
    }
}
