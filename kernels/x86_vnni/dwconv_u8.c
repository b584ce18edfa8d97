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
#define LEAST 4 /* pixels of a strip whose parts a vector holds */

typedef struct strip {
    const fx_dw_u8 *d;
    fx_pack512 pack;
    __m512 scale[4];
    __m512i bias[4], w[WEIGHTS];
    __m512i columns[COLUMNS * FOURS_MAX * 4];
    __mmask64 mask;
    int32_t at, fours, blocks; /* first channel of the block, of the strip; panels that it has */
    int32_t parts; /* of the strip, whose pixels a vector holds; each has `blocks` lanes where there are many */
} strip;

/* Lane i of vector j becomes lane j of vector i; lanes have 128 bits. */
FX_INLINE void turn_lanes(__m512i v[4]) {
    const __m512i a = _mm512_shuffle_i32x4(v[0], v[1], 0x88), b = _mm512_shuffle_i32x4(v[0], v[1], 0xdd);
    const __m512i c = _mm512_shuffle_i32x4(v[2], v[3], 0x88), d = _mm512_shuffle_i32x4(v[2], v[3], 0xdd);
    v[0] = _mm512_shuffle_i32x4(a, c, 0x88), v[2] = _mm512_shuffle_i32x4(a, c, 0xdd);
    v[1] = _mm512_shuffle_i32x4(b, d, 0x88), v[3] = _mm512_shuffle_i32x4(b, d, 0xdd);
}

/* 64 bytes at `offset` of each of the block's panels, in turn where a vector holds several parts, else the last one for
 * those that it lacks. */
static void load_turned(const strip *s, int64_t offset, __m512i v[4]) {
    for (int l = 0; l < 4; l++) {
        const int panel = s->at / FX_NR + (s->parts > 1 ? l % s->blocks : l < s->blocks ? l : s->blocks - 1);
        v[l] = _mm512_loadu_si512(s->d->w + panel * s->d->w_panel + offset);
    }
    turn_lanes(v);
}

static void start_block(strip *s, int is_rolling) {
    const fx_dw_u8 *d = s->d;
    const int32_t left = d->channels - s->at;
    s->mask = left >= BLOCK ? ~(__mmask64)0 : ((__mmask64)1 << left) - 1;
    s->blocks = left >= BLOCK ? 4 : (left + FX_NR - 1) / FX_NR;
    s->parts = is_rolling && s->blocks < 3 ? 4 / s->blocks : 1;
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
    FX_UNROLL for (int k = 0; k < 12; k++) if (holds && k < KW * ((KH + 3) / 4) * 4) held[k] = s->w[k];
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
        FX_UNROLL for (int k = 0; k < 4; k++) sum[k] = fx_whole512(&pack, sum[k], scale[k], 0);
        _mm512_mask_storeu_epi8(y, s->mask, fx_pack512_clamped(&pack, sum[0], sum[1], sum[2], sum[3], 0));
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

/* ---- 3 x 3 taps ---- */

/* Channels from `at` on of a pixel of each part, whose pointers are `shift` apart. */
FX_INLINE __m512i load_parts(const strip *s, const uint8_t *const *x, int64_t shift, int64_t at, const int PARTS) {
    if (PARTS == 1)
        return _mm512_maskz_loadu_epi8(s->mask, x[0] + at);
    if (PARTS == 2)
        return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_maskz_loadu_epi8((__mmask32)s->mask, x[0] + at)),
                                  _mm256_maskz_loadu_epi8((__mmask32)s->mask, x[shift] + at), 1);
    __m512i v = _mm512_castsi128_si512(_mm_maskz_loadu_epi8((__mmask16)s->mask, x[0] + at));
    v = _mm512_inserti32x4(v, _mm_maskz_loadu_epi8((__mmask16)s->mask, x[shift] + at), 1);
    v = _mm512_inserti32x4(v, _mm_maskz_loadu_epi8((__mmask16)s->mask, x[2 * shift] + at), 2);
    return _mm512_inserti32x4(v, _mm_maskz_loadu_epi8((__mmask16)s->mask, x[3 * shift] + at), 3);
}

/* The column of three taps at x, interleaved with zeros. */
FX_INLINE void load_column(const strip *s, const uint8_t *const *x, int64_t shift, __m512i v[4], const int PARTS) {
    const int64_t at = s->d->at + s->at, row = s->d->positions;
    const __m512i r0 = load_parts(s, x, shift, at, PARTS), r1 = load_parts(s, x + row, shift, at, PARTS);
    const __m512i r2 = load_parts(s, x + 2 * row, shift, at, PARTS), none = _mm512_setzero_si512();
    const __m512i a = _mm512_unpacklo_epi8(r0, r1), b = _mm512_unpackhi_epi8(r0, r1);
    const __m512i c = _mm512_unpacklo_epi8(r2, none), d = _mm512_unpackhi_epi8(r2, none);
    v[0] = _mm512_unpacklo_epi16(a, c), v[1] = _mm512_unpackhi_epi16(a, c);
    v[2] = _mm512_unpacklo_epi16(b, d), v[3] = _mm512_unpackhi_epi16(b, d);
}

FX_INLINE void add_column(__m512i sum[4], const __m512i from[4], const __m512i v[4], const __m512i w[4]) {
    FX_UNROLL for (int k = 0; k < 4; k++) sum[k] = _mm512_dpbusd_epi32(from[k], v[k], w[k]);
}

