# flexnn/place.h, flexnn/streams.h.
from libc.stdint cimport int32_t, int64_t, uint8_t

from flexnn._core.c_interrupt cimport fx_interrupt
from flexnn._core.c_ops cimport fx_status

cdef extern from "flexnn/place.h" nogil:
    const int FX_PLACE_BLOCKS_MAX
    const int FX_SEARCH_BLOCKS_MAX

    ctypedef struct fx_blocks:
        int32_t count
        const int64_t *bytes
        const int32_t *first
        const int32_t *last

    ctypedef enum fx_fit:
        FX_FIT_BEST
        FX_FIT_FIRST

    ctypedef enum fx_order:
        FX_ORDER_COUNT

    fx_status fx_place_order(const fx_blocks *b, fx_order order, int32_t *numbers)
    fx_status fx_blocks_live(const fx_blocks *b, int32_t moments, int64_t *live)
    fx_status fx_blocks_pairs(const fx_blocks *b, int64_t *pairs)
    int64_t fx_blocks_top(const fx_blocks *b, const int64_t *address)

    ctypedef enum fx_found:
        FX_FOUND_NONE
        FX_FOUND_SOME
        FX_FOUND_UNKNOWN

    fx_status fx_place_in_order(const fx_blocks *b, const int32_t *order, const uint8_t *hangs, int64_t ceiling,
                                fx_fit fit, int64_t *address)
    ctypedef struct fx_hole:
        int64_t start, end

    ctypedef struct fx_gaps:
        fx_hole *holes
        int64_t count, max

    fx_status fx_place_by_time(const fx_blocks *b, int64_t *address)
    fx_status fx_place_gaps(const fx_blocks *b, const int64_t *address, int32_t moments, int64_t most, int64_t *first,
                            int64_t *top, fx_gaps *gaps)
    fx_status fx_place_search(const fx_blocks *b, int64_t capacity, int64_t nodes_max, int64_t *address,
                              fx_found *found, int64_t *nodes)

cdef extern from "flexnn/streams.h" nogil:
    ctypedef struct fx_streams:
        int64_t steps, arena, align
        int64_t fixed_count
        const int64_t *fixed_start
        const int64_t *fixed_end
        const int64_t *fixed_first
        const int64_t *fixed_last
        int64_t count
        const int64_t *bytes
        const int64_t *use
        const int64_t *forced
        const int64_t *stored
        int from_top, is_large
        const fx_interrupt *interrupt

    fx_status fx_place_streams(const fx_streams *p, int64_t *address, int64_t *wait_steps)
