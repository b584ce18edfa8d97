/* The micro kernels: one list. Each line declares a kernel's signature once. The table's members, the prototypes of
 * every level's version and the check program's walk over all kernels come from it.
 *
 * Grammar of names: <what>_<type>[_<shape>]; the level is the symbol's suffix: gemm_f32 of AVX-512 is
 * fx_gemm_f32_avx512. The scalar kernel is the definition; others may differ from it by rounding. */
#ifndef FLEXNN_KERNELS_H
#define FLEXNN_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "flexnn/byte_kernels.h"
#include "flexnn/elementwise.h"
#include "flexnn/half_kernels.h"
#include "flexnn/panel.h"
#include "flexnn/params.h"
#include "flexnn/rows.h"
#include "flexnn/weight_form.h"

/* Products that gemm_f32 adds up before it folds them into sums of earlier ones (vec/run_sums.h), unless one tap has
 * more: rounding errors of a sum grow with the length of its chains. */
#define FX_GEMM_RUN 64

/* One tile of a matrix product whose rows may lie anywhere:
 *     c[i][c_at + j] = finish(start[j] + sum over t < taps, q < k of a[t * rows + i][a_at + q] * w(t, q, j)
 *                             [+ r[i][c_at + j]])
 * for i < rows <= kernels->mr and j < columns <= FX_NR * panels, panels <= kernels->panels. Where a_step is not 0, rows
 * lie at that step, and a has one pointer for each tap: a[t][i * a_step + a_at + q]. A tap whose first pointer is NULL
 * is outside the map for all rows and adds nothing.
 * A panel is `head` floats (0, or [bias FX_NR], or [bias FX_NR][slope FX_NR]), then [block][tap][q of block][FX_NR];
 * the last block may be shorter. start is the panel's bias if head > 0, else 0. With one tap the order is [q][FX_NR]
 * whatever the block. Only the floats named are touched; c may equal r.
 *
 * To multiply by a matrix computed at run time (MATMUL): copy 16 columns of b at a time into panels of k * FX_NR floats
 * (zeros beyond the last column), then for each tile of at most kernels->mr rows and kernels->panels panels call it
 * with taps = 1, head = 0, block = k, w_panel = k * FX_NR, a = pointers to the rows of a, c = pointers to the rows of
 * the result, a_at = 0, c_at = the first panel's first column. Split rows evenly: 15 rows with mr 14 are best as 8 + 7.
 */
typedef struct fx_gemm {
    const float *const *a; /* [taps][rows], or [taps] where a_step is not 0 */
    const float *w;        /* first panel */
    int64_t w_panel;       /* floats from one panel to the next */
    float *const *c;       /* [rows] */
    const float *const *r; /* [rows], or NULL */
    int64_t a_at, c_at;    /* first column read and written */
    int64_t a_step;        /* floats from one row of a to the next, or 0 */
    int64_t ahead[2];      /* floats from a weight to some that are read soon: a level may prefetch them meanwhile */
    int32_t rows, panels, columns, taps, k, block, head;
    fx_finish finish;
} fx_gemm;

/* Most output pixels of one call of dwconv_f32. */
#define FX_DW_PIXELS 64

/* Neighbouring output pixels of a depthwise convolution, in one row of the map or two, all channels of a window:
 *     y[o * y_row + i * y_step + at + j] = finish(bias[j] + sum over ky < kh, kx < kw of
 *               x[(o * stride + ky) * positions + i * stride + kx * dilation][at + j] * w(ky, kx, j)
 *               [+ r[o * r_row + i * r_step + at + j]])
 * for o < rows, i < pixels <= FX_DW_PIXELS, j < channels; positions = (pixels - 1) * stride + (kw - 1) * dilation + 1
 * input pixels in each row of x. Two rows only where fx_dw_pairs holds; each input row is then read twice instead of
 * three times. A panel of FX_NR channels is head floats as in fx_gemm, then [ky][kx][FX_NR]. */
typedef struct fx_dwconv {
    const float *const *x; /* [kh + (rows - 1) * stride][positions] */
    const float *w;        /* first panel */
    int64_t w_panel;       /* floats from one panel to the next */
    float *y;              /* first pixel */
    const float *r;        /* its residual, or NULL */
    int64_t y_row, r_row, y_step, r_step;
    int64_t at; /* first channel read and written */
    int32_t rows, pixels, channels, kh, kw, stride, dilation, positions, head;
    int32_t asks; /* 1: the maps are larger than a cache; a level may prefetch what it reads and writes next */
    fx_finish finish;
} fx_dwconv;