FX_INLINE void store_parts(const strip *s, uint8_t *y, int64_t shift, const __m512i sum[4], const int PARTS,
                           const int is_plain) {
    const fx_pack512 *p = &s->pack;
    __m512i whole[4];
    FX_UNROLL for (int k = 0; k < 4; k++) whole[k] = fx_whole512(p, sum[k], s->scale[k], is_plain);
    const __m512i bytes = fx_pack512_clamped(p, whole[0], whole[1], whole[2], whole[3], is_plain);
    if (PARTS == 1) {
        _mm512_mask_storeu_epi8(y, s->mask, bytes);
    } else if (PARTS == 2) {
        _mm256_mask_storeu_epi8(y, (__mmask32)s->mask, _mm512_castsi512_si256(bytes));
        _mm256_mask_storeu_epi8(y + shift, (__mmask32)s->mask, _mm512_extracti64x4_epi64(bytes, 1));
    } else {
        const __mmask16 mask = (__mmask16)s->mask;
        _mm_mask_storeu_epi8(y, mask, _mm512_castsi512_si128(bytes));
        _mm_mask_storeu_epi8(y + shift, mask, _mm512_extracti32x4_epi32(bytes, 1));
        _mm_mask_storeu_epi8(y + 2 * shift, mask, _mm512_extracti32x4_epi32(bytes, 2));
        _mm_mask_storeu_epi8(y + 3 * shift, mask, _mm512_extracti32x4_epi32(bytes, 3));
    }
}

/* All of the strip, whose columns are read one after the other: each is added to the sums of all pixels that see it,
 * which registers hold. Parts may overlap. */
FX_INLINE void roll(const strip *s, const int STRIDE, const int PARTS, const int is_plain) {
    const fx_dw_u8 *d = s->d;
    const int64_t apart = PARTS > 1 ? d->pixels / PARTS : 0; /* pixels from one part to the next */
    const int64_t pixels = d->pixels - (PARTS - 1) * apart;
    const int64_t shift = apart * STRIDE;
    const uint8_t *const *x = d->x;
    const __m512i *bias = s->bias;
    __m512i w[12], v[4], older[4], newer[4];
    FX_UNROLL for (int k = 0; k < 12; k++) w[k] = s->w[k];
    load_column(s, x++, shift, v, PARTS);
    add_column(newer, bias, v, w);
    if (STRIDE == 1) {
        load_column(s, x++, shift, v, PARTS);
        add_column(older, newer, v, w + 4);
        add_column(newer, bias, v, w);
    }
    uint8_t *y = (uint8_t *)d->y + s->at;
    for (int64_t i = 0; i < pixels; i++, y += d->y_step) {
        __m512i done[4];
        if (STRIDE == 2) {
            load_column(s, x++, shift, v, PARTS);
            add_column(older, newer, v, w + 4);
        }
        load_column(s, x++, shift, v, PARTS);
        add_column(done, older, v, w + 8);
        if (STRIDE == 1)
            add_column(older, newer, v, w + 4);
        add_column(newer, bias, v, w);
        store_parts(s, y, apart * d->y_step, done, PARTS, is_plain);
    }
}

#define ROLLS(S, P, plain)                                                                                             \
    static void roll_##S##_##P##_##plain(const strip *s) {                                                             \
        roll(s, S, P, plain);                                                                                          \
    }
ROLLS(1, 1, 0)
ROLLS(1, 1, 1)
ROLLS(1, 2, 0)
ROLLS(1, 2, 1)
ROLLS(1, 4, 0)
ROLLS(1, 4, 1)
ROLLS(2, 1, 0)
ROLLS(2, 1, 1)
ROLLS(2, 2, 0)
ROLLS(2, 2, 1)
ROLLS(2, 4, 0)
ROLLS(2, 4, 1)

/* Whether no product of a sum and a scale of the block passes an int32, and saturation clamps. */
static int is_plain(const strip *s) {
    int plain = fx_keeps_range(&s->d->finish);
    for (int k = 0; k < 4; k++)
        plain &= fx_are_fractions(s->scale[k]);
    return plain;
}

static void roll_block(const strip *s) {
    static void (*const rolls[2][3][2])(const strip *) = {
        {{roll_1_1_0, roll_1_1_1}, {roll_1_2_0, roll_1_2_1}, {roll_1_4_0, roll_1_4_1}},
        {{roll_2_1_0, roll_2_1_1}, {roll_2_2_0, roll_2_2_1}, {roll_2_4_0, roll_2_4_1}},
    };
    rolls[s->d->stride - 1][s->parts / 2][is_plain(s)](s);
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
    fx_pack512_clamps(&s.pack, &d->finish);
    void (*const run)(strip *, int32_t, int32_t) = d->kh == 3 && d->kw == 3   ? run_3x3
                                                   : d->kh == 5 && d->kw == 5 ? run_5x5
                                                                              : run_any;
    const int32_t most = (int32_t)((COLUMNS - 1 - reach) / d->stride) + 1;
    const int is_rolling = run == run_3x3 && d->dilation == 1 && d->stride <= 2 && !d->r &&
                           d->finish.to == FX_DTYPE_U8 && d->pixels >= LEAST;
    for (; s.at < d->channels; s.at += BLOCK) {
        start_block(&s, is_rolling);
        if (is_rolling) {
            roll_block(&s);
            continue;
        }
        for (int32_t i = 0; i < d->pixels; i += most)
            run(&s, i, i + most < d->pixels ? i + most : d->pixels);
    }
}
