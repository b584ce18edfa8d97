# flexnn/interrupt.h.
cdef extern from "flexnn/interrupt.h" nogil:
    ctypedef struct fx_interrupt:
        int (*is_wanted)(void *) noexcept nogil
        void *arg
