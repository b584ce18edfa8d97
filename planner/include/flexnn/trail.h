/* A trail (flexnn/graph/sizes.py): operations on numbers and conditions, done again for other numbers. */
#ifndef FLEXNN_TRAIL_H
#define FLEXNN_TRAIL_H

#include "flexnn/ops.h"

/* Functions of two numbers; those of one ignore the second. Conditions take the last three. */
#define FX_TRAIL_FUNCTIONS(F)                                                                                          \
    F(ADD, "add")                                                                                                      \
    F(SUB, "sub")                                                                                                      \
    F(MUL, "mul")                                                                                                      \
    F(FLOORDIV, "floordiv") /* of integers, as mod */                                                                  \
    F(MOD, "mod")                                                                                                      \
    F(TRUEDIV, "truediv")                                                                                              \
    F(FLOOR, "floor") /* of a float, as ceil */                                                                        \
    F(CEIL, "ceil")                                                                                                    \
    F(SINGLE, "single") /* a float that float32 holds */                                                               \
    F(BELOW, "below")   /* 1 where the first is less, else 0 */                                                        \
    F(EQ, "eq")                                                                                                        \
    F(LT, "lt")                                                                                                        \
    F(LE, "le")

#define FX_TRAIL_FUNCTION_NUMBER(name, text) FX_TRAIL_##name,
typedef enum fx_trail_function {
    FX_TRAIL_FUNCTIONS(FX_TRAIL_FUNCTION_NUMBER) FX_TRAIL_FUNCTION_COUNT
} fx_trail_function;

/* Beside the function: which operands are floats. Numbers are 64 bits: integers, or the bits of a double. */
#define FX_TRAIL_FLOAT_A 0x100
#define FX_TRAIL_FLOAT_B 0x200
#define FX_TRAIL_ROW 4

typedef struct fx_trail {
    const int32_t *operations; /* rows: function, operands, result; the last three are indices of values */
    int64_t operation_count;
    const int32_t *conditions; /* rows: function, operands, outcome (0 or 1) */
    int64_t condition_count;
    int64_t value_count;
} fx_trail;

/* Name of a function; NULL: there is none. */
const char *fx_trail_function_name(int function);

/* Does the operations in order on `values`, which holds the numbers that are given and the constants, and looks at the
 * conditions. `holds`: whether each has its outcome; false also where a result is not exact in 64 bits, or a divisor is
 * 0. FX_ERR_PARAMS: a function or an index is out of range. */
fx_status fx_trail_replay(const fx_trail *trail, int64_t *values, int *holds);

/* Tensors whose sizes are values: `rank` indices for each of shape and strides. An index of -1 stands for a 1. */
typedef struct fx_extents {
    const int32_t *shapes, *strides;
    const int32_t *offsets; /* of its first element in its root */
    const int32_t *roots;   /* tensor that owns its storage, perhaps itself */
    const int64_t *widths;  /* bytes of an element */
    int64_t count, rank, value_count;
} fx_extents;

/* Writes the bytes of each tensor, and bytes from the start of its root's storage to it. `holds`: whether these are
 * sizes of tensors, none of which reaches outside its root. FX_ERR_PARAMS: an index is out of range. */
fx_status fx_trail_extents(const fx_extents *extents, const int64_t *values, int64_t *nbytes, int64_t *starts,
                           int *holds);

/* What tells a graph's tensors by those of another one (flexnn/graph/like_template.py). ports: tensors of the other
 * that own their storage here; order: the tensor of this graph for each of the other's; also: further ones of this
 * graph. */
typedef struct fx_told {
    fx_extents extents;    /* widths are not looked at */
    const int32_t *floats; /* values that are no sizes */
    int64_t float_count;
    const int64_t *order, *also;
    int64_t order_count, also_count;
    const int32_t *ports;
    int64_t port_count;
} fx_told;

/* FX_ERR_PARAMS: an index is out of range, a size is a float, or a root or a port does not own its storage.
 * FX_ERR_MEMORY. */
fx_status fx_told_check(const fx_told *told);

/* Parameters of nodes that are values: word columns[i] of row rows[i] is the value at indices[i]. */
typedef struct fx_trail_words {
    const int32_t *rows, *columns, *indices;
    int64_t count;
    int64_t row_count, row_words, value_count;
} fx_trail_words;

/* Writes such parameters into rows of `row_words`; params NULL: writes nothing. `holds`: whether 32 bits hold each; if
 * not, some may be written. FX_ERR_PARAMS: a row, column or index is out of range. */
fx_status fx_trail_params(const fx_trail_words *words, const int64_t *values, int32_t *params, int *holds);

/* Tensors that become parts of `group_count` new ones behind all `count`: members up to ends[0] lie in the first, each
 * from a line of its own on, those up to ends[1] in the second. parts: tensors that lie in a member, and that member.
 */
typedef struct fx_packed {
    const int32_t *members, *ends, *parts;
    int64_t member_count, group_count, part_count, count;
} fx_packed;

/* Changes and adds to bytes and starts as fx_trail_extents writes them for `count` tensors; there is room for
 * `group_count` more. FX_ERR_PARAMS: an index is out of range. */
fx_status fx_trail_pack(const fx_packed *packed, int64_t *nbytes, int64_t *starts);

#endif
