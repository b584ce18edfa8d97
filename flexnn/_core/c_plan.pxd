# flexnn/draft.h, flexnn/fluid_bound.h, flexnn/bound_terms.h.
from libc.stdint cimport int32_t, int64_t, uint32_t

from flexnn._core.c_interrupt cimport fx_interrupt
from flexnn._core.c_ops cimport fx_status
from flexnn._core.c_record cimport fx_record

cdef extern from "flexnn/draft.h" nogil:
    const fx_record fx_planner_records[]
    int FX_CONSTANTS_MAX

    ctypedef struct fx_draft_node:
        pass

    ctypedef struct fx_variant:
        pass

    ctypedef struct fx_constant:
        pass

    ctypedef struct fx_gap:
        pass

    ctypedef struct fx_item:
        int64_t twin

    ctypedef struct fx_lifetime:
        pass

    ctypedef struct fx_choice:
        pass

    ctypedef struct fx_draft_step:
        pass

    ctypedef struct fx_draft_slice:
        pass

    ctypedef struct fx_problem:
        const fx_draft_node *nodes
        const fx_variant *variants
        const fx_constant *constants
        const fx_gap *gaps
        const fx_item *items
        const fx_lifetime *lifetimes
        uint32_t node_count, variant_count, constant_count, gap_count, item_count, lifetime_count
        int64_t io_align, step_bytes
        double storage_bytes_per_second, request_s, latency_s, compute_speed, load_speed
        bint has_twins

    ctypedef struct fx_draft:
        fx_draft_step *steps
        fx_draft_slice *slices
        uint32_t step_count, slice_count, step_max, slice_max
        int64_t pinned_bytes, stream_bytes
        const fx_interrupt *interrupt
        double seconds, stall_s

    fx_status fx_problem_check(const fx_problem *p)
    fx_status fx_draft_make(fx_draft *d, const fx_problem *p)
    void fx_draft_free(fx_draft *d)
    ctypedef struct fx_recipe:
        const int32_t *order
        int64_t working_bytes, bytes_max
        int slices_in_room, smallest

    void fx_choose(fx_draft *d, const fx_problem *p, const fx_recipe *recipe, fx_choice *choices)
    void fx_draft_build(fx_draft *d, const fx_problem *p, const fx_choice *choices, int64_t working_bytes)
    void fx_draft_time(fx_draft *d, const fx_problem *p)
    void fx_draft_simulate(fx_draft *d, const fx_problem *p)
    int64_t fx_draft_bytes(const fx_draft *d, const fx_problem *p, int64_t working_bytes)
    fx_status fx_draft_place(fx_draft *d, const fx_problem *p, const fx_choice *choices, int64_t working_bytes,
                             int from_top, int64_t *address, int64_t *node_address)
    ctypedef struct fx_limits:
        int64_t working_bytes, bytes_max, next_bytes_max

    fx_status fx_fill(fx_draft *d, const fx_problem *p, const int32_t *order, uint32_t count,
                      const fx_limits *limits, int looks, const fx_interrupt *interrupt)
    void fx_improve(fx_draft *d, const fx_problem *p, fx_choice *choices, int64_t working_bytes, int64_t bytes_max,
                    int tries)
    fx_status fx_anneal(fx_draft *d, const fx_problem *p, fx_choice *choices, int64_t *working_bytes, int *from_top,
                        int64_t bytes_max, int tries)
    int fx_draft_sane(fx_draft *d, const int32_t *order, uint32_t count)
    int fx_choices_fit(const fx_problem *p, const fx_choice *choices)

cdef extern from "flexnn/fluid_bound.h" nogil:
    ctypedef struct fx_fluid:
        uint32_t count
        const double *seconds
        const int64_t *bytes
        const double *read_s
        const double *byte_s
        const double *uses
        const int64_t *free_bytes
        double bytes_per_second, compute_speed, load_speed
        int rounds

    int FX_ROUNDS_MAX
    fx_status fx_fluid_bound(const fx_fluid *f, double *bound_s, double *price)

cdef extern from "flexnn/bound_terms.h" nogil:
    ctypedef struct fx_bound_terms:
        double *seconds
        double *read_s
        double *byte_s
        int64_t *bytes
        int64_t *free_bytes

    void fx_bound_terms_of(const fx_problem *p, int64_t arena_bytes, const fx_bound_terms *terms)
