# engine.h, crc32c.h, rates.h.
from libc.stdint cimport int32_t, int64_t, uint32_t

from flexnn._core.c_ops cimport fx_kernels, fx_params, fx_status, fx_window

cdef extern from "crc32c.h" nogil:
    ctypedef enum fx_crc_path:
        FX_CRC_TABLE
    fx_crc_path fx_crc_path_best()
    uint32_t fx_crc32c_by(fx_crc_path path, uint32_t crc, const void *data, size_t n)

cdef extern from "rates.h" nogil:
    fx_status fx_measure_rates(const fx_kernels *k, double *flops, double *bytes)

cdef extern from "stored.h" nogil:
    int64_t fx_table_scratch(int64_t chunk_bytes)

cdef extern from "engine.h" nogil:
    const int FX_BASE_FILE

    ctypedef struct fx_operand:
        pass

    ctypedef struct fx_node:
        pass

    ctypedef struct fx_step:
        pass

    ctypedef struct fx_load:
        pass

    ctypedef struct fx_program:
        const fx_node *nodes
        uint32_t node_count
        const fx_step *steps
        uint32_t step_count
        const uint32_t *groups
        uint32_t group_count
        const fx_load *pinned
        uint32_t pinned_count
        const fx_load *loads
        uint32_t load_count
        const fx_load *tables
        uint32_t table_count
        const uint32_t *crcs
        uint32_t crc_count
        int64_t arena_bytes
        int64_t zeros
        int64_t zeros_count
        const int64_t *io_bytes
        uint32_t input_count, output_count

    ctypedef struct fx_options:
        int fd
        int direct_fd
        int threads
        const char *isa
        int poison
        uint32_t jitter_seed
        int64_t read_bytes_per_second
        int trace
        int fresh
        int (*poll)(void *) noexcept nogil
        void *poll_arg

    ctypedef struct fx_run_stats:
        int64_t run_ns, stall_ns, bytes_read

    ctypedef struct fx_error:
        fx_status status
        int os_error
        int is_load
        int is_pinned
        int64_t index
        int64_t file_offset

    ctypedef struct fx_span:
        int64_t start_ns, end_ns

    ctypedef struct fx_session:
        pass

    fx_status fx_program_check(const fx_program *p, int threads, const fx_kernels *k, fx_error *error)
    fx_session *fx_session_open(const fx_program *p, const fx_options *o, fx_error *error)
    void fx_session_close(fx_session *s)
    fx_status fx_session_run(fx_session *s, void *const *buffers, int (*poll)(void *) noexcept nogil, void *poll_arg,
                             fx_run_stats *stats, fx_error *error)
    int64_t fx_session_bytes(const fx_session *s)
    int fx_session_threads(const fx_session *s)
    const fx_span *fx_session_trace(const fx_session *s)
