/* The definition of what is done to each byte: binary_u8, table_u8, pool_u8, resize_u8 (byte_kernels.h). All levels
 * compile it, since compilers make vectors of these loops. */
#include "byte_finish.h"

#include <string.h>

/* The loop that follows writes nothing that it reads later; clang finds out when it runs. */
#if defined(__clang__)
#define NO_OVERLAP
#else
#define NO_OVERLAP _Pragma("GCC ivdep")
#endif

/* Steps of 0 and 1 are constants where it is inlined. y may be a or b, element by element. */
static inline void binary_row(const fx_binary_u8 *p, const uint8_t *a, const uint8_t *b, uint8_t *y, int64_t a_step,
                              int64_t b_step, int64_t y_step) {
    const int32_t a_zero = p->a_zero, b_zero = p->b_zero, zero = p->zero;
    const float a_scale = p->a_scale, b_scale = p->b_scale, lo = p->lo, hi = p->hi;
    const int64_t n = p->n;
    if (p->kind == FX_BINARY_MUL) {
        NO_OVERLAP
        for (int64_t i = 0; i < n; i++) {
            const float v = (float)((a[i * a_step] - a_zero) * (b[i * b_step] - b_zero)) * a_scale;
            y[i * y_step] = (uint8_t)(zero + (int32_t)rintf(fx_clamped(v, lo, hi)));
        }
        return;
    }
    NO_OVERLAP
    for (int64_t i = 0; i < n; i++) {
        const float v = fmaf((float)(a[i * a_step] - a_zero), a_scale, (float)(b[i * b_step] - b_zero) * b_scale);
        y[i * y_step] = (uint8_t)(zero + (int32_t)rintf(fx_clamped(v, lo, hi)));
    }
}

void FX_SYMBOL(binary_u8)(const fx_binary_u8 *p) {
    for (int64_t r = 0; r < p->rows; r++) {
        const uint8_t *a = p->a + r * p->a_row, *b = p->b + r * p->b_row;
        uint8_t *y = p->y + r * p->y_row;
        if (p->y_step == 1 && p->a_step == 1 && p->b_step == 1)
            binary_row(p, a, b, y, 1, 1, 1);
        else if (p->y_step == 1 && p->a_step == 1 && p->b_step == 0)
            binary_row(p, a, b, y, 1, 0, 1);
        else if (p->y_step == 1 && p->a_step == 0 && p->b_step == 1)
            binary_row(p, a, b, y, 0, 1, 1);
        else
            binary_row(p, a, b, y, p->a_step, p->b_step, p->y_step);
    }
}

#define COLUMNS 64 /* channels that are pooled at once */

static inline void add_columns(const fx_pool_u8 *p, const uint8_t *x, int32_t *sums, int32_t n) {
    for (int32_t r = 0; r < p->rows; r++)
        for (int32_t i = 0; i < p->pixels; i++)
            for (int32_t j = 0; j < n; j++)
                sums[j] += x[r * p->x_row + i * p->x_pixel + j];
}

static inline void top_columns(const fx_pool_u8 *p, const uint8_t *x, uint8_t *top, int32_t n) {
    for (int32_t r = 0; r < p->rows; r++)
        for (int32_t i = 0; i < p->pixels; i++)
            for (int32_t j = 0; j < n; j++) {
                const uint8_t v = x[r * p->x_row + i * p->x_pixel + j];
                top[j] = top[j] > v ? top[j] : v;
            }
}

void FX_SYMBOL(pool_u8)(const fx_pool_u8 *p) {
    for (int32_t at = 0; at < p->channels; at += COLUMNS) {
        const int32_t n = p->channels - at < COLUMNS ? p->channels - at : COLUMNS;
        if (p->kind == FX_POOL_MAX) {
            uint8_t top[COLUMNS] = {0};
            if (n == COLUMNS)
                top_columns(p, p->x + at, top, COLUMNS);
            else
                top_columns(p, p->x + at, top, n);
            memcpy(p->y + at, top, (size_t)n);
            continue;
        }
        int32_t sums[COLUMNS] = {0};
        if (n == COLUMNS)
            add_columns(p, p->x + at, sums, COLUMNS);
        else
            add_columns(p, p->x + at, sums, n);
        const int32_t zeros = p->rows * p->pixels * p->x_zero, zero = p->zero;
        const float scale = p->scale, lo = p->lo, hi = p->hi;
        uint8_t bytes[COLUMNS];
        for (int32_t j = 0; j < COLUMNS; j++)
            bytes[j] = (uint8_t)(zero + (int32_t)rintf(fx_clamped((float)(sums[j] - zeros) * scale, lo, hi)));
        memcpy(p->y + at, bytes, (size_t)n);
    }
}

void FX_SYMBOL(resize_u8)(const fx_resize_u8 *r) {
    const uint8_t *a = r->x[0], *b = r->x[1], *c = r->x[2], *d = r->x[3];
    const float column = r->column, row = r->row;
    const int32_t channels = r->channels;
    uint8_t *y = r->y;
    NO_OVERLAP
    for (int32_t j = 0; j < channels; j++) {
        const float p = fmaf((float)(b[j] - a[j]), column, (float)a[j]);
        const float q = fmaf((float)(d[j] - c[j]), column, (float)c[j]);
        y[j] = (uint8_t)(int32_t)rintf(fx_clamped(fmaf(q - p, row, p), 0, UINT8_MAX));
    }
}

void FX_SYMBOL(table_u8)(const fx_table_u8 *t) {
    const uint8_t *x = t->x, *table = t->table;
    uint8_t *y = t->y;
    for (int64_t i = 0; i < t->n; i++)
        y[i] = table[x[i]];
}