/* Whether dwconv_f32 computes two output rows at once: taps 3 x 3, `stride` the same both ways. */
static inline int fx_dw_pairs(int32_t kh, int32_t kw, int32_t sh, int32_t sw, int32_t dh, int32_t dw) {
    return kh == 3 && kw == 3 && sh == sw && sw <= 2 && dh == 1 && dw == 1;
}

/* The same where the channels of a group of `wide`, 2, 4 or 8, see one another: instead of the product of x's channel
 * at + j and w(ky, kx, j), the sum over q < wide of x[...][at + j / wide * wide + q] * w(ky, kx, q, j). After a panel's
 * head stand [ky][kx][q][FX_NR]; strip.channels is a multiple of wide. */
typedef struct fx_gconv {
    fx_dwconv strip;
    int32_t wide;
} fx_gconv;

/* Neighbouring output pixels of a convolution with few output channels, whose vectors hold pixels:
 *     y[c * y_row + i] = finish(bias[c] + r[c * y_row + i] + sum over ky < kh, kx < kw, q < cin of
 *                                         x[ky * cin + q][at[kx] + i] * w(ky, kx, q, c))
 * for c < columns <= FX_PLANAR_COLUMNS, i < pixels, a multiple of FX_PLANAR_PIXELS; r may be NULL. The panel is head
 * floats as in fx_gemm, then [ky][kx][q][FX_NR]. */
#define FX_PLANAR_COLUMNS 12
#define FX_PLANAR_PIXELS 16
typedef struct fx_planar {
    const float *const *x; /* [kh][cin] */
    const int32_t *at;     /* [kw] */
    const float *w, *r;
    float *y;
    int64_t y_row;
    int32_t pixels, columns, kh, kw, cin, head;
    fx_finish finish;
} fx_planar;

/* Winograd F(m x m, 3 x 3), m 2 or 4 (Lavin and Gray 2015; points 0, +-1 for m = 2, and for m = 4 0, +-sqrt(1/2),
 * +-sqrt(2), whose rounding error is half that of 0, +-1, +-2): a tile of (m + 2)^2 input pixels makes m x m output
 * pixels. A transformed tile has (m + 2)^2 numbers for each channel, each in a plane of its own, `plane` floats
 * apart. */
#define FX_WINO_PLANES(m) (((m) + 2) * ((m) + 2))
#define FX_WINO_PLANES_MAX 36

/* v[q * plane + c] = (B^T d B)[q] for c < channels, where d is the pixels at x[0 .. planes). */
typedef struct fx_wino_input {
    const float *const *x;
    float *v;
    int64_t plane;
    int32_t m, channels;
} fx_wino_input;

/* u[q * plane + c * FX_NR + j] = (G g G^T)[q] for c < channels, where tap t of g is at g[t * tap + c * FX_NR + j]. */
typedef struct fx_wino_weight {
    const float *g;
    float *u;
    int64_t tap, plane;
    int32_t m, channels;
} fx_wino_weight;

/* c[i * ldc + j] = (is_first ? 0 : c[i * ldc + j]) + sum over q < k of a[i * lda + q] * w(q, j), where w's panels,
 * `w_panel` floats apart, are [q][FX_NR]; i < rows <= kernels->mr, j < FX_NR * panels. The sum is one chain; c is added
 * at its end. */
typedef struct fx_wino_gemm {
    const float *a, *w;
    float *c;
    int64_t lda, ldc, w_panel, k;
    int32_t rows, panels, is_first;
} fx_wino_gemm;

/* y[i * y_row + l * y_pixel + j] = finish(bias[j] + (A^T s A)[i][l][j] [+ r[...]]) for i < rows, l < pixels,
 * j < columns <= FX_NR, where s[q] is at s[q * plane + j]. */
typedef struct fx_wino_output {
    const float *s;
    const float *panel; /* [bias FX_NR][slope FX_NR if PRELU] */
    float *y;
    const float *r; /* or NULL */
    int64_t plane, y_row, y_pixel, r_row, r_pixel;
    int32_t m, rows, pixels, columns;
    fx_finish finish;
} fx_wino_output;

/* Rows mixed by a small matrix, whichever transform of Winograd in one dimension that is: for q < to, j < n
 *     y[q][j] = sum over i < from of m[q * from + i] * x[i][j], and where there is a panel, [bias FX_NR] or [bias
 * FX_NR] [slope FX_NR], n <= FX_NR: finish(panel[j] + that sum [+ r[q][j]]). from: 3, 5, 6, 7, 8 or 10. y and x share
 * nothing. */
