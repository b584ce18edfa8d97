/* The micro kernels of 8-bit activations: a list of its own, since a level's table of them may be another level's.
 * Integers are exact and floats are rounded where params_bytes.h says so: every level equals the scalar one bit for
 * bit. Part of the list of kernels.h. */
#ifndef FLEXNN_BYTE_KERNELS_H
#define FLEXNN_BYTE_KERNELS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "flexnn/panel.h"
#include "flexnn/params.h"
#include "flexnn/weight_form.h"

/* Bytes before the weights of a panel: biases, sums of weights, scales, and of F32 offsets; FX_NR words each. */
static inline int64_t fx_byte_panel_head(int32_t to) {
    return (to == FX_DTYPE_F32 ? 4 : 3) * FX_NR * (int64_t)sizeof(float);
}
#define FX_FOUR_BYTES (FX_NR * 4) /* of the weights of four products a channel */
#define FX_LAID_BYTES 16          /* of which rows and panels that are laid out have whole ones */

/* Finishing of params_bytes.h. */
typedef struct fx_byte_finish {
    int32_t to, zero, r_zero, sum_zero;
    float lo, hi, v_scale, r_scale, sum_lo, sum_hi;
} fx_byte_finish;

/* One tile of a product of bytes, whose rows are runs that may lie anywhere:
 *     c[i][c_at + j] = finish(bias[j] + sum over t < runs, q < run of a[t * rows + i][q] * w(t, q, j), r[i][c_at + j])
 * for i < rows <= bytes->rows and j < columns <= FX_NR * panels, panels <= bytes->panels. run is a multiple of 4, and
 * whole runs are read. Where the level lays rows out, `laid` holds them, and a is not read; where it lays panels out,
 * they are at `laid_w`, laid_panel bytes each, and w is read for their heads only. is_symmetric: no weight is -128; set
 * where the level asks for it. bias, where it is not NULL, stands for that of the panels, and scales likewise, FX_NR
 * for each. ahead: what another call will read; a level may prefetch 128 bytes there with each four of weights, and
 * moves on by ahead_step then. Or NULL, and a step of 0. */
typedef struct fx_dot_u8 {
    const uint8_t *const *a; /* [runs][rows] */
    const void *laid;
    const char *w;   /* first panel */
    int64_t w_panel; /* bytes from one panel to the next */
    const char *laid_w;
    int64_t laid_panel;
    const char *ahead;
    int64_t ahead_step;
    const int32_t *bias;     /* [panels][FX_NR], or NULL */
    const float *scales;     /* [panels][FX_NR], or NULL */
    const int32_t *more;     /* [rows] or NULL: added to all sums of a row */
    void *const *c;          /* [rows], of u8 or f32 */
    const uint8_t *const *r; /* [rows], or NULL */
    int64_t c_at;
    int32_t rows, panels, columns, runs, run, is_symmetric;
    fx_byte_finish finish;
} fx_dot_u8;

/* Lays out the rows of a tile: a as fx_dot_u8 has it, to runs * run bytes, rounded up to FX_LAID_BYTES, times
 * row_bytes for each of the rows that the level's tile has, 64-byte aligned. */
typedef struct fx_lay_rows_u8 {
    const uint8_t *const *a;
    void *to;
    int32_t rows, runs, run;
} fx_lay_rows_u8;

/* Lays out the weights of a panel, `fours` fours of each channel, to as many bytes, rounded up as rows are. */
typedef struct fx_lay_panel_u8 {
    const int8_t *from;
    int8_t *to;
    int64_t fours;
} fx_lay_panel_u8;

/* Most output pixels of one call of dwconv_u8. */
#define FX_DW_U8_PIXELS 64

/* Neighbouring output pixels of a depthwise convolution in one row of the map, channels [at, at + channels):
 *     y[i * y_step + j] = finish(bias[j] + sum over ky < kh, kx < kw of
 *                                x[ky * positions + i * stride + kx * dilation][at + j] * w(kx, ky, j), r[i * r_step +
 * j]) for i < pixels <= FX_DW_U8_PIXELS, j < channels; y and r are those of channel `at`. positions = (pixels - 1) *
 * stride + (kw - 1) * dilation + 1. */
