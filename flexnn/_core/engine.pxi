# The engine and the programs bound to it.
import os

cimport cython

from cpython.exc cimport PyErr_CheckSignals
from cpython.object cimport PyObject

from flexnn._core.c_engine cimport *


cdef extern from "Python.h":
    int PyThreadState_SetAsyncExc(unsigned long id, PyObject *exc)

cdef tuple _STATUS_NAMES = ("ok", "params", "bounds", "index", "memory", "io", "eof", "checksum", "thread", "cancelled",
                            "fork", "overlap", "running", "seal", "range")
if len(_STATUS_NAMES) != FX_STATUS_COUNT:
    raise ImportError("flexnn: the binding's list of statuses is not the core's")


BASE_FILE = FX_BASE_FILE
BASE_SPILL = FX_BASE_SPILL
SPILL_FROM = FX_SPILL_FROM
AHEAD_MAX = FX_AHEAD_MAX
DIRECT_ALIGN = FX_DIRECT_ALIGN


def table_workspace(int64_t chunk_bytes):
    """Bytes of workspace that a step takes for each thread where it reads chunks of ``chunk_bytes`` from the file."""
    return fx_table_workspace(chunk_bytes)


class EngineError(RuntimeError):
    """The engine refused a program or broke off a run; the session can run again.

    ``status``: "params", "bounds", "index", "memory", "io", "eof", "checksum", "thread", "fork", "overlap", "running" or
    "seal" (nothing runs until the programs are bound again).
    ``index``: of the load (``is_load``; among the pinned loads if ``is_pinned``) or of the node (also of one that reads
    a table or stores in the spill file, ``is_write``); -1 if the error is about neither. ``file_offset``: where reading
    or writing failed. ``os_error``: errno of "io", else 0.
    """

    def __init__(self, message, status, index=-1, is_load=False, is_pinned=False, file_offset=0, os_error=0,
                 is_write=False):
        super().__init__(message)
        self.status = status
        self.index = index
        self.is_load = is_load
        self.is_pinned = is_pinned
        self.is_write = is_write
        self.file_offset = file_offset
        self.os_error = os_error


cdef object _err_raise(const fx_error *e):
    """Raise what an error says."""
    if e.status == FX_ERR_CANCELLED:
        PyErr_CheckSignals()  # raises again where the handler's exception was set aside
        raise KeyboardInterrupt
    text = "writing failed" if e.is_write else fx_status_text(e.status).decode()
    if e.status == FX_ERR_IO or e.status == FX_ERR_THREAD:
        text += f" ({os.strerror(e.os_error)})"
    if e.index >= 0 and e.is_load:
        text += f" in {'pinned ' if e.is_pinned else ''}load {e.index} at file offset {e.file_offset}"
    elif e.index >= 0:
        text += f" in node {e.index}"
        if e.status == FX_ERR_IO or e.status == FX_ERR_EOF or e.status == FX_ERR_CHECKSUM:
            text += f" at file offset {e.file_offset}"
    raise EngineError(text, _STATUS_NAMES[e.status], e.index, bool(e.is_load), bool(e.is_pinned), e.file_offset,
                      e.os_error, bool(e.is_write))


cdef object _bytecode = eval("lambda: None")  # which this C is not: where other threads' exceptions are raised


cdef int _interrupted(void *pending) noexcept with gil:
    """Whether a signal handler or another thread raised (raise_in); the exception is kept in the list."""
    try:
        PyErr_CheckSignals()
        _bytecode()
    except BaseException as error:
        (<list>pending).append(error)
        return 1
    return 0


cdef int _watched(void *pending) noexcept with gil:
    """``_interrupted``, or whether the function raised that the list begins with; None: there is no function."""
    watch = (<list>pending)[0]
    if _interrupted(pending):
        return 1
    try:
        if watch is not None:
            watch()
    except BaseException as error:
        (<list>pending).append(error)
        return 1
    return 0


cdef int _impatient(void *_) noexcept nogil:
    return 1


cdef _Buffer _records(array, size_t size, what):
    """The buffer of an array of C structs."""
    if array.dtype.itemsize != size:
        raise ValueError(f"{what} have {array.dtype.itemsize} bytes each, not {size}")
    return _Buffer(array)