#define FX_MIX_MAX 10
typedef struct fx_mix {
    const float *const *x; /* [from] */
    float *const *y;       /* [to] */
    const float *const *r; /* [to], or NULL */
    const float *m, *panel;
    int64_t n;
    int32_t from, to;
    fx_finish finish;
} fx_mix;

/* Products of whole numbers by pairs of int16: sums are int32 and wrap. Numbers are at most 255 in size. The products'
 * operands are made of floats: rows of a, where fx_gemm has them, one after the other with a zero behind an odd depth;
 * and panels, [pair of q][FX_NR][the two q of a pair]. */
typedef struct fx_rows_s16 {
    const float *const *a; /* [taps][rows] */
    int16_t *to;           /* [rows][to_row], and FX_S16_SLACK beyond */
    int64_t a_at, to_row;  /* to_row: taps * k, or one more where that is odd */
    int32_t rows, taps, k, block;
} fx_rows_s16;
#define FX_S16_SLACK 16

typedef struct fx_panel_s16 {
    const float *from; /* [depth][FX_NR] */
    int16_t *to;
    int32_t depth;
} fx_panel_s16;

/* c[i][c_at + j] = (is_more ? c[i][c_at + j] : 0) + sum over q < depth of a[i * a_row + q] * w(q, j) for i < rows
 * <= kernels->mr and j < columns <= FX_NR * panels, panels <= kernels->panels; depth is even. */
typedef struct fx_gemm_s16 {
    const int16_t *a, *w;
    int64_t a_row, w_panel; /* in int16 */
    int32_t *const *c;      /* [rows] */
    int64_t c_at;
    int32_t rows, panels, columns, depth, is_more;
} fx_gemm_s16;

/* Integers: where pairs of int16 multiply faster than floats. NULL in the tables of NEON: SMLAL takes twice the time of
 * FMLA on most cores, and drivers add floats there (ops/sums.h). */
#define FX_KERNELS_PAIRS(X)                                                                                            \
    X(rows_s16, void, (const fx_rows_s16 *r))                                                                          \
    X(panel_s16, void, (const fx_panel_s16 *p))                                                                        \
    X(gemm_s16, void, (const fx_gemm_s16 *g))

/* A panel of bytes, [depth][FX_NR], as [four of q][FX_NR][the four q], zeros behind the last; and the sum of each
 * column. */
typedef struct fx_panel_s8 {
    const int8_t *from;
    int8_t *to;
    int32_t *sums; /* [FX_NR] */
    int32_t depth;
} fx_panel_s8;

/* c[i * c_row + j] = x[i * x_row + j] + scale * scales[j] * (sum over q < depth of a[i * a_row + q] * w(q, j) - zero *
 * sums[j]) for i < rows <= FX_FEW_ROWS, j < columns; panels and their sums as panel_s8 makes them, a depth that is a
 * multiple of 4. The scales of a panel are scale_panel floats from those of the one before. */
typedef struct fx_gemv_u8 {
    const uint8_t *a;
    const int8_t *w;
    const int32_t *sums;
    const float *scales, *x;
    float *c;
    int64_t a_row, x_row, c_row, w_panel, scale_panel;
    float scale;
    int32_t zero, rows, columns, depth;
} fx_gemv_u8;

/* Where four products of bytes are one instruction; NULL elsewhere, and drivers add floats. */
#define FX_KERNELS_BYTES(X)                                                                                            \
    X(panel_s8, void, (const fx_panel_s8 *p))                                                                          \
    X(gemv_u8, void, (const fx_gemv_u8 *g))

/* Convolution: gemm, Winograd transforms, depthwise, narrow groups, few rows, few channels, stored weights. */
#define FX_KERNELS_CONV(X)                                                                                             \
    X(gemm_f32, void, (const fx_gemm *g))                                                                              \
    X(wino_input_f32, void, (const fx_wino_input *t))                                                                  \
    X(wino_weight_f32, void, (const fx_wino_weight *t))                                                                \
    X(wino_gemm_f32, void, (const fx_wino_gemm *g))                                                                    \
    X(wino_output_f32, void, (const fx_wino_output *t))                                                                \
    X(mix_f32, void, (const fx_mix *m))                                                                                \
    X(dwconv_f32, void, (const fx_dwconv *d))                                                                          \
    X(gconv_f32, void, (const fx_gconv *c))                                                                            \
    X(gemv_f32, void, (const fx_gemv *g))                                                                              \
    X(planar_f32, void, (const fx_planar *p))                                                                          \
    X(weights_f32, void, (const fx_weights *w))