typedef struct fx_dw_u8 {
    const uint8_t *const *x; /* [kh][positions] */
    const char *w;           /* the panel of channel `at` */
    int64_t w_panel;
    void *y;
    const uint8_t *r; /* or NULL */
    int64_t y_step, r_step, at;
    int32_t pixels, channels, kh, kw, stride, dilation, positions;
    fx_byte_finish finish;
} fx_dw_u8;

/* y[r * y_row + i * y_step] = f(a[...], b[...]) for r < rows, i < n, as binary_u8 of params_bytes.h; y may be a or b,
 * with the same strides. */
typedef struct fx_binary_u8 {
    const uint8_t *a, *b;
    uint8_t *y;
    int64_t rows, n, a_row, a_step, b_row, b_step, y_row, y_step;
    int32_t kind, a_zero, b_zero, zero;
    float a_scale, b_scale, lo, hi;
} fx_binary_u8;

/* y[i] = table[x[i]] for i < n. y may be x. */
typedef struct fx_table_u8 {
    const uint8_t *x, *table;
    uint8_t *y;
    int64_t n;
} fx_table_u8;

/* One output pixel of a pool, whose window is clipped to the map already and not empty: of x[r * x_row + i * x_pixel +
 * j], r < rows, i < pixels, for j < channels; scale is divided by the count. */
typedef struct fx_pool_u8 {
    const uint8_t *x;
    uint8_t *y;
    int64_t x_row, x_pixel;
    int32_t kind, rows, pixels, channels, x_zero, zero;
    float scale, lo, hi;
} fx_pool_u8;

/* One output pixel of a linear resize: of its four neighbours, all channels. */
typedef struct fx_resize_u8 {
    const uint8_t *x[4]; /* a, b above c, d */
    uint8_t *y;
    int32_t channels;
    float column, row; /* fractions */
} fx_resize_u8;

/* Channels of a row that are rounded together, and of a block of weights that such rows are multiplied by. */
#define FX_ROUNDED 32

/* Whether there are products of such rows by weights of a form: of integers of 4 or 8 bits with scales of their own. */
static inline int fx_multiplies_rounded(int32_t wtype) {
    const fx_weight_form form = fx_weight_forms[wtype];
    return form.block == FX_ROUNDED && !form.shared && (form.bits == 4 || form.bits == 8);
}

/* Rows of floats become integers of 8 bits in blocks of FX_ROUNDED, with a scale each: the largest size among them /
 * 127, and rint(x * (127 / that size)). Blocks below 1e-30 become zeros, those with a NaN or an infinity have a NaN as
 * their scale. `to` is in the order that products with weights of this form read, and starts are what the sums of a
 * block's products begin with, as the level needs them; sums are those of a block's integers, times its scale. */
typedef struct fx_rows_s8 {
    const float *const *a; /* [rows] */
    int8_t *to;            /* [rows][blocks][FX_ROUNDED] */
    float *scales, *sums;  /* [rows][blocks] */
    int32_t *starts;       /* [rows][blocks] */
    int32_t rows, blocks, wtype;
} fx_rows_s8;

/* Products of such rows with any number of panels of the same form:
 *     c[i][c_at + j] = finish(bias[j] + sum over b of scale(b, j) * scales[i][b] * (sum over q of to[i][b][q] * w(b, q,
 *                             j)) + minimum(b, j) * sums[i][b] [+ r[i][c_at + j]])
 * Inner sums are exact. The outer one is a chain of fused multiply-adds in the order of blocks, products before the
 * minimum, from 0 on; the factor of a product is scale * scales, rounded. head, scales and minimum as in fx_gemv. */
typedef struct fx_dot_s8 {
    fx_rows_s8 rows;
    const float *w;        /* first panel */
    int64_t w_panel;       /* floats from one panel to the next */
    float *const *c;       /* [rows] */
    const float *const *r; /* [rows], or NULL */
    int64_t c_at;
    int64_t head;
    int32_t columns, scales, minimum;
    fx_finish finish;
} fx_dot_s8;

/* Where four products of bytes are one instruction, a row of floats is multiplied as FX_DIGITS rows of bytes. A block
 * of FX_ROUNDED of its numbers has a unit, the smallest power of two of which no size among them is more than
 * FX_DIGITS_MOST; rint(x / unit) is 65536 to[2] + 256 to[1] + to[0], digits from -128 to 127. So a number is off by
 * half a unit at most, 2^-23 of the block's largest, and those of 23 bits that are as large are exact. */
#define FX_DIGITS 3
#define FX_DIGITS_MOST 0x7f7f7f

