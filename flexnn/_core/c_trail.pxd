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
