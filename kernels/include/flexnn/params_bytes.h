/* Parameters of the operators whose activations are 8 bits, u8 each (params.h explains the lists). An activation of
 * int8 is held as its bits with the highest one turned: its number and its zero point are then 128 larger.
 *
 * A sum or a number v in real arithmetic becomes a byte by `finishing`: zero + rint(min(max(v, lo), hi)), where rint
 * goes to the nearest whole number, to the even one of two, and lo and hi are relative to the zero point: at least
 * -zero, at most 255 - zero. A NaN becomes lo. All arithmetic is exact or rounded once for each step that stands here,
 * so every level computes the same bits. */
#ifndef FLEXNN_PARAMS_BYTES_H
#define FLEXNN_PARAMS_BYTES_H

/* clang-format off */

/* x[outer,n,inner] of type from to y of type to. From F32 to U8 or I8: y = saturate(round(x / scale) + zero). From U8,
 * I8 or I32 to F32: y = (x - zero) scale. From I32 to U8 or I8: y = saturate(round((x + bias) scale) + zero), where x +
 * bias wraps, and is rounded to F32. in[1]: scales[n]; in[2]: zero points[n] of the integers' type, or of y's where both
 * are integers; in[3]: biases[n], I32. is_measured (F32 to U8, n = 1): in[1] is what byte_steps leaves, no other is. x
 * is contiguous, and y where row is 0; else it is in rows of so many numbers, y_s from one to the next. */
#define FX_QUANTIZE_FIELDS(I, F)                                                                                      \
    I(from) I(to) I(outer) I(n) I(inner) I(has_zero) I(has_bias) I(is_measured) I(row) I(y_s)

/* Steps and zero point of the bytes that floats become, from the least and the most of them and 0: y[2] = {step = (most
 * - least) / 255, or 1 where that is 0 of zeros alone, as onnxruntime has it; rint(-least / step) as a float, 0 where
 * that is no number}, of x[outer * n], or with of_ranges of x[outer * n] pairs of a least and a most. to_ranges:
 * y[outer] such pairs, of x[outer, n], without 0. Contiguous. */
#define FX_BYTE_STEPS_FIELDS(I, F) I(outer) I(n) I(of_ranges) I(to_ranges)

/* x[n,h,w,cin] u8 * s8 panels -> y[n,oh,ow,cout] of type to, U8 or F32; dense, one group. A pixel outside the map counts
 * as x_zero. sum = bias + products, int32, which wraps; the bias has x_zero's share: -x_zero times the sum of weights.
 * U8: y = finish(sum scale) with zero, lo and hi. Where there is a residual r, u8 of y's shape, or with strides of 0 one
 * for each channel, that is not yet y: v = finish(...) - zero is rounded, and y = finish(fma(v, v_scale, (r - r_zero)
 * r_scale)) with sum_zero, sum_lo, sum_hi.
 * F32: y = min(max(sum scale + offset, lo), hi), the product rounded first; no residual. is_dynamic (F32): in[1] is a
 * step, f32, and in[2] x's zero point, u8, which only a run knows: the bias has no share of it, sum is less the zero
 * point times the sum of weights, and the scale is scale step. With 2 in[1] has both, as byte_steps leaves them, and
 * there may be a residual r, f32: y = min(max(v + r, sum_lo), sum_hi) of the v that y is without.
 * Panels (bytes_panel.h): [bias FX_NR int32][sums of weights FX_NR int32][scale FX_NR f32][F32: offset FX_NR f32], then
 * [run][four of it][FX_NR][4] weights. A run is the cin channels of a tap, or with is_by_rows the kw * cin channels of a
 * row of taps, whose dilation dw is 1; zeros fill it up to fours. x_sn, x_sh, x_sw: strides of batch, row, pixel (channel
 * stride is 1); y_*, r_* alike. */
#define FX_CONV_U8_FIELDS(I, F)                                                                                       \
    I(n) I(h) I(w) I(cin) I(oh) I(ow) I(cout) I(kh) I(kw) I(sh) I(sw) I(dh) I(dw) I(pt) I(pl) I(nr)                   \
    I(x_sn) I(x_sh) I(x_sw) I(y_sn) I(y_sh) I(y_sw) I(r_sn) I(r_sh) I(r_sw) I(is_by_rows)                             \
    I(is_dynamic) I(x_zero) I(to) I(zero) F(lo) F(hi) I(has_residual) I(r_zero) F(v_scale) F(r_scale) I(sum_zero)     \
    F(sum_lo) F(sum_hi)

/* Depthwise: cout = cin = c. Weights of a panel: [kx][four of ky][FX_NR][4], zeros fill up the fours. The rest as
 * conv_u8's, but a residual of f32. */