/* Whether there are products of such rows by weights of a form: a scale for each block or for each channel. */
static inline int fx_multiplies_digits(int32_t wtype) {
    return fx_multiplies_rounded(wtype) || wtype == FX_WTYPE_S8;
}

/* The unit of a block and 1 / unit, from the bits of its largest size; 0 where it has none. */
static inline int fx_unit_of_digits(uint32_t bits, float *unit, float *factor) {
    const uint32_t mantissa = 1u << 23, least = 22; /* so that the unit's exponent is one */
    /* a size of more than FX_DIGITS_MOST times 2^-22 of its power of two counts as the next power */
    const uint32_t exponent = (bits + 2 * mantissa - 1 - 2 * FX_DIGITS_MOST) >> 23;
    const uint32_t units = (exponent - least) << 23, factors = (254 + least - exponent) << 23;
    if (bits >= 0x7f800000u || (bits && exponent <= least))
        return 0;
    memcpy(unit, bits ? &units : &bits, sizeof *unit);
    memcpy(factor, bits ? &factors : &bits, sizeof *factor);
    return 1;
}

/* The sum of a block's numbers in units, from the sums of its digits. */
static inline int32_t fx_sum_of_digits(const int32_t *sums) {
    return (sums[2] * 256 + sums[1]) * 256 + sums[0];
}

/* digits_s8 makes the digits of the one row of `rows`: to is [FX_DIGITS][blocks][FX_ROUNDED], starts
 * [FX_DIGITS][blocks], scales the units, sums those of a block's numbers; [blocks] both. It returns 0 where a block has
 * no unit: it has a NaN or an infinity, or its largest size is below 2^-104, and not 0; then nothing is to be
 * multiplied. dot_digits_s8 multiplies such a row: c[0][c_at + j] = finish(bias[j] + 65536 s[2] + 256 s[1] + s[0] [+
 * r[0][c_at + j]]) where s[i] is the sum over b of scale(b, j) * scales[b] * (sum over q of to[i][b][q] * w(b, q, j)),
 * and s[0] has minimum(b, j) * sums[b] too, as in dot_s8. */
#define FX_BYTE_KERNELS_DIGITS(X)                                                                                      \
    X(digits_s8, int, (const fx_rows_s8 *r))                                                                           \
    X(dot_digits_s8, void, (const fx_dot_s8 *d))

/* X(name, return type, arguments in parentheses) */
#define FX_BYTE_KERNELS_ROUNDED(X)                                                                                     \
    X(rows_s8, void, (const fx_rows_s8 *r))                                                                            \
    X(dot_s8, void, (const fx_dot_s8 *d))
#define FX_BYTE_KERNELS_ROWS(X)                                                                                        \
    X(binary_u8, void, (const fx_binary_u8 *b))                                                                        \
    X(table_u8, void, (const fx_table_u8 *t))                                                                          \
    X(pool_u8, void, (const fx_pool_u8 *p))                                                                            \
    X(resize_u8, void, (const fx_resize_u8 *r))
#define FX_BYTE_KERNELS(X)                                                                                             \
    X(dot_u8, void, (const fx_dot_u8 *d))                                                                              \
    X(dwconv_u8, void, (const fx_dw_u8 *d))                                                                            \
    FX_BYTE_KERNELS_ROUNDED(X)                                                                                         \
    FX_BYTE_KERNELS_ROWS(X)

/* Where a level lays operands out; else NULL. */
#define FX_BYTE_KERNELS_LAYING(X)                                                                                      \
    X(lay_rows_u8, void, (const fx_lay_rows_u8 *l))                                                                    \
    X(lay_panel_u8, void, (const fx_lay_panel_u8 *l))

typedef struct fx_byte_kernels {
    int32_t rows, panels; /* of the tile of dot_u8 */
    int32_t row_bytes;    /* that a byte of a row takes, laid out */
    int32_t asks;         /* 1: is_symmetric is to be set */
#define FX_BYTE_MEMBER(name, ret, args) ret(*name) args;
    FX_BYTE_KERNELS(FX_BYTE_MEMBER)
    FX_BYTE_KERNELS_LAYING(FX_BYTE_MEMBER)
    FX_BYTE_KERNELS_DIGITS(FX_BYTE_MEMBER) /* NULL where bytes are no faster than floats */
#undef FX_BYTE_MEMBER
} fx_byte_kernels;

#endif
