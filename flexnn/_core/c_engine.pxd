# flexnn/engine.h, flexnn/crc32c.h, flexnn/rates.h, flexnn/code.h, flexnn/quota.h.
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from flexnn._core.c_interrupt cimport fx_interrupt
from flexnn._core.c_ops cimport fx_kernels, fx_params, fx_status, fx_window
from flexnn._core.c_record cimport fx_record

cdef extern from "flexnn/crc32c.h" nogil:
    ctypedef enum fx_crc_path:
        FX_CRC_TABLE
    fx_crc_path fx_crc_path_best()
    uint32_t fx_crc32c_by(fx_crc_path path, uint32_t crc, const void *data, size_t n)

cdef extern from "flexnn/rates.h" nogil:
    fx_status fx_measure_rates(const fx_kernels *k, double *flops, double *bytes)

cdef extern from "flexnn/engine.h" nogil:
    const fx_record fx_engine_records[]
    const int FX_BASE_FILE
    const int FX_BASE_SPILL
    const int64_t FX_SPILL_FROM
    const int64_t FX_DIRECT_ALIGN
    enum: FX_AHEAD_MAX

    ctypedef struct fx_place:
        pass

    ctypedef struct fx_node:
        uint32_t op, kernel
        fx_params params

    ctypedef struct fx_step:
        pass

    ctypedef struct fx_load:
        pass

    ctypedef struct fx_file:
        int fd, direct_fd

    ctypedef struct fx_program:
        fx_file file
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
        fx_file spill
        const fx_load *spills
        uint32_t spill_count, spill_crc_count
        int64_t spill_bytes
        int64_t arena_bytes
        int64_t zeros_offset
        int64_t zeros_count
        const int64_t *io_bytes
        uint32_t input_count, output_count

    ctypedef struct fx_options:
        int direct
        int threads
        const char *isa
        int poison
        uint64_t noise_seed
        uint32_t jitter_seed
        int64_t read_bytes_per_second
        int trace
        int fresh
        int streams_last

    ctypedef struct fx_run_stats:
        int64_t run_ns, stall_ns, bytes_read, bytes_written

    ctypedef struct fx_error:
        fx_status status
        int os_error
        int is_load
        int is_pinned
        int is_write
        int64_t index
        int64_t file_offset

    ctypedef struct fx_span:
        int64_t start_ns, end_ns

    ctypedef struct fx_bind_stats:
        int64_t kept, moved, read

    ctypedef struct fx_engine:
        pass

    ctypedef struct fx_bound:
        pass

    fx_status fx_program_check(const fx_program *p, int threads, const fx_kernels *k, fx_error *error)
    fx_engine *fx_engine_open(const fx_options *o, fx_error *error)
    ctypedef struct fx_leaving:
        const fx_file *files
        uint32_t file_count
        int is_abandoned

    fx_status fx_engine_close(fx_engine *e, fx_leaving *leaving)
    fx_status fx_engine_forget(fx_engine *e, int fd)
    void fx_engine_suspect(fx_engine *e)
    fx_status fx_engine_rest(fx_engine *e, const fx_interrupt *interrupt)
    fx_status fx_engine_trim(fx_engine *e, int keep_pinned)
    void fx_engine_loosen(fx_engine *e, int is_loose)
    fx_status fx_engine_back(fx_engine *e, const fx_interrupt *interrupt)
    int64_t fx_engine_bytes(const fx_engine *e)
    int fx_engine_threads(const fx_engine *e)
    fx_bound *fx_bind(fx_engine *e, const fx_program *p, const fx_interrupt *interrupt, fx_bind_stats *stats,
                      fx_error *error)
    fx_status fx_unbind(fx_bound *b)
    fx_status fx_run(fx_bound *b, void *const *buffers, fx_bound *const *next, uint32_t next_count,
                     const fx_interrupt *interrupt, fx_run_stats *stats, fx_error *error)
    const fx_span *fx_trace(const fx_bound *b)
    const fx_span *fx_trace_threads(const fx_bound *b)
    const fx_span *fx_trace_stalls(const fx_bound *b)
    int64_t fx_table_workspace(int64_t chunk_bytes)


cdef extern from "flexnn/recording.h" nogil:
    const int FX_BASE_ROW
    enum: FX_ENTRY_RUN, FX_ENTRY_COPY, FX_ENTRY_SWAP, FX_ENTRY_BRANCH, FX_ENTRY_JUMP, FX_ENTRY_BEGIN, FX_ENTRY_TURN
    enum: FX_ENTRY_NEXT, FX_ENTRY_COUNT, FX_ENTRY_ROW

    ctypedef struct fx_slot:
        pass

    ctypedef struct fx_entry:
        pass

    ctypedef struct fx_tape:
        fx_bound *const *programs
        uint32_t program_count
        const fx_entry *entries
        uint32_t entry_count
        const fx_slot *slots
        uint32_t slot_count
        const uint32_t *operands
        uint32_t operand_count
        uint32_t buffer_count, counter_count, input_count, looks_ahead

    ctypedef struct fx_recording_stats:
        fx_run_stats run
        int64_t stopped

    ctypedef struct fx_recording:
        pass

    fx_recording *fx_recording_make(fx_engine *e, const fx_tape *tape, fx_error *error)
    fx_status fx_recording_free(fx_recording *r)
    fx_status fx_recording_run(fx_recording *r, void *const *buffers, const int64_t *buffer_bytes, int goes_on,
                               const fx_interrupt *interrupt, fx_recording_stats *stats, fx_error *error)
    int64_t fx_recording_counter(const fx_recording *r, uint32_t i)
    int64_t fx_recording_entry(const fx_recording *r)
    int64_t fx_recording_bytes(const fx_recording *r)


cdef extern from "flexnn/code.h" nogil:
    void fx_code_cut()
cdef extern from "flexnn/quota.h" nogil:
    double fx_usable_cpus()
