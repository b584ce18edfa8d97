/* Products of bytes without VNNI. VPMADDUBSW saturates, so rows are laid out as 16 bits and weights widened: VPMADDWD
 * then adds pairs of products exactly, and a sum has two halves until the end. A tile has 2 rows and a panel, of half
 * as many sums as there are registers. */
#include "../scalar/byte_finish.h"

#include <immintrin.h>
#include <string.h>

#define ROWS 2

void FX_SYMBOL(lay_rows_u8)(const fx_lay_rows_u8 *l) {
    const int64_t row = ((int64_t)l->runs * l->run + FX_LAID_BYTES - 1) / FX_LAID_BYTES * FX_LAID_BYTES;
    for (int32_t i = 0; i < l->rows; i++) {
        int16_t *to = (int16_t *)l->to + i * row;
        for (int32_t t = 0; t < l->runs; t++, to += l->run) {
            const uint8_t *from = l->a[t * l->rows + i];
            for (int32_t q = 0; q < l->run; q++)
                to[q] = from[q];
        }
    }
}

/* Sums of a panel and of R rows, added to what is in `sums`. */
static inline __attribute__((always_inline)) void multiply(const int16_t *a, int64_t row, const int8_t *w,
                                                           int64_t fours, int32_t sums[][FX_NR], const int R) {
    __m256i s[ROWS][4];
    for (int i = 0; i < R; i++)
        for (int k = 0; k < 4; k++)
            s[i][k] = _mm256_setzero_si256();
    for (int64_t q = 0; q < fours; q++, w += FX_FOUR_BYTES, a += 4) {
        __m256i x[ROWS];
        for (int i = 0; i < R; i++) {
            int64_t four;
            memcpy(&four, a + i * row, sizeof four);
            x[i] = _mm256_set1_epi64x(four);
        }
        for (int k = 0; k < 4; k++) {
            const __m256i b = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(w + 16 * k)));
            for (int i = 0; i < R; i++)
                s[i][k] = _mm256_add_epi32(s[i][k], _mm256_madd_epi16(x[i], b));
        }
    }
    for (int i = 0; i < R; i++)
        for (int k = 0; k < 4; k += 2) {
            __m256i *to = (__m256i *)(void *)(sums[i] + 4 * k);
            const __m256i both = _mm256_permute4x64_epi64(_mm256_hadd_epi32(s[i][k], s[i][k + 1]), 0xd8);
            _mm256_storeu_si256(to, _mm256_add_epi32(_mm256_loadu_si256(to), both));
        }
}

/* Finishes n channels of a panel's sums; loops that the compiler makes vectors of. */
static void finish(const fx_byte_finish *f, const int32_t *sums, const float *scales, const float *offsets,
                   const uint8_t *r, void *y, int32_t n) {
    uint8_t bytes[FX_NR], residual[FX_NR] = {0};
    float floats[FX_NR];
    if (f->to == FX_DTYPE_F32) {
        const float lo = f->lo, hi = f->hi;
        for (int j = 0; j < FX_NR; j++)
            floats[j] = fx_clamped((float)sums[j] * scales[j] + offsets[j], lo, hi);
        memcpy(y, floats, (size_t)n * sizeof *floats);
        return;
    }
    const float lo = f->lo, hi = f->hi, v_scale = f->v_scale, r_scale = f->r_scale, sum_lo = f->sum_lo;
    const float sum_hi = f->sum_hi;
    const int32_t zero = r ? f->sum_zero : f->zero, r_zero = f->r_zero;
    for (int j = 0; j < FX_NR; j++)
        floats[j] = rintf(fx_clamped((float)sums[j] * scales[j], lo, hi));
    if (r) {
        memcpy(residual, r, (size_t)n);
        for (int j = 0; j < FX_NR; j++) {
            const float u = fmaf(floats[j], v_scale, (float)(residual[j] - r_zero) * r_scale);
            floats[j] = rintf(fx_clamped(u, sum_lo, sum_hi));
        }
    }
    for (int j = 0; j < FX_NR; j++)
        bytes[j] = (uint8_t)(zero + (int32_t)floats[j]);
    memcpy(y, bytes, (size_t)n);
}