cdef const void *_array(list buffers, array, size_t size, what, uint32_t *count) except? NULL:
    """The structs of an array, and how many; what keeps them is added to ``buffers``. None: none."""
    cdef _Buffer buffer
    count[0] = 0
    if array is None:
        return NULL
    buffer = _records(array, size, what)
    buffers.append(buffer)
    count[0] = len(array)
    return buffer.view.buf


def raise_in(unsigned long thread, kind):
    """Have an exception of class ``kind`` raised in a thread of Python's (its identity) at its next bytecode, of which
    a run has some every 20 ms."""
    PyThreadState_SetAsyncExc(thread, <PyObject *>kind)


def usable_cpus():
    """CPUs that can run threads of this process all the time: its affinity, or what its control groups allow, a
    fraction."""
    return fx_usable_cpus()


cdef class Engine:
    """An arena, compute threads and a loader that programs share; arguments as fx_options in engine.h names them.
    EngineError where threads do not start."""

    cdef fx_engine *engine
    cdef bint busy
    cdef bint tracing
    cdef public object watch
    """Function that is called every 20 ms of a run, in the caller's thread; what it raises breaks the run off. None:
    none is."""
    cdef list doomed  # addresses of programs dropped while something ran, or a device kept a read waiting
    cdef list doomed_recordings
    cdef bint is_kept  # a device kept a read waiting when something waited last until nothing is read

    def __init__(self, *, bint direct=False, int threads=1, isa=None, bint poison=False, uint32_t jitter_seed=0,
                 uint64_t noise_seed=0, int64_t read_bytes_per_second=0, int trace=0, bint fresh=False,
                 bint streams_last=False):
        if self.engine != NULL:
            raise RuntimeError("the session is open already")
        cdef bytes isa_name = b"" if isa is None else isa_level(isa).encode()
        cdef fx_options options
        cdef fx_error error
        options.direct, options.threads = direct, threads
        options.isa = NULL if isa is None else <const char *>isa_name
        options.poison, options.jitter_seed, options.trace = poison, jitter_seed, trace
        options.read_bytes_per_second, options.fresh = read_bytes_per_second, fresh
        options.streams_last, options.noise_seed = streams_last, noise_seed
        _kernels(isa)  # says better than the engine what is wrong with FLEXNN_ISA
        self.doomed, self.doomed_recordings = [], []
        self.tracing = trace
        with nogil:
            self.engine = fx_engine_open(&options, &error)
        if self.engine == NULL:
            _err_raise(&error)

    def __dealloc__(self):
        cdef fx_leaving leaving  # Ctrl-C may drop an engine before anybody could close it
        leaving.files, leaving.file_count = NULL, 0
        fx_engine_close(self.engine, &leaving)

    cdef fx_engine *_opened(self) except NULL:
        if self.engine == NULL:
            raise ValueError("the session is closed")
        return self.engine

    cdef fx_engine *_idle(self) except NULL:
        """The C engine while nothing runs; lets go of what was dropped meanwhile. KeyboardInterrupt within 50 ms of
        Ctrl-C."""
        cdef fx_engine *engine = self._opened()
        if self.busy:
            raise RuntimeError("the session is running already")
        if self.doomed:
            self.rest()  # unbinding waits for the device, and no signal would end that
        while self.doomed_recordings:
            fx_recording_free(<fx_recording *><size_t>self.doomed_recordings.pop())
        while self.doomed:
            fx_unbind(<fx_bound *><size_t>self.doomed.pop())
        return engine

    @property
    def bytes(self):
        """Bytes of arena, programs and thread stacks."""
        return fx_engine_bytes(self._opened())

    @property
    def threads(self):
        """Compute threads that run."""
        return fx_engine_threads(self._opened())

    def rest(self, bint patient=True):
        """Wait until nothing is read, so that unbinding, trimming and closing need not wait for the device; about 10 ms
        unless ``patient``. Returns whether nothing is. Does nothing once the engine is closed. KeyboardInterrupt within
        50 ms of Ctrl-C; RuntimeError during a run."""
        cdef fx_engine *engine = self.engine
        cdef fx_interrupt interrupt
        cdef fx_status status
        if engine == NULL:
            return True
        if self.busy:
            raise RuntimeError("the session is running already")
        pending = []
        interrupt.is_wanted, interrupt.arg = _interrupted if patient else _impatient, <void *>pending
        self.busy = True
        try:
            with nogil:
                status = fx_engine_rest(engine, &interrupt)
        finally:
            self.busy = False
        self.is_kept = status != FX_OK
        if pending:
            raise pending[0]
        return not self.is_kept

    def suspect(self):
        """Something failed outside the engine: the next run first checks what is bound ("seal"). Does nothing once the
        engine is closed."""
        if self.engine != NULL:
            fx_engine_suspect(self.engine)

    def trim(self, bint keep=False):
        """Give back the arena beyond what the bound programs need; with ``keep``, pinned weights stay
        where no program is bound. RuntimeError during a run."""
        cdef fx_engine *engine = self._idle()
        with nogil:
            fx_engine_trim(engine, keep)

    def loosen(self, bint is_loose):
        """Whether there is no budget from now on: freed heap stays, and a few MiB of the arena. Does nothing once the
        engine is closed."""
        if self.engine != NULL:
            fx_engine_loosen(self.engine, is_loose)

    def back(self):
        """Have the system give memory to the whole arena. KeyboardInterrupt within 50 ms of Ctrl-C; RuntimeError during a
        run."""
        cdef fx_engine *engine = self._idle()
        cdef fx_interrupt interrupt
        pending = []
        interrupt.is_wanted, interrupt.arg = _interrupted, <void *>pending
        self.busy = True
        try:
            with nogil:
                fx_engine_back(engine, &interrupt)
        finally:
            self.busy = False
        if pending:
            raise pending[0]

    def forget(self, int fd):
        """Forget what the arena holds of a file, before its descriptor is closed. RuntimeError during a run."""
        if self.engine != NULL:
            fx_engine_forget(self._idle(), fd)

    def close(self, tuple files=None):
        """Stop the threads and give the memory back. With ``files``, the OpenFiles of all programs' descriptors: if a
        device still keeps a read waiting, do not wait; memory and descriptors, which the files then have no more, are
        given back when it answers. Closing twice is fine. RuntimeError during a run."""
        cdef fx_engine *engine = self.engine
        cdef OpenFile file
        cdef fx_leaving leaving
        cdef fx_leaving *may_leave = NULL
        if self.busy:
            raise RuntimeError("the session is running")
        cdef bytearray left = bytearray(sizeof(fx_file) * (0 if files is None else len(files)))
        cdef fx_file *list = <fx_file *><char *>left
        if files is not None:
            for number, file in enumerate(files):
                list[number] = fx_file(file.fd, -1)
            leaving.files, leaving.file_count = list, len(files)
            may_leave = &leaving
        self.engine = NULL
        self.doomed, self.doomed_recordings = [], []
        with nogil:
            fx_engine_close(engine, may_leave)
        if may_leave != NULL and leaving.is_abandoned:
            for file in files:
                file.fd = -1


