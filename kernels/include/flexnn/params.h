/* Parameters of every operator, each list declared once.
 *
 * An operator's parameters are a struct of 4-byte fields: I(name) is an int32_t, F(name) a float. The same list makes
 * the C struct, and the table of field names from which Python encodes a node (flexnn/graph/operators), so the two
 * cannot disagree. Sizes are in elements unless the name says otherwise; strides are in elements of the operand. */
#ifndef FLEXNN_PARAMS_H
#define FLEXNN_PARAMS_H

#include <stdint.h>

#include "flexnn/params_bytes.h"
#include "flexnn/params_classic.h"
#include "flexnn/params_f16.h"
#include "flexnn/params_resize.h"
#include "flexnn/params_state.h"

#define FX_DIMS 6         /* most dimensions a strided operator walks, after collapsing */
#define FX_PARAM_WORDS 48 /* words of the largest parameter struct */
#define FX_RANK_MAX 8     /* most dimensions of a tensor */

#define FX_I6(I, n) I(n##0) I(n##1) I(n##2) I(n##3) I(n##4) I(n##5)

/* clang-format off */

/* x[n,h,w,cin] * panels -> y[n,oh,ow,cout] (+ r of y's shape) -> act. A Gemm is a 1x1 convolution with h = rows, w = 1.
 * Panels: one for each nr output channels, [bias nr][slope nr if act is PRELU] floats, the scales and minima of the
 * form wtype (weight_form.h), then [block][tap][cin of block][nr] weights; a panel reads cin_panel input channels, in
 * blocks of cin_block (the last may be shorter). Dense: cin_panel = cin. Grouped: see fx_conv_panel_cin; narrow groups
 * have one block, whatever cin_block. x_sn, x_sh, x_sw: strides of batch, row, pixel (channel stride is 1); y_*, r_*
 * alike. tile_block: Winograd tiles transformed at once, chosen by the planner; 0 for other kernels.
 * sums: F32, or I32: y is int32, the exact sums of products of integers, which wrap. Then x holds integers of at most
 * 255 in size, the panels integers of at most 255 (128 of S8, whose scales are 1) and biases of 0. There are neither
 * residual nor activation, and no Winograd; narrow groups have at most fx_exact_terms products a sum. Or I8: y is
 * float32, and rows of x are rounded to 8 bits (fx_rows_s8); one tap without pads, weights in blocks of FX_ROUNDED, of
 * which cin is a multiple, kernel DIRECT. */
#define FX_CONV_FIELDS(I, F)                                                                                          \
    I(n) I(h) I(w) I(cin) I(oh) I(ow) I(cout) I(kh) I(kw) I(sh) I(sw) I(dh) I(dw) I(pt) I(pl) I(group) I(cin_panel)   \
    I(cin_block) I(nr) I(x_sn) I(x_sh) I(x_sw) I(y_sn) I(y_sh) I(y_sw) I(has_residual) I(r_sn) I(r_sh) I(r_sw)        \
    I(act) F(alpha) F(beta) I(tile_block) I(wtype) I(sums)

/* Depthwise: cout = cin = c; panels as conv's, their weights [tap][nr]; sums as conv's of narrow groups. */
#define FX_DWCONV_FIELDS(I, F)                                                                                        \
    I(n) I(h) I(w) I(c) I(oh) I(ow) I(kh) I(kw) I(sh) I(sw) I(dh) I(dw) I(pt) I(pl) I(nr) I(x_sn) I(x_sh) I(x_sw)     \
    I(y_sn) I(y_sh) I(y_sw) I(has_residual) I(r_sn) I(r_sh) I(r_sw) I(act) F(alpha) F(beta) I(wtype) I(sums)

/* kind: fx_pool_kind. AVG divides by the elements inside the input, or, with count_include_pad, inside the input plus
 * its pads (pt, pl, pb, pr): a window that ceil_mode lets hang over that edge does not count the overhang. */
#define FX_POOL_FIELDS(I, F)                                                                                          \
    I(kind) I(n) I(h) I(w) I(c) I(oh) I(ow) I(kh) I(kw) I(sh) I(sw) I(dh) I(dw) I(pt) I(pl) I(pb) I(pr)               \
    I(count_include_pad) I(x_sn) I(x_sh) I(x_sw) I(y_sn) I(y_sh) I(y_sw)

/* y[d0..d5] = f(x). Strides may be anything for x (0 broadcasts); y's must not alias an element twice. */
#define FX_UNARY_FIELDS(I, F) I(kind) FX_I6(I, d) FX_I6(I, xs) FX_I6(I, ys) F(alpha) F(beta)