/* One output pixel of a pool, whose window is clipped to the input already:
 *     y[j] = max, or sum * scale, over r < rows, i < pixels of x[r * x_row + i * x_pixel + j], j < channels.
 * A NaN in the window makes the result NaN. rows, pixels >= 1. */
typedef struct fx_pool {
    const float *x;
    float *y;
    int64_t x_row, x_pixel;
    int32_t kind, rows, pixels, channels; /* kind: fx_pool_kind */
    float scale;
} fx_pool;

/* Softmax over q < n of x[q * step + j], for each j < columns, into the same places of y; log: its logarithm.
 * step 1 means one column, and `rows` of n floats one after the other, each by itself. y may be x. */
typedef struct fx_softmax {
    const float *x;
    float *y;
    int64_t step;
    int32_t n, columns, rows, log; /* rows: 1 unless step is 1 */
} fx_softmax;

/* y[j] = reduction of x[q * step + j] over q < n, for each j < columns. step 1 means one column. */
#define FX_REDUCE_RUN 256 /* terms that are summed before they are added to the total */
typedef struct fx_reduce {
    const float *x;
    float *y;
    int64_t step;
    int32_t kind, n, columns; /* kind: fx_reduce_kind */
} fx_reduce;

/* Bilinear interpolation of a row of pixels: between rows x[0] and x[1] by `fraction` (0: all x[0]), and in each
 * between the pixels at floats left and right of the row by the tap's fraction. */
typedef struct fx_resize_tap {
    int64_t left, right;
    float fraction;
} fx_resize_tap;
typedef struct fx_resize {
    const float *x[2];
    const fx_resize_tap *taps; /* [pixels] */
    float *y;
    int64_t y_pixel;
    int32_t pixels, channels;
    float fraction;
} fx_resize;

/* y[i * y_pixel + j] = sum over t of share[i][t] x[at[i][t] + j], for `pixels` pixels i and `channels` channels j. */
typedef struct fx_blend {
    const float *x, *share; /* share [pixels][taps] */
    const int64_t *at;      /* [pixels][taps] */
    float *y;
    int64_t y_pixel;
    int32_t pixels, channels, taps;
} fx_blend;

/* y[j] = x[j] (bias + scale sum x[i]^2)^-beta over the `taps` channels i from j - before on; padded is x with `before`
 * zeros in front and taps - 1 - before behind. */
typedef struct fx_lrn {
    const float *padded; /* [channels + taps - 1] */
    float *y;
    int32_t channels, taps, before;
    float scale, beta, bias;
} fx_lrn;

/* y = (x - mean) / sqrt(variance + epsilon) * scale[j] + bias[j] over x[q * step + j], q < n, for each j < columns. */
typedef struct fx_instance_norm {
    const float *x, *scale, *bias;
    float *y;
    int64_t step;
    int32_t n, columns;
    float epsilon;
} fx_instance_norm;

/* Pooling, softmax, reductions, normalisation, resizing. */
#define FX_KERNELS_REDUCTIONS(X)                                                                                       \
    X(pool_f32, void, (const fx_pool *p))                                                                              \
    X(softmax_f32, void, (const fx_softmax *s))                                                                        \
    X(reduce_f32, void, (const fx_reduce *r))                                                                          \
    X(resize_f32, void, (const fx_resize *r))                                                                          \
    X(blend_f32, void, (const fx_blend *b))                                                                            \
    X(lrn_f32, void, (const fx_lrn *l))                                                                                \
    X(instance_norm_f32, void, (const fx_instance_norm *t))

/* A row's step of an LSTM with sigmoid and tanh: gates i, o, f and g, which are summed up, decide for each j < n
 *     in = sigmoid(i + look_i c), forget = sigmoid(f + look_f c), c = forget c + in tanh(g),
 *     y = sigmoid(o + look_o c) tanh(c) */
typedef struct fx_lstm {
    const float *gates[4]; /* i, o, f, g */
    const float *look[3];  /* peepholes of i, o, f; all NULL: none */
    float *cell, *y;       /* c, in place */
    int64_t n;
} fx_lstm;

#define FX_KERNELS_CELLS(X) X(lstm_f32, void, (const fx_lstm *t))

/* Rows: elementwise, pooling, softmax, reductions, what transformers add. */
#define FX_KERNELS_ROWS(X) FX_KERNELS_ELEMENTWISE(X) FX_KERNELS_REDUCTIONS(X) FX_KERNELS_TRANSFORMERS(X)

