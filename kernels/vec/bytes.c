/* Floats to bytes and back for all instruction sets. */
#include "simd.h"

/* Adding it rounds to whole numbers, half to even, what is below 2^22 in size. */
#define WHOLE 0x1.8p23f

typedef uint8_t bytes __attribute__((vector_size(FX_NR), aligned(1), may_alias));

/* x / scale, rounded as a division rounds it, which takes as long as all else: two corrections of a product by the
 * rounded reciprocal give that (Markstein 1990). Quotients beyond `most` steps become larger than any bound, and those
 * below a quarter, whose remainders might be denormal, 0. */
FX_INLINE fx_v quotient(fx_v x, fx_v scale, fx_v reciprocal, fx_v most) {
    const fx_vi counts = ~(fx_from_bits(fx_bits(x) & 0x7fffffff) <= scale * 0.25f); /* and NaN */
    const fx_v inside = fx_select(counts, fx_min(fx_max(x, -most), most), fx_splat(0));
    const fx_v about = inside * reciprocal, near = about + (inside - about * scale) * reciprocal;
    return near + (inside - near * scale) * reciprocal;
}

FX_INLINE void store(const fx_to_bytes *q, fx_v v, uint8_t *y) {
    const fx_v inside = fx_min(fx_max(v, fx_splat(q->lo)), fx_splat(q->hi));
    fx_store_bytes(y, inside + WHOLE - WHOLE, q->zero);
}

FX_INLINE void convert(const fx_to_bytes *q, const float *x, uint8_t *y, const int is_plain) {
    const fx_v scale = fx_splat(q->scale), reciprocal = fx_splat(1 / q->scale), most = fx_splat(1024 * q->scale);
    if (is_plain)
        store(q, quotient(fx_load(x), scale, reciprocal, most), y);
    else
        store(q, fx_load(x) / scale, y);
}

FX_INLINE void to_bytes(const fx_to_bytes *q, const int is_plain) {
    int64_t i = 0;
    for (; i + FX_WIDTH <= q->n; i += FX_WIDTH)
        convert(q, q->x + i, q->y + i, is_plain);
    if (i == q->n)
        return;
    float x[FX_WIDTH] = {0};
    uint8_t y[FX_WIDTH];
    __builtin_memcpy(x, q->x + i, (size_t)(q->n - i) * sizeof(float));
    convert(q, x, y, is_plain);
    __builtin_memcpy(q->y + i, y, (size_t)(q->n - i));
}

void FX_SYMBOL(to_bytes_f32)(const fx_to_bytes *argument) {
    const fx_to_bytes q = *argument; /* what is stored as bytes might change it otherwise */
    if (q.scale > 1e-20f && q.scale < 1e20f)
        to_bytes(&q, 1);
    else /* the reciprocal, or a remainder, would not be as exact */
        to_bytes(&q, 0);
}

void FX_SYMBOL(of_bytes_f32)(const fx_of_bytes *q) {
    enum { VECTORS = FX_NR / FX_WIDTH };
    const fx_v scale = fx_splat(q->scale);
    const int flip = q->is_signed ? 0 : 128; /* a byte less 128 is signed */
    const float zero = (float)(q->zero - flip);
    const uint8_t *x = q->x;
    int64_t i = 0;
    for (; i + FX_NR <= q->n; i += FX_NR) {
        const bytes v = *(const bytes *)(x + i) ^ (uint8_t)flip;
        fx_v wide[VECTORS];
        fx_load_s8(wide, &v);
        FX_UNROLL for (int j = 0; j < VECTORS; j++) fx_store(q->y + i + j * FX_WIDTH, (wide[j] - zero) * scale);
    }
    for (; i < q->n; i++)
        q->y[i] = (float)((q->is_signed ? (int8_t)x[i] : x[i]) - q->zero) * q->scale;
}