/* y = act(a op b), strides 0 where an operand is broadcast. */
#define FX_BINARY_FIELDS(I, F) I(kind) FX_I6(I, d) FX_I6(I, as) FX_I6(I, bs) FX_I6(I, ys) I(act) F(alpha) F(beta)

/* Over axis n of a contiguous [outer, n, inner]; log: LogSoftmax. y may be x. */
#define FX_SOFTMAX_FIELDS(I, F) I(outer) I(n) I(inner) I(log)

/* [outer, n, inner] -> [outer, inner], contiguous, of elements of dtype; kind: fx_reduce_kind. */
#define FX_REDUCE_FIELDS(I, F) I(kind) I(dtype) I(outer) I(n) I(inner)

/* Position (i64) of the largest, or with is_min smallest, of [outer, n, inner] of dtype along n -> [outer, inner],
 * contiguous. A NaN counts as the one that is sought. Of equal ones the first, or with is_last the last. */
#define FX_ARGMAX_FIELDS(I, F) I(dtype) I(outer) I(n) I(inner) I(is_min) I(is_last)

/* y[o,q,j] = sum, or with is_product product, of x[o,0..q,j], contiguous, of dtype; is_reverse: of x[o,q..n-1,j];
 * is_exclusive: without x[o,q,j]. Integers wrap. y may be x. */
#define FX_CUMULATE_FIELDS(I, F) I(dtype) I(outer) I(n) I(inner) I(is_product) I(is_exclusive) I(is_reverse)

/* Of [outer, rows, columns], contiguous, the elements with column - row >= k (is_upper) or <= k; zeros elsewhere. y
 * may be x. */
#define FX_TRILU_FIELDS(I, F) I(elem_bytes) I(outer) I(rows) I(columns) I(k) I(is_upper)

/* y[o,d,j] = in[1][1] where the index in[0][o,j] is d, or d - depth; else in[1][0]. Indices of index_bytes (4 or 8). */
#define FX_ONE_HOT_FIELDS(I, F) I(elem_bytes) I(index_bytes) I(outer) I(depth) I(inner)

/* count random numbers, as many as in[0] has elements (of elem_bytes; they are not read): y = shift + factor z, where z
 * has mean 0 and variance 1, or is_uniform: is 0 or more and below 1, and y stays below `end` if factor is above 0. Four
 * numbers come of each block of Philox4x32-10 (Salmon et al. 2011, "Parallel Random Numbers: As Easy as 1, 2, 3"): its
 * key is the seed, its counter the block's number and fx_call.draw, or, with is_seeded, 0. */
#define FX_NOISE_FIELDS(I, F)                                                                                         \
    I(is_uniform) I(elem_bytes) I(count) I(is_seeded) I(seed_lo) I(seed_hi) F(shift) F(factor) F(end)

/* Local response normalisation over the channels of rows x c; x_s, y_s: row (pixel) strides. */
#define FX_LRN_FIELDS(I, F) I(rows) I(c) I(size) I(x_s) I(y_s) F(alpha) F(beta) F(bias)

/* x[n, hw, c] contiguous, statistics over hw for each n and c; in[1] scale[c], in[2] bias[c]. */
#define FX_INSTANCE_NORM_FIELDS(I, F) I(n) I(hw) I(c) F(epsilon)

/* Moves elements of elem_bytes (1, 2, 4, 8): transpose, slice (x strides may be negative), expand (0), concat. */
#define FX_COPY_FIELDS(I, F) I(elem_bytes) FX_I6(I, d) FX_I6(I, xs) FX_I6(I, ys)

/* y[d0..d5] from x[xd0..xd5]: y index - b (before) is the x index; outside, mode says what. interior i puts i fill
 * elements between neighbours of x (CONSTANT only). value fills 4-byte elements unless value_int, the integer fill
 * (of other sizes its low bytes), is not 0. */
#define FX_PAD_FIELDS(I, F)                                                                                           \
    I(mode) I(elem_bytes) FX_I6(I, d) FX_I6(I, xd) FX_I6(I, b) FX_I6(I, interior) FX_I6(I, xs) FX_I6(I, ys) F(value)  \
    I(value_int)

/* data[outer, axis, inner] (contiguous), indices[count] of index_bytes (4 or 8), negative ones count from the end
 * -> y[outer, count, inner]. An index out of range fails the run. */
#define FX_GATHER_FIELDS(I, F) I(elem_bytes) I(index_bytes) I(outer) I(axis) I(inner) I(count)

/* Rows of a weight in panels of FX_NR rows, of form wtype (weight_form.h), [inner][FX_NR] weights each (contiguous, the
 * last panel filled up); indices[count] as GATHER's -> y[count, inner]. Biases are skipped. */
