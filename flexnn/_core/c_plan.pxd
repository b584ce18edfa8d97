# draft.h, fluid.h.
from libc.stdint cimport int32_t, int64_t, uint32_t

from flexnn._core.c_ops cimport fx_status

cdef extern from "draft.h" nogil:
    int FX_CONSTANTS_MAX

    ctypedef struct fx_layer:
        pass

    ctypedef struct fx_variant:
        pass

    ctypedef struct fx_constant:
        pass

    ctypedef struct fx_gap:
        pass

    ctypedef struct fx_item:
        pass

    ctypedef struct fx_held:
        pass

    ctypedef struct fx_choice:
        pass

    ctypedef struct fx_step_draft:
        pass

    ctypedef struct fx_piece_draft:
        pass

    ctypedef struct fx_problem:
        const fx_layer *layers
        const fx_variant *variants
        const fx_constant *constants
        const fx_gap *gaps
        const fx_item *items
        const fx_held *held
        uint32_t layer_count, variant_count, constant_count, gap_count, item_count, held_count
        int64_t io_align, step_bytes
        double storage_bytes_per_second, request_s, compute_share, load_share

    ctypedef struct fx_draft:
        fx_step_draft *steps
        fx_piece_draft *pieces
        uint32_t step_count, piece_count, step_max, piece_max
        int64_t pinned_bytes, stream_bytes
        double seconds, stall_s

    fx_status fx_problem_check(const fx_problem *p)
    fx_status fx_draft_make(fx_draft *d, const fx_problem *p)
    void fx_draft_free(fx_draft *d)
    void fx_choose(fx_draft *d, const fx_problem *p, const int32_t *order, int64_t region, int64_t memory, int share,
                   int smallest, fx_choice *choices)
    void fx_draft_build(fx_draft *d, const fx_problem *p, const fx_choice *choices, int64_t region)
    void fx_draft_time(fx_draft *d, const fx_problem *p)
    void fx_draft_simulate(fx_draft *d, const fx_problem *p)
    int64_t fx_draft_bytes(const fx_draft *d, const fx_problem *p, int64_t region)
    fx_status fx_draft_place(fx_draft *d, const fx_problem *p, const fx_choice *choices, int64_t region, int from_top,
                             int64_t *address, int64_t *layer_address)
    void fx_fill(fx_draft *d, const fx_problem *p, int32_t *order, uint32_t count, int64_t bytes, int64_t most,
                 int looks)
    void fx_improve(fx_draft *d, const fx_problem *p, fx_choice *choices, int64_t region, int64_t memory, int tries)
    fx_status fx_anneal(fx_draft *d, const fx_problem *p, fx_choice *choices, int64_t *region, int *from_top,
                        int64_t memory, int tries)
    int fx_draft_sane(fx_draft *d, const int32_t *order, uint32_t count)
    int fx_choices_fit(const fx_problem *p, const fx_choice *choices)

cdef extern from "fluid.h" nogil:
    ctypedef struct fx_fluid:
        uint32_t count
        const double *seconds
        const int64_t *bytes
        const double *read_s
        const double *byte_s
        const int64_t *free_bytes
        double bytes_per_second, compute_share, load_share
        int rounds

    int FX_ROUNDS_MAX
    fx_status fx_fluid_bound(const fx_fluid *f, double *bound_s, double *price)