#define FX_DWCONV_U8_FIELDS(I, F)                                                                                     \
    I(n) I(h) I(w) I(c) I(oh) I(ow) I(kh) I(kw) I(sh) I(sw) I(dh) I(dw) I(pt) I(pl) I(nr)                             \
    I(x_sn) I(x_sh) I(x_sw) I(y_sn) I(y_sh) I(y_sw) I(r_sn) I(r_sh) I(r_sw) I(is_dynamic)                             \
    I(x_zero) I(to) I(zero) F(lo) F(hi) I(has_residual) I(r_zero) F(v_scale) F(r_scale) I(sum_zero) F(sum_lo) F(sum_hi)

/* y[d0..d5] = f(a, b), bytes, strides 0 where an operand is broadcast; kind: fx_binary_kind. ADD: finish(fma(a - a_zero,
 * a_scale, (b - b_zero) b_scale)); MUL: finish((a - a_zero) (b - b_zero) a_scale), whose first product is an integer. */
#define FX_BINARY_U8_FIELDS(I, F)                                                                                     \
    I(kind) FX_I6(I, d) FX_I6(I, as) FX_I6(I, bs) FX_I6(I, ys) I(a_zero) I(b_zero) F(a_scale) F(b_scale) I(zero)      \
    F(lo) F(hi)

/* y[d0..d5] = in[1][x], of bytes; in[1]: 256 elements of elem_bytes, 1 or 4. */
#define FX_TABLE_U8_FIELDS(I, F) I(elem_bytes) FX_I6(I, d) FX_I6(I, xs) FX_I6(I, ys)

/* MAX: the largest byte. AVG: finish((sum - inside x_zero) (scale / count)), where `inside` elements are inside the map,
 * and count is what pool divides by. A window of padding alone becomes `zero`. */
#define FX_POOL_U8_FIELDS(I, F)                                                                                       \
    I(kind) I(n) I(h) I(w) I(c) I(oh) I(ow) I(kh) I(kw) I(sh) I(sw) I(dh) I(dw) I(pt) I(pl) I(pb) I(pr)               \
    I(count_include_pad) I(x_sn) I(x_sh) I(x_sw) I(y_sn) I(y_sh) I(y_sw) I(x_zero) F(scale) I(zero) F(lo) F(hi)

/* resize of bytes, which keep scale and zero point; LINEAR: the floats of the four neighbours a b above c d become
 * rint(fma(q - p, fraction of rows, p)) of p = fma(b - a, fraction of columns, a) and q alike. */
#define FX_RESIZE_U8_FIELDS(I, F) FX_RESIZE_FIELDS(I, F)

/* Both operands computed: the sums of (a[b0,b1,m,k] - a_zero) (b[b0,b1,k,n] - b_zero), int32, any strides. U8: y =
 * finish(sum scale); F32: y = min(max(sum scale, lo), hi). */
#define FX_MATMUL_U8_FIELDS(I, F)                                                                                     \
    I(b0) I(b1) I(m) I(n) I(k) I(a_s0) I(a_s1) I(a_sm) I(a_sk) I(b_s0) I(b_s1) I(b_sk) I(b_sn) I(y_s0) I(y_s1)        \
    I(y_sm) I(a_zero) I(b_zero) F(scale) I(to) I(zero) F(lo) F(hi)

/* Rows of n bytes, x_s and y_s apart, through floats: v = (x - x_zero) x_scale, then layer_norm by in[1], and in[2] with
 * has_bias, or with is_softmax softmax, as these are of one row at the same level, then y = saturate(round(v / scale) +
 * zero): the bytes of quantize, these, and quantize. */
#define FX_ROWS_U8_FIELDS(I, F)                                                                                       \
    I(rows) I(n) I(x_s) I(y_s) I(is_softmax) I(is_rms) I(has_bias) F(epsilon) I(x_zero) F(x_scale) I(zero) F(scale)

/* clang-format on */

/* One line per operator, as FX_OPS has them. */
#define FX_OPS_BYTES(X)                                                                                                \
    X(CONV_U8, conv_u8, 3, 1)                                                                                          \
    X(DWCONV_U8, dwconv_u8, 3, 1)                                                                                      \
    X(BINARY_U8, binary_u8, 2, 0)                                                                                      \
    X(TABLE_U8, table_u8, 2, 0)                                                                                        \
    X(POOL_U8, pool_u8, 1, 0)                                                                                          \
    X(RESIZE_U8, resize_u8, 1, 0)                                                                                      \
    X(MATMUL_U8, matmul_u8, 2, 0)                                                                                      \
    X(BYTE_STEPS, byte_steps, 1, 0)                                                                                    \
    X(ROWS_U8, rows_u8, 3, 0)

#endif
