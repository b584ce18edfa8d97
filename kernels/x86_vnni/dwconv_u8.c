/* Depthwise convolution of bytes, 64 channels at once. The bytes of four rows of taps are interleaved, so that a lane
 * holds those of one channel and VPDPBUSD adds their products; a column of taps is interleaved once for all pixels that
 * see it. Unpacking leaves vector k with channels 4k to 4k + 3 of each of four panels, and packing of finished sums
 * takes that back, so that only weights, biases and scales are ordered by hand, once for a strip. */
#include "../vec/load_weights.h"
#include "../x86/byte_finish.h"

#define BLOCK 64   /* channels */
#define COLUMNS 40 /* most columns of taps that are interleaved at once */
#define WEIGHTS 48 /* most vectors of weights: 5 x 5 taps have 40 */
#define FOURS_MAX 2

typedef struct strip {
    const fx_dw_u8 *d;
    fx_pack512 pack;
    __m512 scale[4];
    __m512i bias[4], w[WEIGHTS];
    __m512i columns[COLUMNS * FOURS_MAX * 4];
    __mmask64 mask;
    int32_t at, fours, blocks; /* first channel of the block, of the strip; panels that it has */
} strip;

/* Lane i of vector j becomes lane j of vector i; lanes have 128 bits. */
FX_INLINE void turn_lanes(__m512i v[4]) {
    const __m512i a = _mm512_shuffle_i32x4(v[0], v[1], 0x88), b = _mm512_shuffle_i32x4(v[0], v[1], 0xdd);
    const __m512i c = _mm512_shuffle_i32x4(v[2], v[3], 0x88), d = _mm512_shuffle_i32x4(v[2], v[3], 0xdd);
    v[0] = _mm512_shuffle_i32x4(a, c, 0x88), v[2] = _mm512_shuffle_i32x4(a, c, 0xdd);
    v[1] = _mm512_shuffle_i32x4(b, d, 0x88), v[3] = _mm512_shuffle_i32x4(b, d, 0xdd);
}

/* 64 bytes at `offset` of each of the block's panels, the last one for those that it lacks. */
static void load_turned(const strip *s, int64_t offset, __m512i v[4]) {
    for (int l = 0; l < 4; l++) {
        const int panel = s->at / FX_NR + (l < s->blocks ? l : s->blocks - 1);
        v[l] = _mm512_loadu_si512(s->d->w + panel * s->d->w_panel + offset);
    }
    turn_lanes(v);
}

static void start_block(strip *s) {
    const fx_dw_u8 *d = s->d;
    const int32_t left = d->channels - s->at;
    s->mask = left >= BLOCK ? ~(__mmask64)0 : ((__mmask64)1 << left) - 1;
    s->blocks = left >= BLOCK ? 4 : (left + FX_NR - 1) / FX_NR;
    load_turned(s, 0, s->bias);
    __m512i scale[4];
    load_turned(s, 2 * FX_NR * (int64_t)sizeof(float), scale);
    for (int k = 0; k < 4; k++)
        s->scale[k] = _mm512_castsi512_ps(scale[k]);
    for (int32_t i = 0; i < d->kw * s->fours; i++)
        load_turned(s, fx_byte_panel_head(d->finish.to) + i * FX_FOUR_BYTES, s->w + 4 * i);
}

/* Vectors of the first `rows` rows of taps at x, `row` pointers apart, in channel `at`. */
FX_INLINE void interleave(const uint8_t *const *x, int64_t row, int64_t at, __mmask64 mask, const int rows,
                          __m512i *to) {
    __m512i r[4];
    FX_UNROLL for (int k = 0; k < 4; k++) r[k] =
        k < rows ? _mm512_maskz_loadu_epi8(mask, x[k * row] + at) : _mm512_setzero_si512();
    const __m512i a = _mm512_unpacklo_epi8(r[0], r[1]), b = _mm512_unpackhi_epi8(r[0], r[1]);
    const __m512i c = _mm512_unpacklo_epi8(r[2], r[3]), d = _mm512_unpackhi_epi8(r[2], r[3]);
    to[0] = _mm512_unpacklo_epi16(a, c), to[1] = _mm512_unpackhi_epi16(a, c);
    to[2] = _mm512_unpacklo_epi16(b, d), to[3] = _mm512_unpackhi_epi16(b, d);
}

/* Columns of taps from position p0 on; KH: of d where it is known when this is compiled, else 0. */
FX_INLINE void interleave_columns(strip *s, int32_t p0, int32_t columns, const int KH) {
    const fx_dw_u8 *d = s->d;
    const int64_t row = d->positions, at = d->at + s->at;
    const __mmask64 mask = s->mask;
    const int32_t kh = KH ? KH : d->kh;
    __m512i *to = s->columns;
    const uint8_t *const *x = d->x + p0;
    for (int32_t p = 0; p < columns; p++, x++)
        FX_UNROLL for (int32_t f = 0; f < kh; f += 4, to += 4) {
            const uint8_t *const *first = x + f * row;
            switch (kh - f) {
            case 1:
                interleave(first, row, at, mask, 1, to);
                break;
            case 2:
                interleave(first, row, at, mask, 2, to);
                break;
            case 3:
                interleave(first, row, at, mask, 3, to);
                break;
            default:
                interleave(first, row, at, mask, 4, to);
            }
        }
}