void FX_SYMBOL(dot_u8)(const fx_dot_u8 *d) {
    const int64_t fours = (int64_t)d->runs * d->run / 4, head = fx_byte_panel_head(d->finish.to);
    const int64_t row = (4 * fours + FX_LAID_BYTES - 1) / FX_LAID_BYTES * FX_LAID_BYTES;
    for (int32_t j = 0; j < d->panels; j++) {
        const char *panel = d->w + j * d->w_panel;
        const float *scales = (const float *)(const void *)panel + 2 * FX_NR, *offsets = scales + FX_NR;
        const int32_t n = d->columns - j * FX_NR < FX_NR ? d->columns - j * FX_NR : FX_NR;
        const int64_t at = d->c_at + j * FX_NR;
        const uint32_t *bias = d->bias ? (const uint32_t *)d->bias + j * FX_NR : (const uint32_t *)(const void *)panel;
        int32_t sums[ROWS][FX_NR];
        for (int32_t i = 0; i < d->rows; i++)
            for (int c = 0; c < FX_NR; c++)
                sums[i][c] = (int32_t)(bias[c] + (d->more ? (uint32_t)d->more[i] : 0));
        if (d->rows == ROWS)
            multiply(d->laid, row, (const int8_t *)panel + head, fours, sums, ROWS);
        else
            multiply(d->laid, row, (const int8_t *)panel + head, fours, sums, 1);
        for (int32_t i = 0; i < d->rows; i++)
            finish(&d->finish, sums[i], d->scales ? d->scales + j * FX_NR : scales, offsets, d->r ? d->r[i] + at : NULL,
                   (char *)d->c[i] + at * (d->finish.to == FX_DTYPE_F32 ? (int64_t)sizeof(float) : 1), n);
    }
}

#define TAPS_MAX 49

static inline __attribute__((always_inline)) void add_taps(const fx_dw_u8 *d, int32_t pixel, int32_t at,
                                                           const int16_t *w, int32_t *sums, const int n) {
    for (int32_t kx = 0; kx < d->kw; kx++)
        for (int32_t ky = 0; ky < d->kh; ky++, w += FX_NR) {
            const uint8_t *x = d->x[ky * d->positions + pixel * d->stride + kx * d->dilation] + d->at + at;
            for (int j = 0; j < n; j++)
                sums[j] += x[j] * w[j];
        }
}

extern void fx_dwconv_u8_scalar(const fx_dw_u8 *d);

void FX_SYMBOL(dwconv_u8)(const fx_dw_u8 *d) {
    int16_t weights[TAPS_MAX * FX_NR];
    if (d->kh * d->kw > TAPS_MAX) {
        fx_dwconv_u8_scalar(d);
        return;
    }
    const int32_t fours = (d->kh + 3) / 4;
    for (int32_t j = 0; j < d->channels; j += FX_NR) {
        const char *panel = d->w + j / FX_NR * d->w_panel;
        const int8_t *w = (const int8_t *)panel + fx_byte_panel_head(d->finish.to);
        const float *scales = (const float *)(const void *)panel + 2 * FX_NR;
        const int32_t n = d->channels - j < FX_NR ? d->channels - j : FX_NR;
        for (int32_t t = 0; t < d->kh * d->kw; t++)
            for (int c = 0; c < FX_NR; c++)
                weights[t * FX_NR + c] =
                    w[(int64_t)(t / d->kh * fours + t % d->kh / 4) * FX_FOUR_BYTES + 4 * c + t % d->kh % 4];
        for (int32_t i = 0; i < d->pixels; i++) {
            int32_t sums[FX_NR];
            memcpy(sums, panel, sizeof sums);
            if (n == FX_NR)
                add_taps(d, i, j, weights, sums, FX_NR);
            else
                add_taps(d, i, j, weights, sums, n);
            const int64_t at = i * d->y_step + j;
            finish(&d->finish, sums, scales, scales + FX_NR, d->r ? d->r + i * d->r_step + j : NULL,
                   (char *)d->y + at * (d->finish.to == FX_DTYPE_F32 ? (int64_t)sizeof(float) : 1), n);
        }
    }
}
