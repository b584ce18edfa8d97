# flexnn/refit.h.
from libc.stdint cimport int32_t, int64_t, uint32_t

from flexnn._core.c_engine cimport fx_load, fx_node, fx_step
from flexnn._core.c_ops cimport fx_kernels, fx_params, fx_status

cdef extern from "flexnn/refit.h" nogil:
    ctypedef struct fx_moved:
        pass

    ctypedef struct fx_refit:
        const fx_node *nodes
        const fx_step *steps
        const int32_t *step_counts
        uint32_t node_count, step_count
        const int64_t *offsets
        uint32_t tensor_count
        const int32_t *roots
        const int64_t *room
        uint32_t root_count
        const int32_t *working
        uint32_t working_count
        const int64_t *places
        const fx_moved *moved
        uint32_t moved_count
        int64_t base
        int64_t zeros_count
        int threads
        bint is_pinned

    ctypedef struct fx_sizes:
        const fx_params *params
        const int64_t *nbytes
        const int64_t *offsets
        const int32_t *chosen
        const int32_t *kernels
        const int32_t *tile_blocks
        uint32_t chosen_count

    ctypedef struct fx_likeness:
        const int64_t *order
        const int64_t *also
        uint32_t pair_count
        uint32_t count

    fx_status fx_refit_order(const fx_refit *r, const fx_likeness *l, const int64_t *nbytes, const int64_t *offsets,
                             int64_t *own_nbytes, int64_t *own_offsets, int *fits)
    fx_status fx_refit_check(const fx_refit *r)
    fx_status fx_refit_nodes(const fx_refit *r, const fx_kernels *k, const fx_sizes *s, fx_node *nodes,
                             int64_t *blocks, int *fits)
    int64_t fx_refit_places(const fx_refit *r, const fx_sizes *s, const int64_t *blocks, const int64_t *places,
                            fx_node *nodes, fx_step *steps)

    int64_t fx_refit_edits(const fx_refit *r, const fx_node *nodes, const fx_step *steps)

    ctypedef struct fx_movable:
        fx_node *nodes
        uint32_t node_count
        fx_step *steps
        uint32_t step_count
        fx_load *pinned
        uint32_t pinned_count
        fx_load *loads
        uint32_t load_count

    void fx_relocate(const fx_movable *p, int64_t split, int64_t front, int64_t rest)
