# flexnn/trail.h.
from libc.stdint cimport int32_t, int64_t

from flexnn._core.c_ops cimport fx_status

cdef extern from "flexnn/trail.h" nogil:
    const int FX_TRAIL_FLOAT_A
    const int FX_TRAIL_FLOAT_B
    const int FX_TRAIL_ROW

    ctypedef struct fx_trail:
        const int32_t *operations
        int64_t operation_count
        const int32_t *conditions
        int64_t condition_count
        int64_t value_count

    const char *fx_trail_function_name(int function)
    fx_status fx_trail_replay(const fx_trail *trail, int64_t *values, int *holds)

    ctypedef struct fx_extents:
        const int32_t *shapes
        const int32_t *strides
        const int32_t *offsets
        const int32_t *roots
        const int64_t *widths
        int64_t count
        int64_t rank
        int64_t value_count

    fx_status fx_trail_extents(const fx_extents *extents, const int64_t *values, int64_t *nbytes, int64_t *starts,
                               int *holds)

    ctypedef struct fx_trail_words:
        const int32_t *rows
        const int32_t *columns
        const int32_t *indices
        int64_t count
        int64_t row_count
        int64_t row_words
        int64_t value_count

    fx_status fx_trail_params(const fx_trail_words *words, const int64_t *values, int32_t *params, int *holds)

    ctypedef struct fx_packed:
        const int32_t *members
        const int32_t *ends
        const int32_t *parts
        int64_t member_count
        int64_t group_count
        int64_t part_count
        int64_t count

    fx_status fx_trail_pack(const fx_packed *packed, int64_t *nbytes, int64_t *starts)

    ctypedef struct fx_told:
        fx_extents extents
        const int32_t *floats
        int64_t float_count
        const int64_t *order
        const int64_t *also
        int64_t order_count
        int64_t also_count
        const int32_t *ports
        int64_t port_count

    fx_status fx_told_check(const fx_told *told)
