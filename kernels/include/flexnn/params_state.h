/* Parameters of the operators over state, which a session keeps from run to run (params.h explains the lists). */
#ifndef FLEXNN_PARAMS_STATE_H
#define FLEXNN_PARAMS_STATE_H

/* clang-format off */

/* Attention over state: keys and values of tokens that earlier runs appended lie in state[2][groups][capacity][d] of
 * dtype F16, F32 or I8 (rows of bytes: rows.h), keys first. The int64 length says how many rows are there before the
 * run; it and m are together at most capacity, or the run fails.
 *
 * STATE_APPEND: state = rows [length, length + m) of each group replaced by k[g,i] and v[g,i]; all else stays.
 * STATE_ATTENTION: y[i,h] = softmax over j <= length + i of the score of q[h,i] and key j, times value j, where the
 * score is s = scale q . k, and softcap tanh(s / softcap) where that is not 0. window: only the last `window` keys count
 * (0: all). in[3][heads] (has_sinks): a score more for each head, whose value is 0. Or in[3][heads][capacity]
 * (has_bias): what is added to scores, by how far a key is before the query, from capacity - 1 down to 0. is_whole: the
 * queries' own keys are not among those in state, and all of the first `length` keys, which are one at least, count.
 * Strides of head and token. */
#define FX_STATE_APPEND_FIELDS(I, F)                                                                                  \
    I(dtype) I(groups) I(capacity) I(m) I(d) I(k_sh) I(k_st) I(v_sh) I(v_st)
#define FX_STATE_ATTENTION_FIELDS(I, F)                                                                               \
    I(dtype) I(heads) I(groups) I(capacity) I(m) I(d) I(q_sh) I(q_st) I(y_sh) I(y_st) I(window) I(has_sinks) I(has_bias) \
    I(is_whole) F(scale) F(softcap)

/* In FX_OPS. */
#define FX_OPS_STATE(X)                                                                                               \
    X(STATE_APPEND, state_append, 3, 0)                                                                               \
    X(STATE_ATTENTION, state_attention, 4, 0)

/* clang-format on */

#endif
