# flexnn/record.h.
cdef extern from "flexnn/record.h" nogil:
    ctypedef struct fx_record_field:
        const char *name
        const char *type
        size_t offset
        size_t count

    ctypedef struct fx_record:
        const char *name
        size_t bytes
        const fx_record_field *fields