#define FX_GATHER_PANELS_FIELDS(I, F) I(index_bytes) I(rows) I(inner) I(count) I(wtype)

/* count contiguous elements; from, to: fx_dtype. */
#define FX_CAST_FIELDS(I, F) I(from) I(to) I(count)

/* Both operands computed: y[b0,b1,m,n] = a[b0,b1,m,k] b[b0,b1,k,n], any strides (batch stride 0 broadcasts). sums: as
 * conv's, of operands of at most 255 in size. */
#define FX_MATMUL_FIELDS(I, F)                                                                                        \
    I(b0) I(b1) I(m) I(n) I(k) I(a_s0) I(a_s1) I(a_sm) I(a_sk) I(b_s0) I(b_s1) I(b_sk) I(b_sn) I(y_s0) I(y_s1)        \
    I(y_sm) I(act) F(alpha) F(beta) I(sums)

/* Layer normalisation over rows of n: y = (x - mean) / sqrt(variance + epsilon) * in[1][n] (+ in[2][n]); is_rms: mean
 * 0, so the variance is the mean square. x_s, y_s: row strides. y may be x. */
#define FX_LAYER_NORM_FIELDS(I, F) I(rows) I(n) I(x_s) I(y_s) I(is_rms) I(has_bias) F(epsilon)

/* Attention: y[b,h,i] = softmax over j < n of (scale q[b,h,i] . k[b,g,j] + mask[b,h,i,j]) times v[b,g,j], where g = h /
 * (heads / groups): i < m queries, j < n keys, products over d, values of dv. Strides of batch, head and token; the
 * innermost is 1, of the mask (in[3]) 1 or 0; any of the mask's may be 0. is_causal: only keys j <= i + past count, and
 * with a window (0: none) the last `window` of these. softcap, where it is not 0: softcap tanh(scale q . k / softcap)
 * stands for scale q . k. */
#define FX_ATTENTION_FIELDS(I, F)                                                                                     \
    I(batch) I(heads) I(groups) I(m) I(n) I(d) I(dv) I(q_sb) I(q_sh) I(q_st) I(k_sb) I(k_sh) I(k_st) I(v_sb) I(v_sh)  \
    I(v_st) I(y_sb) I(y_sh) I(y_st) I(has_mask) I(mask_sb) I(mask_sh) I(mask_sm) I(mask_sn) I(is_causal) I(past)      \
    I(window) F(scale) F(softcap)

/* Rotary embedding of tokens' rows of d: of x[i] = a and x[turned / 2 + i] = b, i < turned / 2, y has a c[i] - b s[i]
 * and b c[second + i] + a s[second + i] in their places; is_interleaved: of x[2 i] and x[2 i + 1]. Elements from
 * `turned` on stay. in[1], in[2]: cosines c and sines s; second: 0, or turned / 2. Strides of batch, head and token; of
 * c and s they may be 0. y may be x. */
#define FX_ROTARY_FIELDS(I, F)                                                                                        \
    I(batch) I(heads) I(tokens) I(d) I(turned) I(second) I(is_interleaved) I(x_sb) I(x_sh) I(x_st) I(y_sb) I(y_sh)    \
    I(y_st) I(c_sb) I(c_sh) I(c_st)

/* kind: fx_pointwise_kind, of elements of dtype; strides 0 where an operand is broadcast, or not there. in[2]: WHERE's
 * condition, bool. */
#define FX_POINTWISE_FIELDS(I, F)                                                                                     \
    I(kind) I(dtype) FX_I6(I, d) FX_I6(I, as) FX_I6(I, bs) FX_I6(I, cs) FX_I6(I, ys)

/* kind: fx_cell_kind, over steps in order or in reverse, or with two directions both: the second in reverse. Rows are
 * those of the batch, of each direction. in[0] [steps,batch,directions*gates*hidden]: the input's part of the gates and
 * all biases (GRU_AFTER: but the last gate's recurrent one). in[1], for each direction: recurrent weights in panels
 * [hidden][FX_NR] of the gates' columns, the last panel filled up with zeros: of F32 these alone, of other forms stored
 * panels (weight_form.h) without bias; for GRUs the first two gates, then the third, then for GRU_AFTER its bias
 * [hidden]; for LSTMs with has_peepholes the input, output and forget gates' factors of cells [3*hidden]. has_lengths:
 * in[3] [batch], int32, steps of each row; y is 0 behind them, and in reverse a row begins at its last one. in[2]
 * [states,directions*batch,hidden]: initial hidden values (LSTM: and cells). y [steps+states,directions*batch,hidden]:
 * hidden values of all steps, then the last hidden values (and cells). Gates in ONNX's order. f_act (fx_unary_kind) of
 * the gates, g_act of new cells (GRU: hidden values), h_act of an LSTM's cells; an RNN has f_act alone. What f_act and
 * g_act take is kept in [-clip, clip] if clip is not 0. is_coupled: an LSTM's forget gate is 1 less its input gate. */