#define FX_KERNELS_ALL(X) FX_KERNELS_CONV(X) FX_KERNELS_ROWS(X) FX_KERNELS_CELLS(X)
#define FX_KERNELS_X86(X) FX_KERNELS_ALL(X) FX_KERNELS_PAIRS(X)
#define FX_KERNELS_VNNI(X) FX_KERNELS_X86(X) FX_KERNELS_BYTES(X)
#define FX_KERNELS(X) FX_KERNELS_VNNI(X) FX_KERNELS_HALVES(X)

/* X(name, return type, arguments in parentheses) */
typedef struct fx_kernels {
    const char *level;
    int32_t width;  /* floats per vector */
    int32_t mr;     /* rows of the gemm tile */
    int32_t panels; /* panels of the gemm tile */
    int32_t halves; /* 1: the CPU adds up halves, faster than floats (half_kernels.h) */
    const fx_byte_kernels *bytes;
#define FX_TABLE_MEMBER(name, ret, args) ret(*name) args;
    FX_KERNELS(FX_TABLE_MEMBER)
#undef FX_TABLE_MEMBER
} fx_kernels;

/* The build compiles the sources of a level with FX_LEVEL, its name, FX_WIDTH, the floats of a vector, and FX_ISA_NEON,
 * FX_ISA_AVX2 and FX_ISA_AVX512, each 1 or 0. There FX_SYMBOL(gemm_f32) is fx_gemm_f32_<level>, and every kernel of the
 * list is declared. */
#ifdef FX_LEVEL
#if FX_ISA_NEON
#define FX_KERNELS_HERE FX_KERNELS_ALL
#elif (FX_ISA_AVX2 || FX_ISA_AVX512) && !defined __AVX512VNNI__
#define FX_KERNELS_HERE FX_KERNELS_X86
#elif FX_ISA_AVX512
#define FX_KERNELS_HERE FX_KERNELS_VNNI
#else
#define FX_KERNELS_HERE FX_KERNELS
#endif
#define FX_PASTE_(a, b) fx_##a##_##b
#define FX_PASTE(a, b) FX_PASTE_(a, b)
#define FX_SYMBOL(name) FX_PASTE(name, FX_LEVEL)
#define FX_STRING_(a) #a
#define FX_STRING(a) FX_STRING_(a)
#define FX_PROTOTYPE(name, ret, args) ret FX_SYMBOL(name) args;
FX_KERNELS_HERE(FX_PROTOTYPE)
FX_KERNELS_HALVES(FX_PROTOTYPE) /* again, at the scalar level */
#undef FX_PROTOTYPE
#define FX_BYTE_PROTOTYPE(name, ret, args) ret FX_SYMBOL(name) args;
extern const fx_kernels FX_SYMBOL(kernels);
FX_BYTE_KERNELS(FX_BYTE_PROTOTYPE)
FX_BYTE_KERNELS_LAYING(FX_BYTE_PROTOTYPE)
FX_BYTE_KERNELS_DIGITS(FX_BYTE_PROTOTYPE)
extern const fx_byte_kernels FX_SYMBOL(byte_kernels);
#define FX_TABLE_ENTRY(name, ret, args) .name = FX_SYMBOL(name),
/* The table of a level, for its table.c. */
#define FX_TABLE(rows, columns)                                                                                        \
    const fx_kernels FX_SYMBOL(kernels) = {.level = FX_STRING(FX_LEVEL),                                               \
                                           .width = FX_WIDTH,                                                          \
                                           .mr = rows,                                                                 \
                                           .panels = columns,                                                          \
                                           .bytes = &FX_SYMBOL(byte_kernels),                                          \
                                           FX_KERNELS_HERE(FX_TABLE_ENTRY)}
/* A level's table of bytes; further arguments: what it lays out. */
#define FX_BYTE_TABLE(tile_rows, tile_panels, bytes_of_row, ...)                                                       \
    const fx_byte_kernels FX_SYMBOL(byte_kernels) = {.rows = tile_rows,                                                \
                                                     .panels = tile_panels,                                            \
                                                     .row_bytes = bytes_of_row,                                        \
                                                     FX_BYTE_KERNELS(FX_TABLE_ENTRY) __VA_ARGS__}
#endif

#define FX_LEVELS(Y)                                                                                                   \
    Y(scalar)                                                                                                          \
    Y(neon) Y(neon_inorder) Y(neon_dot) Y(neon_fp16) Y(neon_inorder_fp16) Y(neon_i8mm) Y(avx2) Y(avx512) Y(avx512_vnni)

#endif
