# flexnn/bands.h.
from libc.stdint cimport int64_t, uint8_t

from flexnn._core.c_ops cimport fx_status

cdef extern from "flexnn/bands.h" nogil:
    const int FX_BANDS_BARRED
    const int FX_BANDS_NO_START
    const int FX_BANDS_NO_END
    enum: FX_BAND_PAIRS

    ctypedef struct fx_band_root:
        pass
    ctypedef struct fx_band_use:
        pass
    ctypedef struct fx_band_node:
        pass

    ctypedef struct fx_band_graph:
        const fx_band_node *nodes
        const fx_band_use *uses
        const fx_band_root *roots
        int64_t node_count
        int64_t use_count
        int64_t root_count

    ctypedef struct fx_band_limits:
        int64_t nodes_max
        int64_t bands_max
        int64_t added_work_max
        int64_t node_bytes
        int64_t floor_bytes
        int64_t counts_others
        int64_t below_bytes
        double enough

    ctypedef struct fx_band_choice:
        int64_t first
        int64_t last
        int64_t bands
        int64_t need_bytes
        int64_t added_work

    ctypedef struct fx_band_pair:
        int64_t ends
        int64_t grows
        int64_t shift
        int64_t nbytes

    ctypedef struct fx_band_found:
        fx_band_choice choice
        fx_band_pair *pairs
        int64_t count
        int64_t refused_work

    ctypedef struct fx_band_memo:
        pass

    fx_status fx_bands_find(const fx_band_graph *graph, const fx_band_limits *limits, int64_t worst,
                            const uint8_t *barred, fx_band_memo *memo, int64_t memo_count, fx_band_found *told)
    fx_status fx_bands_rows(const fx_band_graph *graph, fx_band_choice *choice, int64_t may_pair, int64_t *rows,
                            fx_band_found *told)