#define FX_RECURRENT_FIELDS(I, F)                                                                                      \
    I(kind) I(steps) I(batch) I(hidden) I(directions) I(is_reverse) I(has_lengths) I(has_peepholes) I(wtype) I(f_act)  \
    I(g_act) I(h_act) I(is_coupled) F(f_alpha) F(f_beta) F(g_alpha) F(g_beta) F(h_alpha) F(h_beta) F(clip)

/* Fourier transforms of length n: x[outer,samples,inner,x_parts], of which frame f < frames begins at sample f * hop, is
 * cut to n or filled up with zeros, and is multiplied by in[2][n] (has_window), to the first bins of
 * y[outer,frames,bins,inner,y_parts]; 1 part is real. inverse: back, divided by n; y_parts 1: from the first half of a
 * spectrum to a real signal. in[1]: cosines and sines of -2 pi i / size, i < size, where size is n and has no large
 * primes; else size >= 2 n - 1, and behind them the chirp and its spectrum (kernels/ops/fourier.c). */
#define FX_FOURIER_FIELDS(I, F)                                                                                       \
    I(outer) I(samples) I(inner) I(frames) I(hop) I(n) I(size) I(bins) I(x_parts) I(y_parts) I(inverse) I(has_window)

/* Elements by index.
 *
 * GATHER_AT: y = rows of `inner` neighbours of x that in[1] names by `depth` (at most 6) indices each, of index_bytes
 * (4 or 8); negative ones count from the end. Row (r0 .. r5) of the box d begins at x's element
 * sum r_i * xs_i + sum index_k * ns_k, index_k < n_k. Indices and y are contiguous. An index out of range fails the run.
 * SCATTER_AT: y = x [total], contiguous, in which the rows of in[2], named by in[1] alike, replace what is there or
 * are combined with it, in the order of the indices; kind: fx_scatter_kind. y may be x. */
#define FX_GATHER_AT_FIELDS(I, F)                                                                                     \
    I(elem_bytes) I(index_bytes) I(depth) I(inner) FX_I6(I, d) FX_I6(I, xs) FX_I6(I, n) FX_I6(I, ns)
#define FX_SCATTER_AT_FIELDS(I, F)                                                                                    \
    I(kind) I(dtype) I(total) I(index_bytes) I(depth) I(inner) FX_I6(I, d) FX_I6(I, xs) FX_I6(I, n) FX_I6(I, ns)

/* x[outer, n, inner], contiguous -> int64 [outer, k, inner]: indices of the k largest or smallest, in order; of equal
 * ones the lower index first. NaN is larger than every number. Not of F16. */
#define FX_TOP_K_FIELDS(I, F) I(dtype) I(outer) I(n) I(inner) I(k) I(is_largest)

/* x[n] -> int64: how many elements are not zero. */
#define FX_COUNT_NONZERO_FIELDS(I, F) I(dtype) I(n)

/* x[d0 .. d7] (1 from `rank` on), contiguous -> int64 [rank, count]: indices of the elements that are not zero. Their
 * number is `count`, or the run fails. */
#define FX_NONZERO_FIELDS(I, F) I(dtype) I(rank) I(count) FX_I6(I, d) I(d6) I(d7)

/* x[n, inner], contiguous -> int64 [n + 1]: the number of each row's group of equal rows, then how many groups there
 * are. is_sorted: groups are numbered in the order of their rows; else of their first rows. NaNs are equal. Not of F16. */
#define FX_UNIQUE_FIELDS(I, F) I(dtype) I(n) I(inner) I(is_sorted)

/* int64 x[n], numbers of groups -> int64 [groups]: of each group the first that has its number, or how many do; kind:
 * fx_tally_kind. A number out of range, or a group without members, fails the run. */
#define FX_TALLY_FIELDS(I, F) I(kind) I(n) I(groups)

/* boxes[batch, boxes, 4], scores[batch, classes, boxes], in[2] the most that boxes of a class may overlap, in[3] what
 * scores must be above (has_score) -> int64 [batch * classes * most + 1, 3]: (batch, class, box) of those selected, at
 * most `most` of a class; the last row begins with how many they are, and rows before it are not written.
 * is_centered: boxes are (x, y, width, height), else two corners (y, x). */
#define FX_NMS_FIELDS(I, F) I(batch) I(classes) I(boxes) I(most) I(is_centered) I(has_score)