@cython.no_gc_clear
cdef class BoundProgram:
    """A program bound to an engine. Arguments as fx_program in engine.h names them: ``fd`` and ``direct_fd`` of the file
    that it reads, which stay the caller's and must stay open, ``nodes``, ``steps``, ``pinned``,
    ``loads``, ``tables`` (None: none) arrays of NODE_DTYPE, STEP_DTYPE and LOAD_DTYPE, ``crcs`` and ``groups`` (steps
    of each; None: every step by itself) of uint32, ``io_bytes`` sizes of the input and output buffers, ``input_count`` of
    them inputs. ``spills`` (None: none): activations that steps store in the file of ``spill_fd`` and
    ``spill_direct_fd``, of ``spill_bytes``. EngineError if the program is wrong or a pinned load fails; RuntimeError during a run."""

    cdef Engine engine
    cdef fx_bound *bound
    cdef object io_bytes
    cdef Py_ssize_t input_count
    cdef Py_ssize_t step_count
    cdef Py_ssize_t load_count
    cdef readonly dict pinning
    """Bytes of pinned weights that were ``kept`` in place, ``moved`` inside the arena, ``read``."""
    cdef readonly int64_t bytes_written
    """Bytes that the last run wrote to the spill file."""

    def __init__(self, Engine engine not None, *, nodes, steps, pinned, loads, crcs, int64_t arena_bytes,
                 int64_t zeros_offset, int64_t zeros_count, io_bytes, uint32_t input_count, groups=None, tables=None,
                 int fd=-1, int direct_fd=-1, spills=None, int spill_fd=-1, int spill_direct_fd=-1,
                 int64_t spill_bytes=0):
        if self.bound != NULL:
            raise RuntimeError("the program is bound already")
        cdef fx_program program
        cdef fx_interrupt interrupt
        cdef fx_bind_stats stats
        cdef fx_error error
        cdef fx_bound *bound
        cdef fx_engine *opened = engine._idle()
        sizes = memoryview(bytearray(sizeof(int64_t) * len(io_bytes))).cast("q")
        for index, size in enumerate(io_bytes):
            sizes[index] = size
        if input_count > len(sizes):
            raise ValueError(f"{input_count} inputs of {len(sizes)} buffers")
        buffers = [_Buffer(sizes)]
        program.file.fd, program.file.direct_fd = fd, direct_fd
        program.nodes = <const fx_node *>_array(buffers, nodes, sizeof(fx_node), "nodes", &program.node_count)
        program.steps = <const fx_step *>_array(buffers, steps, sizeof(fx_step), "steps", &program.step_count)
        program.groups = <const uint32_t *>_array(buffers, groups, sizeof(uint32_t), "groups", &program.group_count)
        program.pinned = <const fx_load *>_array(buffers, pinned, sizeof(fx_load), "pinned loads", &program.pinned_count)
        program.loads = <const fx_load *>_array(buffers, loads, sizeof(fx_load), "loads", &program.load_count)
        program.tables = <const fx_load *>_array(buffers, tables, sizeof(fx_load), "tables", &program.table_count)
        program.crcs = <const uint32_t *>_array(buffers, crcs, sizeof(uint32_t), "checksums", &program.crc_count)
        program.spill.fd, program.spill.direct_fd = spill_fd, spill_direct_fd
        program.spills = <const fx_load *>_array(buffers, spills, sizeof(fx_load), "spills", &program.spill_count)
        program.spill_bytes = spill_bytes
        program.spill_crc_count = 0
        for spill in () if spills is None else spills:
            program.spill_crc_count += max(int(spill["bytes"]), 0) // max(int(spill["chunk_bytes"]), 1)
        program.arena_bytes, program.zeros_offset, program.zeros_count = arena_bytes, zeros_offset, zeros_count
        program.io_bytes = <const int64_t *>(<_Buffer>buffers[0]).view.buf
        program.input_count, program.output_count = input_count, len(sizes) - input_count
        pending = []
        interrupt.is_wanted, interrupt.arg = _interrupted, <void *>pending
        engine.busy = True
        try:
            with nogil:
                bound = fx_bind(opened, &program, &interrupt, &stats, &error)
        finally:
            engine.busy = False
        if bound == NULL:
            if pending:
                raise pending[0]
            _err_raise(&error)
        self.engine, self.bound = engine, bound
        self.io_bytes = tuple(sizes)
        self.input_count = input_count
        self.step_count, self.load_count = len(steps), len(loads)
        self.pinning = {"kept": stats.kept, "moved": stats.moved, "read": stats.read}
        if pending:
            raise pending[0]

    def __dealloc__(self):
        self._let_go()

    cdef void _let_go(self):
        cdef fx_interrupt interrupt
        if self.bound == NULL or self.engine.engine == NULL:
            return
        interrupt.is_wanted, interrupt.arg = _impatient, NULL
        if self.engine.busy or self.engine.is_kept or fx_engine_rest(self.engine.engine, &interrupt) != FX_OK:
            self.engine.doomed.append(<size_t>self.bound)
        else:
            fx_unbind(self.bound)
        self.bound = NULL

    cdef fx_bound *_opened(self) except NULL:
        if self.bound == NULL or self.engine.engine == NULL:
            raise ValueError("the session is closed")
        return self.bound

    @property
    def trace(self):
        """Times of the last run that succeeded: ([(start, end) of each step], [(start, end) of each load]), in ns since
        its start; a load that began before it has a negative start. None when not tracing."""
        cdef const fx_span *spans = fx_trace(self._opened())
        cdef Py_ssize_t i
        if spans == NULL or self.engine.busy:
            return None
        times = [(spans[i].start_ns, spans[i].end_ns) for i in range(self.step_count + self.load_count)]
        return times[:self.step_count], times[self.step_count:]

    @property
    def spans(self):
        """Times as ``trace`` has them, in two buffers of 64-bit numbers: start, end, start, … of all steps, and of all
        loads. A session reads them inside its budget, which has no room for an object per number. None when not
        tracing."""
        cdef const fx_span *spans = fx_trace(self._opened())
        if spans == NULL or self.engine.busy:
            return None
        cdef Py_ssize_t count = self.step_count + self.load_count
        times = memoryview((<const char *>spans)[:count * <Py_ssize_t>sizeof(fx_span)]).cast("q")
        return times[:2 * self.step_count], times[2 * self.step_count:]

    @property
    def lanes(self):
        """Times of compute threads in the last run that succeeded: [(start, end) of each thread] of each step, in ns
        since its start; (0, 0) where a thread took no part, and in a group beyond the first step. None unless the engine
        traces threads (``trace=2``)."""
        cdef const fx_span *spans = fx_trace_threads(self._opened())
        cdef Py_ssize_t i, threads = fx_engine_threads(self.engine.engine)
        if spans == NULL or self.engine.busy:
            return None
        times = [(spans[i].start_ns, spans[i].end_ns) for i in range(self.step_count * threads)]
        return [times[i:i + threads] for i in range(0, len(times), threads)]

    @property
    def stalls(self):
        """Waits for loads in the last run that succeeded: (start, end) of each step's, then of the run's end, in ns since
        its start; together ``stall_ns``. (0, 0) where no load was missing; a group waits at its first step. None unless the
        engine traces threads."""
        cdef const fx_span *spans = fx_trace_stalls(self._opened())
        cdef Py_ssize_t i
        if spans == NULL or self.engine.busy:
            return None
        return [(spans[i].start_ns, spans[i].end_ns) for i in range(self.step_count + 1)]

    cdef tuple _go(self, _Call call, then):
        cdef fx_bound *bound = self._opened()
        cdef fx_bound *following[FX_AHEAD_MAX]
        cdef uint32_t following_count = 0
        cdef BoundProgram program
        cdef fx_interrupt interrupt
        cdef fx_run_stats stats
        cdef fx_error error
        cdef fx_status status
        cdef Py_ssize_t i = 0
        self.engine._idle()
        for program in then[:FX_AHEAD_MAX]:
            following[following_count] = program._opened()
            following_count += 1
        for size in self.io_bytes:
            if call.sizes[i] != size:
                raise ValueError(f"buffer {i} has {call.sizes[i]} bytes, not {size}")
            i += 1
        cdef list pending = [self.engine.watch]
        interrupt.is_wanted, interrupt.arg = _watched, <void *>pending
        self.engine.busy = True
        try:
            with nogil:
                status = fx_run(bound, call.pointers, following, following_count, &interrupt, &stats, &error)
        finally:
            self.engine.busy = False
        if len(pending) > 1:
            raise pending[1]
        if status != FX_OK:
            _err_raise(&error)
        self.bytes_written = stats.bytes_written
        return stats.run_ns, stats.stall_ns, stats.bytes_read

    def run(self, buffers, then=()):
        """One run: ``buffers`` are contiguous arrays, inputs then outputs, of ``io_bytes`` bytes each; ``then``: the
        programs of the same engine that are expected to run after this one, whose loads then begin. Returns ``run_ns``,
        ``stall_ns`` (compute waiting for loads) and ``bytes_read``. EngineError; ValueError for wrong buffers or a closed
        session; KeyboardInterrupt within 50 ms of Ctrl-C. Not for two threads at once."""
        cdef _Call call
        if len(buffers) != len(self.io_bytes):
            raise ValueError(f"{len(buffers)} buffers, not {len(self.io_bytes)}")
        call = _Call(len(buffers))
        call.take_all(buffers, self.input_count)
        run_ns, stall_ns, bytes_read = self._go(call, then)
        return {"run_ns": run_ns, "stall_ns": stall_ns, "bytes_read": bytes_read}

    def repeat(self, Signature signature not None, feed, then=None):
        """One run over the arrays of a feed, after which ``then`` is expected; None: the same. Returns its outputs, and
        ``run_ns``, ``stall_ns`` and ``bytes_read``. None, without a run, where the feed is not like the signature. Errors
        as ``run``."""
        cdef _Call call
        if signature.buffer_count != len(self.io_bytes):
            raise ValueError(f"{signature.buffer_count} buffers, not {len(self.io_bytes)}")
        call = signature._call(feed)
        if call is None:
            return None
        return call.outputs, self._go(call, (self,) if then is None else then)

    def close(self):
        """Unbind the program. Closing twice is fine. RuntimeError during a run."""
        if self.engine is not None and self.engine.busy:
            raise RuntimeError("the session is running")
        self._let_go()
