/* The definition of floats to bytes and back (elementwise.h). */
#include "flexnn/kernels.h"

/* Adding it rounds to whole numbers, half to even, what is below 2^22 in size. */
#define WHOLE 0x1.8p23f

void FX_SYMBOL(to_bytes_f32)(const fx_to_bytes *q) {
    for (int64_t i = 0; i < q->n; i++) {
        const float v = q->x[i] / q->scale, above = v > q->lo ? v : q->lo, inside = above < q->hi ? above : q->hi;
        q->y[i] = (uint8_t)((int32_t)(inside + WHOLE - WHOLE) + q->zero);
    }
}

void FX_SYMBOL(of_bytes_f32)(const fx_of_bytes *q) {
    for (int64_t i = 0; i < q->n; i++) {
        const int32_t v = q->is_signed ? ((const int8_t *)q->x)[i] : ((const uint8_t *)q->x)[i];
        q->y[i] = (float)(v - q->zero) * q->scale;
    }
}