/* x[n,h,w,c] read at grid[n,oh,ow,2] of places (x, y) between -1 and 1: the centres of the outermost pixels
 * (is_aligned) or their outer edges -> y[n,oh,ow,c]; all contiguous. mode: fx_resize_mode; border: fx_border. */
#define FX_GRID_SAMPLE_FIELDS(I, F) I(mode) I(border) I(is_aligned) I(n) I(h) I(w) I(c) I(oh) I(ow)

/* x[n,h,w,c], in[1] [regions, 4] corners (x, y, x, y), in[2] [regions] the picture of each, int64 -> y[regions,oh,ow,c],
 * contiguous. Each cell is read at `ratio` places along either side (0: as many as its length). is_half: pixels are
 * half a step from their corners. A picture out of range fails the run. */
#define FX_ROI_ALIGN_FIELDS(I, F)                                                                                     \
    I(is_max) I(is_half) I(ratio) F(scale) I(n) I(h) I(w) I(c) I(regions) I(oh) I(ow)

/* clang-format on */

/* One line per operator: X(NAME, name, number of inputs at most, takes a panel weight). */
#define FX_OPS(X)                                                                                                      \
    X(CONV, conv, 2, 1)                                                                                                \
    X(DWCONV, dwconv, 2, 1)                                                                                            \
    X(POOL, pool, 1, 0)                                                                                                \
    X(UNARY, unary, 1, 0)                                                                                              \
    X(BINARY, binary, 2, 0)                                                                                            \
    X(SOFTMAX, softmax, 1, 0)                                                                                          \
    X(REDUCE, reduce, 1, 0)                                                                                            \
    X(LRN, lrn, 1, 0)                                                                                                  \
    X(INSTANCE_NORM, instance_norm, 3, 0)                                                                              \
    X(RESIZE, resize, 1, 0)                                                                                            \
    X(COPY, copy, 1, 0)                                                                                                \
    X(PAD, pad, 1, 0)                                                                                                  \
    X(GATHER, gather, 2, 0)                                                                                            \
    X(CAST, cast, 1, 0)                                                                                                \
    X(MATMUL, matmul, 2, 0)                                                                                            \
    X(LAYER_NORM, layer_norm, 3, 0)                                                                                    \
    X(ATTENTION, attention, 4, 0)                                                                                      \
    X(POINTWISE, pointwise, 3, 0)                                                                                      \
    X(RECURRENT, recurrent, 4, 0)                                                                                      \
    X(QUANTIZE, quantize, 4, 0)                                                                                        \
    X(ROTARY, rotary, 3, 0)                                                                                            \
    X(GATHER_AT, gather_at, 2, 0)                                                                                      \
    X(SCATTER_AT, scatter_at, 3, 0)                                                                                    \
    X(TOP_K, top_k, 1, 0)                                                                                              \
    X(COUNT_NONZERO, count_nonzero, 1, 0)                                                                              \
    X(NONZERO, nonzero, 1, 0)                                                                                          \
    X(UNIQUE, unique, 1, 0)                                                                                            \
    X(TALLY, tally, 1, 0)                                                                                              \
    X(NMS, nms, 4, 0)                                                                                                  \
    X(GRID_SAMPLE, grid_sample, 2, 0)                                                                                  \
    X(ROI_ALIGN, roi_align, 3, 0)                                                                                      \
    X(ARGMAX, argmax, 1, 0)                                                                                            \
    X(CUMULATE, cumulate, 1, 0)                                                                                        \
    X(TRILU, trilu, 1, 0)                                                                                              \
    X(ONE_HOT, one_hot, 2, 0)                                                                                          \
    X(TREES, trees, 2, 0)                                                                                              \
    X(FOURIER, fourier, 3, 0)                                                                                          \
    X(GATHER_PANELS, gather_panels, 2, 0)                                                                              \
    X(RESAMPLE, resample, 1, 0)                                                                                        \
    FX_OPS_STATE(X)                                                                                                    \
    FX_OPS_BYTES(X)                                                                                                    \
    FX_OPS_F16(X) X(DEPTH_TO_SPACE, depth_to_space, 1, 0) X(NOISE, noise, 1, 0) X(COUPLE, couple, 1, 0)

#define FX_FIELD_I(n) int32_t n;
#define FX_FIELD_F(n) float n;
#define FX_STRUCT(NAME, name, inputs, panels)                                                                          \
    typedef struct fx_##name##_params {                                                                                \
        FX_##NAME##_FIELDS(FX_FIELD_I, FX_FIELD_F)                                                                     \
    } fx_##name##_params;
FX_OPS(FX_STRUCT)
#undef FX_STRUCT