/* The bytes of a pixel that needs more than clamping, or its floats. */
static __attribute__((noinline)) void finish_apart(const strip *s, int32_t pixel, __m512i sum[4]) {
    const fx_dw_u8 *d = s->d;
    const fx_finish512 f = fx_finish512_of(&d->finish);
    turn_lanes(sum);
    for (int l = 0; l < s->blocks; l++) {
        const int32_t at = s->at + l * FX_NR;
        const float *scales = (const float *)(const void *)(d->w + at / FX_NR * d->w_panel) + 2 * FX_NR;
        const __mmask16 mask = fx_mask_below(d->channels, at);
        if (d->finish.to == FX_DTYPE_F32)
            fx_store_floats512(&f, sum[l], _mm512_loadu_ps(scales), _mm512_loadu_ps(scales + FX_NR),
                               (float *)d->y + pixel * d->y_step + at, mask);
        else
            fx_store_added512(&f, sum[l], _mm512_loadu_ps(scales), d->r + pixel * d->r_step + at,
                              (uint8_t *)d->y + pixel * d->y_step + at, mask);
    }
}

/* Pixels [first, last), whose columns of taps fit. KH, KW: of d where they are known when this is compiled, else 0. */
FX_INLINE void run_pixels(strip *s, int32_t first, int32_t last, const int KH, const int KW) {
    const fx_dw_u8 *d = s->d;
    const int32_t kw = KW ? KW : d->kw, fours = KH ? (KH + 3) / 4 : s->fours;
    const int64_t next_tap = (int64_t)d->dilation * fours * 4, next_pixel = (int64_t)d->stride * fours * 4;
    const int is_apart = d->r || d->finish.to == FX_DTYPE_F32;
    const fx_pack512 pack = s->pack;
    const __m512 scale[4] = {s->scale[0], s->scale[1], s->scale[2], s->scale[3]};
    __m512i held[12]; /* weights, where registers hold them: y may be anything, and s be read again after each store */
    const int holds = KW != 0 && KW * ((KH + 3) / 4) <= 3;
    FX_UNROLL for (int k = 0; k < (holds ? KW * ((KH + 3) / 4) * 4 : 0); k++) held[k] = s->w[k];
    uint8_t *y = (uint8_t *)d->y + first * d->y_step + s->at;
    const __m512i *column = s->columns;
    interleave_columns(s, first * d->stride, (last - 1 - first) * d->stride + (kw - 1) * d->dilation + 1, KH);
    for (int32_t i = first; i < last; i++, column += next_pixel, y += d->y_step) {
        __m512i sum[4] = {s->bias[0], s->bias[1], s->bias[2], s->bias[3]};
        const __m512i *w = holds ? held : s->w, *tap = column;
        FX_UNROLL for (int32_t kx = 0; kx < kw; kx++, tap += next_tap) {
            const __m512i *v = tap;
            FX_UNROLL for (int32_t f = 0; f < fours; f++, v += 4, w += 4) FX_UNROLL for (int k = 0; k < 4; k++) sum[k] =
                _mm512_dpbusd_epi32(sum[k], v[k], w[k]);
        }
        if (is_apart) {
            __m512i copy[4] = {sum[0], sum[1], sum[2], sum[3]};
            finish_apart(s, i, copy);
            continue;
        }
        FX_UNROLL for (int k = 0; k < 4; k++) sum[k] = fx_whole512(&pack, sum[k], scale[k]);
        _mm512_mask_storeu_epi8(y, s->mask, fx_pack512_clamped(&pack, sum[0], sum[1], sum[2], sum[3]));
    }
}

static void run_3x3(strip *s, int32_t first, int32_t last) {
    run_pixels(s, first, last, 3, 3);
}
static void run_5x5(strip *s, int32_t first, int32_t last) {
    run_pixels(s, first, last, 5, 5);
}
static void run_any(strip *s, int32_t first, int32_t last) {
    run_pixels(s, first, last, 0, 0);
}

extern void fx_dwconv_u8_avx512(const fx_dw_u8 *d);

void FX_SYMBOL(dwconv_u8)(const fx_dw_u8 *d) {
    strip s; /* most of which is written before it is read */
    s.d = d, s.at = 0, s.fours = (d->kh + 3) / 4;
    const int64_t reach = (int64_t)(d->kw - 1) * d->dilation;
    if (s.fours > FOURS_MAX || (int64_t)d->kw * s.fours * 4 > WEIGHTS || reach >= COLUMNS) {
        fx_dwconv_u8_avx512(d);
        return;
    }
    s.pack = fx_pack512_clamps(&d->finish);
    void (*const run)(strip *, int32_t, int32_t) = d->kh == 3 && d->kw == 3   ? run_3x3
                                                   : d->kh == 5 && d->kw == 5 ? run_5x5
                                                                              : run_any;
    const int32_t most = (int32_t)((COLUMNS - 1 - reach) / d->stride) + 1;
    for (; s.at < d->channels; s.at += BLOCK) {
        start_block(&s);
        for (int32_t i = 0; i < d->pixels; i += most)
            run(&s, i, i + most < d->pixels ? i + most : d->pixels);
    }
}
