/* Parameters of the operators whose maps may hold numbers of 16 bits. Part of the lists of params.h. */
#ifndef FLEXNN_PARAMS_F16_H
#define FLEXNN_PARAMS_F16_H

/* clang-format off */

/* What the operator without _f16 computes, of the same fields; f16: bit o says that operand o (FX_F16_OUTPUT: the
 * output) holds IEEE binary16, the others float32. Strides count elements. Sums are float32, and are rounded once, when
 * they are stored. A finite number from 65,520 on, which would become infinite, fails the run. */
#define FX_CONV_F16_FIELDS(I, F) FX_CONV_FIELDS(I, F) I(f16)
#define FX_DWCONV_F16_FIELDS(I, F) FX_DWCONV_FIELDS(I, F) I(f16)
#define FX_POOL_F16_FIELDS(I, F) FX_POOL_FIELDS(I, F) I(f16)
#define FX_RESIZE_F16_FIELDS(I, F) FX_RESIZE_FIELDS(I, F) I(f16)
#define FX_REDUCE_F16_FIELDS(I, F) FX_REDUCE_FIELDS(I, F) I(f16)
#define FX_UNARY_F16_FIELDS(I, F) FX_UNARY_FIELDS(I, F) I(f16)
#define FX_BINARY_F16_FIELDS(I, F) FX_BINARY_FIELDS(I, F) I(f16)

/* clang-format on */

#define FX_F16_OUTPUT 2 /* number of the output's bit */

/* One line per operator, as FX_OPS has them. */
#define FX_OPS_F16(X)                                                                                                  \
    X(CONV_F16, conv_f16, 2, 1)                                                                                        \
    X(DWCONV_F16, dwconv_f16, 2, 1)                                                                                    \
    X(POOL_F16, pool_f16, 1, 0)                                                                                        \
    X(UNARY_F16, unary_f16, 1, 0)                                                                                      \
    X(BINARY_F16, binary_f16, 2, 0)                                                                                    \
    X(RESIZE_F16, resize_f16, 1, 0)                                                                                    \
    X(REDUCE_F16, reduce_f16, 1, 0)

#endif