typedef union fx_params {
#define FX_MEMBER(NAME, name, inputs, panels) fx_##name##_params name;
    FX_OPS(FX_MEMBER)
#undef FX_MEMBER
    int32_t words[FX_PARAM_WORDS];
} fx_params;

typedef enum fx_op {
#define FX_ENUM(NAME, name, inputs, panels) FX_OP_##NAME,
    FX_OPS(FX_ENUM)
#undef FX_ENUM
        FX_OP_COUNT
} fx_op;

/* Enumerations: each list declared once, X(ENUM, NAME, name); fx_enum_name gives the names to Python. */

/* Kernels that compute a convolution.
 * DIRECT: implicit GEMM, pointers made per tile, no workspace. IM2COL: implicit GEMM over rows gathered per tile, for
 * few input channels. WINO2, WINO4: Winograd F(2x2, 3x3) and F(4x4, 3x3), raw weights transformed in cache. WINO_LINE:
 * F(4, r), r = 3, 5, 7, of taps in a line. PLANAR: few output channels. HALF: sums of halves, of CONV_F16. */
#define FX_CONV_KERNELS(X, E)                                                                                          \
    X(E, DIRECT, direct)                                                                                               \
    X(E, IM2COL, im2col)                                                                                               \
    X(E, WINO2, wino2) X(E, WINO4, wino4) X(E, WINO_LINE, wino_line) X(E, PLANAR, planar) X(E, HALF, half)

/* act(v) with alpha, beta.
 * CLIP: min(max(v, alpha), beta). LEAKY_RELU: v < 0 ? alpha v : v. PRELU: as LEAKY_RELU with one slope for each
 * channel, in the panel; convolutions only. HARDSIGMOID: max(0, min(1, alpha v + beta)). HARDSWISH: v max(0, min(1, v/6
 * + 1/2)). SILU: v sigmoid(v). GELU by erf, GELU_TANH by tanh. */
#define FX_ACTS(X, E)                                                                                                  \
    X(E, NONE, none)                                                                                                   \
    X(E, RELU, relu)                                                                                                   \
    X(E, CLIP, clip)                                                                                                   \
    X(E, LEAKY_RELU, leaky_relu)                                                                                       \
    X(E, PRELU, prelu)                                                                                                 \
    X(E, SIGMOID, sigmoid)                                                                                             \
    X(E, HARDSIGMOID, hardsigmoid)                                                                                     \
    X(E, HARDSWISH, hardswish)                                                                                         \
    X(E, SILU, silu)                                                                                                   \
    X(E, TANH, tanh)                                                                                                   \
    X(E, GELU, gelu)                                                                                                   \
    X(E, GELU_TANH, gelu_tanh)

/* Unary kinds: the activations by their own numbers (PRELU excepted), then these. ROUND is half to even,
 * ELU, CELU and THRESHOLDED_RELU take alpha, SELU alpha and beta (ONNX's gamma). */
#define FX_UNARIES(X, E)                                                                                               \
    FX_ACTS(X, E)                                                                                                      \
    X(E, EXP, exp)                                                                                                     \
    X(E, LOG, log)                                                                                                     \
    X(E, SQRT, sqrt)                                                                                                   \
    X(E, RECIPROCAL, reciprocal)                                                                                       \
    X(E, ABS, abs)                                                                                                     \
    X(E, NEG, neg)                                                                                                     \
    X(E, FLOOR, floor)                                                                                                 \
    X(E, CEIL, ceil)                                                                                                   \
    X(E, ROUND, round)                                                                                                 \
    X(E, SIGN, sign)                                                                                                   \
    X(E, ERF, erf)                                                                                                     \
    X(E, SOFTPLUS, softplus)                                                                                           \
    X(E, SOFTSIGN, softsign)                                                                                           \
    X(E, ELU, elu)                                                                                                     \
    X(E, SELU, selu)                                                                                                   \
    X(E, CELU, celu)                                                                                                   \
    X(E, MISH, mish)                                                                                                   \
    X(E, THRESHOLDED_RELU, thresholded_relu)                                                                           \
    X(E, SIN, sin)                                                                                                     \
    X(E, COS, cos)

/* PRELU: a < 0 ? a b : a. */
#define FX_BINARIES(X, E)                                                                                              \
    X(E, ADD, add)                                                                                                     \
    X(E, SUB, sub)                                                                                                     \
    X(E, MUL, mul)                                                                                                     \
    X(E, DIV, div) X(E, MAX, max) X(E, MIN, min) X(E, POW, pow) X(E, PRELU, prelu)

