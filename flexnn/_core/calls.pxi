# The arrays of a run, and what runs that are alike have in common.
from cpython.buffer cimport PyBUF_C_CONTIGUOUS
from cpython.object cimport PyObject
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.string cimport memcmp

cdef extern from "Python.h":
    object PyObject_Call(object function, object arguments, PyObject *names)


cdef class _Call:
    """Buffers of ``count`` arrays, released with this."""

    cdef Py_buffer *views
    cdef void **pointers
    cdef int64_t *sizes
    cdef Py_ssize_t held
    cdef list outputs

    def __cinit__(self, Py_ssize_t count):
        self.views = <Py_buffer *>PyMem_Malloc((count + 1) * (sizeof(Py_buffer) + sizeof(void *) + sizeof(int64_t)))
        if self.views == NULL:
            raise MemoryError
        self.pointers = <void **>(self.views + count + 1)
        self.sizes = <int64_t *>(self.pointers + count + 1)

    def __dealloc__(self):
        while self.held > 0:
            self.held -= 1
            PyBuffer_Release(&self.views[self.held])
        PyMem_Free(self.views)

    cdef Py_buffer *take(self, array, int flags) except NULL:
        cdef Py_buffer *view = &self.views[self.held]
        PyObject_GetBuffer(array, view, flags)
        self.held += 1
        return view

    cdef int take_all(self, buffers, Py_ssize_t input_count) except -1:
        """Take contiguous arrays in their order; those from ``input_count`` on are written."""
        cdef Py_buffer *view
        for i, array in enumerate(buffers):
            view = self.take(array, PyBUF_WRITABLE if i >= input_count else PyBUF_SIMPLE)
            if not array.flags.aligned:
                raise ValueError(f"buffer {i} is not aligned to its elements")
            self.pointers[i], self.sizes[i] = view.buf, view.len
        return 0


cdef class Signature:
    """What the arrays of runs that are alike have in common: the inputs' ``names``, and types and shapes as those of
    ``inputs``; ``outputs``: shape and dtype of each. Buffers are the inputs in this ``order``, ``constants``, and the
    outputs, which ``empty`` makes. With ``make``, it returns the outputs of a list of inputs. ``numbers``: bytes of the
    inputs, by number, that are always the same."""

    cdef tuple names
    cdef list shapes
    cdef list dtypes
    cdef tuple order
    cdef _Call constants
    cdef tuple outputs
    cdef object kind
    cdef object empty
    cdef object make
    cdef list numbers

    def __init__(self, names, inputs, order, constants, outputs, empty, make=None, numbers=None):
        cdef _Call call = _Call(len(inputs))
        cdef Py_buffer *view
        self.shapes, self.dtypes = [], []
        for array in inputs:
            view = call.take(array, PyBUF_C_CONTIGUOUS)
            self.shapes.append((<const char *>view.shape)[:view.ndim * <Py_ssize_t>sizeof(Py_ssize_t)])
            self.dtypes.append(array.dtype)
        self.names, self.order, self.outputs = tuple(names), tuple(order), tuple(outputs)
        self.constants = _Call(len(constants))
        for array in constants:
            self.constants.take(array, PyBUF_SIMPLE)
        self.kind, self.empty, self.make = type(empty(0)), empty, make
        self.numbers = [numbers.get(i) for i in range(len(inputs))] if numbers else None

    cdef bint _is_like(self, Py_ssize_t i, const Py_buffer *view):
        cdef bytes shape = self.shapes[i], numbers
        cdef const char *wanted = shape
        cdef const char *known
        cdef size_t shape_bytes = view.ndim * sizeof(Py_ssize_t)
        if self.numbers is not None and self.numbers[i] is not None:
            numbers = self.numbers[i]
            known = numbers
            if view.len != len(numbers) or memcmp(view.buf, known, len(numbers)) != 0:
                return False
        return (shape_bytes == <size_t>len(shape) and memcmp(<const void *>view.shape, wanted, shape_bytes) == 0
                and <size_t>view.buf % view.itemsize == 0)

    cdef _Call _call(self, feed, list into=None):
        """The arrays of a run; None where the feed is no dictionary of arrays that are like those of the signature.
        ``into``: the outputs; None: made."""
        cdef Py_ssize_t i = 0, at, inputs = len(self.names)
        cdef Py_buffer *view
        cdef _Call call
        if type(feed) is not dict or len(<dict>feed) != inputs:
            return None
        call = _Call(inputs + self.constants.held + len(self.outputs))
        given = [] if self.make is not None else None
        for name in self.names:
            array = (<dict>feed).get(name)
            if type(array) is not self.kind or array.dtype is not self.dtypes[i]:  # numpy makes a format at each call
                return None
            try:
                view = call.take(array, PyBUF_C_CONTIGUOUS)
            except (BufferError, ValueError):
                return None
            if not self._is_like(i, view):
                return None
            if given is not None:
                given.append(array)
            i += 1
        i = 0
        for number in self.order:
            at = number
            call.pointers[i], call.sizes[i] = call.views[at].buf, call.views[at].len
            i += 1
        for at in range(self.constants.held):
            call.pointers[i], call.sizes[i] = self.constants.views[at].buf, self.constants.views[at].len
            i += 1
        if into is not None:
            call.outputs = into
        elif given is not None:
            call.outputs = self.make(given)
        else:
            call.outputs = [PyObject_Call(self.empty, form, NULL) for form in self.outputs]
        for array in call.outputs:
            view = call.take(array, PyBUF_WRITABLE)
            call.pointers[i], call.sizes[i] = view.buf, view.len
            i += 1
        return call

    @property
    def buffer_count(self):
        """Buffers of a run."""
        return len(self.order) + self.constants.held + len(self.outputs)
