# flexnn/params.h, flexnn/byte_kernels.h, flexnn/ops.h, flexnn/kernels.h, and the tables over them.
from libc.stdint cimport int32_t, int64_t, uint32_t

cdef extern from "flexnn/byte_kernels.h" nogil:
    int fx_multiplies_rounded(int32_t wtype)


cdef extern from "flexnn/ops.h" nogil:
    const int FX_MAX_INPUTS
    const int FX_OUTPUT
    const int FX_MAX_THREADS
    const int FX_PARAM_WORDS
    const int FX_OP_COUNT
    const uint32_t FX_OP_CONV
    const uint32_t FX_OP_CONV_F16
    const uint32_t FX_TRAIT_ROWS
    const uint32_t FX_TRAIT_CHANNELS
    const uint32_t FX_TRAIT_PANELS

    ctypedef struct fx_conv_params:
        int32_t cin, cout, group, cin_panel, nr

    ctypedef union fx_params:
        fx_conv_params conv
        int32_t words[48]

    ctypedef enum fx_status:
        FX_OK
        FX_ERR_MEMORY, FX_ERR_BOUNDS
        FX_ERR_IO
        FX_ERR_EOF
        FX_ERR_CHECKSUM
        FX_ERR_THREAD
        FX_ERR_CANCELLED
        FX_STATUS_COUNT

    ctypedef struct fx_kernels:
        pass

    ctypedef struct fx_window:
        int32_t y0, y1, c0, c1

    ctypedef struct fx_row_table:
        pass

    ctypedef struct fx_call:
        const fx_kernels *kernels
        const fx_params *params
        uint32_t op, kernel
        fx_window window
        const void *in_ "in"[4]
        void *out
        const float *weight
        const float *zeros
        void *workspace
        const fx_row_table *table

    uint32_t fx_op_traits(uint32_t op)
    fx_window fx_op_full_window(uint32_t op, const fx_params *p)
    fx_status fx_op_check(uint32_t op, uint32_t kernel, const fx_params *p)
    void fx_op_extent(uint32_t op, const fx_params *p, int operand, int64_t *lo, int64_t *hi)
    int64_t fx_op_panel_bytes(uint32_t op, const fx_params *p)
    int32_t fx_op_panels(uint32_t op, const fx_params *p)
    int32_t fx_conv_panel_cin(const fx_conv_params *p, int32_t panel)
    int fx_conv_groups_are_narrow(int64_t cin, int64_t cout, int64_t group)
    int64_t fx_conv_cin_panel(int64_t cin, int64_t cout, int64_t group)
    int32_t fx_exact_terms(int32_t wtype)
    int fx_conv_kernel_fits(uint32_t kernel, const fx_conv_params *p)
    int64_t fx_op_workspace(const fx_kernels *k, uint32_t op, uint32_t kernel, const fx_params *p)
    int64_t fx_op_zeros(uint32_t op, const fx_params *p)
    uint32_t fx_op_units(const fx_kernels *k, uint32_t op, uint32_t kernel, const fx_params *p, fx_window w, int threads)
    fx_status fx_op_run(const fx_call *call, int threads, uint32_t u0, uint32_t u1)
    const char *fx_op_name(uint32_t op)
    int fx_op_inputs(uint32_t op)
    const char *fx_op_field(uint32_t op, int i, int *is_float)
    const char *fx_status_text(fx_status s)
    const char *fx_enum_name(const char *enumeration, int i)
    const fx_kernels *fx_kernels_for(const char *level)
    const char *fx_kernels_level(const fx_kernels *k)
    int fx_kernels_add_halves(const fx_kernels *k)

cdef extern from "flexnn/kernels.h" nogil:
    const int FX_NR
    const int FX_PLANAR_PIXELS

cdef extern from "flexnn/weight_form.h" nogil:
    const int FX_ACT_NONE
    const int FX_ACT_PRELU
    const int FX_WTYPE_COUNT

    ctypedef struct fx_weight_form:
        int32_t bits, block, scales, minimum, shared

    ctypedef struct fx_panel_layout:
        int64_t scales, minimum, weights, bytes

    const fx_weight_form fx_weight_forms[]
    fx_panel_layout fx_panel_layout_of(int32_t act, int32_t wtype, int64_t weights)
    int fx_form_fits(int32_t wtype, int64_t taps, int64_t cin_panel, int64_t cin_block)

cdef extern from "tables.h" nogil:
    const char *fx_enumerations[]
    const char *fx_levels[]