/* Functions of three, two or one operands, for any dtype but F16 (WHERE: any).
 * WHERE: c ? a : b. EQUAL to LESS_EQUAL, and IS_NAN to IS_INF_BELOW of floats: bool. AND to NOT: bits of integers, of
 * bool its logic; a shift by more bits than there are leaves none. ADD to SIGN: integers wrap; their quotients are
 * towards zero, by zero 0. MOD has the sign of b, FMOD of a. MAX and MIN of NaN are NaN. FLOOR and all behind it: of
 * floats. */
#define FX_POINTWISES(X, E)                                                                                            \
    X(E, WHERE, where)                                                                                                 \
    X(E, EQUAL, equal)                                                                                                 \
    X(E, LESS, less)                                                                                                   \
    X(E, LESS_EQUAL, less_equal)                                                                                       \
    X(E, IS_NAN, is_nan)                                                                                               \
    X(E, IS_INF, is_inf)                                                                                               \
    X(E, IS_INF_ABOVE, is_inf_above)                                                                                   \
    X(E, IS_INF_BELOW, is_inf_below)                                                                                   \
    X(E, AND, and)                                                                                                     \
    X(E, OR, or)                                                                                                       \
    X(E, XOR, xor)                                                                                                     \
    X(E, SHIFT_LEFT, shift_left)                                                                                       \
    X(E, SHIFT_RIGHT, shift_right)                                                                                     \
    X(E, NOT, not)                                                                                                     \
    X(E, ADD, add)                                                                                                     \
    X(E, SUB, sub)                                                                                                     \
    X(E, MUL, mul)                                                                                                     \
    X(E, DIV, div)                                                                                                     \
    X(E, MOD, mod)                                                                                                     \
    X(E, FMOD, fmod)                                                                                                   \
    X(E, POW, pow)                                                                                                     \
    X(E, MAX, max)                                                                                                     \
    X(E, MIN, min)                                                                                                     \
    X(E, NEG, neg)                                                                                                     \
    X(E, ABS, abs)                                                                                                     \
    X(E, SIGN, sign)                                                                                                   \
    X(E, FLOOR, floor)                                                                                                 \
    X(E, CEIL, ceil)                                                                                                   \
    X(E, ROUND, round)                                                                                                 \
    X(E, SQRT, sqrt)                                                                                                   \
    X(E, RECIPROCAL, reciprocal)                                                                                       \
    X(E, EXP, exp)                                                                                                     \
    X(E, LOG, log)                                                                                                     \
    X(E, SIN, sin)                                                                                                     \
    X(E, COS, cos)                                                                                                     \
    X(E, TAN, tan)                                                                                                     \
    X(E, ASIN, asin)                                                                                                   \
    X(E, ACOS, acos)                                                                                                   \
    X(E, ATAN, atan)                                                                                                   \
    X(E, SINH, sinh)                                                                                                   \
    X(E, COSH, cosh)                                                                                                   \
    X(E, TANH, tanh)                                                                                                   \
    X(E, ASINH, asinh)                                                                                                 \
    X(E, ACOSH, acosh)                                                                                                 \
    X(E, ATANH, atanh)                                                                                                 \
    X(E, ERF, erf)                                                                                                     \
    X(E, SIGMOID, sigmoid)                                                                                             \
    X(E, SOFTPLUS, softplus)

/* GRU_AFTER multiplies by the reset gate after the weights (linear_before_reset), GRU before. LSTM_QUANTISED rounds the
 * hidden values of all rows to 8 bits before each product, as DynamicQuantizeLinear does it. */
#define FX_CELLS(X, E)                                                                                                 \
    X(E, RNN, rnn) X(E, GRU, gru) X(E, GRU_AFTER, gru_after) X(E, LSTM, lstm) X(E, LSTM_QUANTISED, lstm_quantised)

#define FX_REDUCES(X, E)                                                                                               \
    X(E, SUM, sum)                                                                                                     \
    X(E, MEAN, mean)                                                                                                   \
    X(E, MAX, max)                                                                                                     \
    X(E, MIN, min)                                                                                                     \
    X(E, PROD, prod)                                                                                                   \
    X(E, L1, l1)                                                                                                       \
    X(E, L2, l2)                                                                                                       \
    X(E, SUM_SQUARE, sum_square) X(E, LOG_SUM, log_sum) X(E, LOG_SUM_EXP, log_sum_exp)

#define FX_POOLS(X, E) X(E, MAX, max) X(E, AVG, avg)
#define FX_PADS(X, E) X(E, CONSTANT, constant) X(E, REFLECT, reflect) X(E, EDGE, edge)
#define FX_RESIZES(X, E) X(E, NEAREST, nearest) X(E, LINEAR, linear)

/* ONNX Resize's coordinate_transformation_mode and nearest_mode. */
#define FX_COORDS(X, E)                                                                                                \
    X(E, HALF_PIXEL, half_pixel)                                                                                       \
    X(E, PYTORCH_HALF_PIXEL, pytorch_half_pixel)                                                                       \
    X(E, ALIGN_CORNERS, align_corners)                                                                                 \
    X(E, ASYMMETRIC, asymmetric)                                                                                       \
    X(E, HALF_PIXEL_SYMMETRIC, half_pixel_symmetric)
#define FX_NEARESTS(X, E)                                                                                              \
    X(E, ROUND_PREFER_FLOOR, round_prefer_floor)                                                                       \
    X(E, ROUND_PREFER_CEIL, round_prefer_ceil) X(E, FLOOR, floor) X(E, CEIL, ceil)

#define FX_DTYPES(X, E)                                                                                                \
    X(E, F32, f32)                                                                                                     \
    X(E, I64, i64)                                                                                                     \
    X(E, I32, i32)                                                                                                     \
    X(E, BOOL, bool)                                                                                                   \
    X(E, U8, u8)                                                                                                       \
    X(E, I8, i8)                                                                                                       \
    X(E, F16, f16)                                                                                                     \
    X(E, F64, f64)                                                                                                     \
    X(E, U16, u16)                                                                                                     \
    X(E, I16, i16)                                                                                                     \
    X(E, U32, u32)                                                                                                     \
    X(E, U64, u64)

#define FX_SCATTERS(X, E) X(E, NONE, none) X(E, ADD, add) X(E, MUL, mul) X(E, MAX, max) X(E, MIN, min)
#define FX_BORDERS(X, E) X(E, ZEROS, zeros) X(E, BORDER, border) X(E, REFLECTION, reflection)
#define FX_TALLIES(X, E) X(E, FIRST, first) X(E, MEMBERS, members)
/* Forms of weights: weight_form.h has their fields. */
/* clang-format off */
#define FX_WTYPES(X, E)                                                                                                \
    X(E, F32, f32) X(E, F16, f16) X(E, S8, s8) X(E, S8B, s8b) X(E, S8BF, s8bf) X(E, Q4, q4) X(E, Q4F, q4f)             \
    X(E, Q4M, q4m) X(E, Q4MF, q4mf) X(E, S8B16F, s8b16f) X(E, S8MF, s8mf) X(E, Q5, q5) X(E, Q5M, q5m)                  \
    X(E, Q4K, q4k) X(E, Q5K, q5k) X(E, Q6K, q6k)
/* clang-format on */

/* Y(ENUM, enum, list): constants FX_<ENUM>_<NAME> and FX_<ENUM>_COUNT of type fx_<enum>. */
#define FX_ENUMS(Y)                                                                                                    \
    Y(CONV, conv_kernel, FX_CONV_KERNELS)                                                                              \
    Y(ACT, act, FX_ACTS)                                                                                               \
    Y(UNARY, unary_kind, FX_UNARIES)                                                                                   \
    Y(BINARY, binary_kind, FX_BINARIES)                                                                                \
    Y(POINTWISE, pointwise_kind, FX_POINTWISES)                                                                        \
    Y(CELL, cell_kind, FX_CELLS)                                                                                       \
    Y(REDUCE, reduce_kind, FX_REDUCES)                                                                                 \
    Y(POOL, pool_kind, FX_POOLS)                                                                                       \
    Y(PAD, pad_mode, FX_PADS)                                                                                          \
    Y(RESIZE, resize_mode, FX_RESIZES)                                                                                 \
    Y(COORD, resize_coord, FX_COORDS)                                                                                  \
    Y(NEAREST, resize_nearest, FX_NEARESTS)                                                                            \
    Y(DTYPE, dtype, FX_DTYPES)                                                                                         \
    Y(WTYPE, wtype, FX_WTYPES)                                                                                         \
    Y(FOREST, forest, FX_FORESTS)                                                                                      \
    Y(TRANSFORM, transform, FX_TRANSFORMS)                                                                             \
    Y(CLASS, classes, FX_CLASSES)                                                                                      \
    Y(SCATTER, scatter_kind, FX_SCATTERS)                                                                              \
    Y(TALLY, tally_kind, FX_TALLIES)                                                                                   \
    Y(BORDER, border, FX_BORDERS)

#define FX_CONSTANT(E, NAME, name) FX_##E##_##NAME,
#define FX_ENUMERATION(E, e, list) typedef enum fx_##e{list(FX_CONSTANT, E) FX_##E##_COUNT} fx_##e;
FX_ENUMS(FX_ENUMERATION)
#undef FX_ENUMERATION

#endif
