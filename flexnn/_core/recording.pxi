# Recordings: what a run of a model does, walked by the engine.
BASE_ROW = FX_BASE_ROW
ENTRY_RUN, ENTRY_COPY, ENTRY_SWAP, ENTRY_BRANCH = FX_ENTRY_RUN, FX_ENTRY_COPY, FX_ENTRY_SWAP, FX_ENTRY_BRANCH
ENTRY_JUMP, ENTRY_BEGIN, ENTRY_TURN, ENTRY_NEXT = FX_ENTRY_JUMP, FX_ENTRY_BEGIN, FX_ENTRY_TURN, FX_ENTRY_NEXT
ENTRY_COUNT, ENTRY_ROW = FX_ENTRY_COUNT, FX_ENTRY_ROW


@cython.no_gc_clear
cdef class Recording:
    """A tape of an engine, as fx_tape in recording.h names its parts: ``programs`` are BoundPrograms of the engine,
    ``entries`` and ``slots`` arrays of ENTRY_DTYPE and SLOT_DTYPE, ``operands`` of uint32. Of ``buffer_count`` buffers of
    the caller, those from ``input_count`` on are written. EngineError if the tape is wrong; RuntimeError during a run."""

    cdef Engine engine
    cdef fx_recording *recording
    cdef list programs
    cdef Py_ssize_t buffer_count
    cdef Py_ssize_t input_count

    def __init__(self, Engine engine not None, *, programs, entries, slots, operands, uint32_t buffer_count,
                 uint32_t input_count, uint32_t counter_count, bint looks_ahead=True):
        if self.recording != NULL:
            raise RuntimeError("the recording is made already")
        cdef fx_tape tape
        cdef fx_error error
        cdef fx_recording *made
        cdef BoundProgram program
        cdef fx_bound **pointers
        cdef fx_engine *opened = engine._idle()
        table = bytearray(sizeof(void *) * (len(programs) + 1))
        pointers = <fx_bound **><char *>table
        for i, program in enumerate(programs):
            pointers[i] = program._opened()
        buffers = []
        tape.programs, tape.program_count = pointers, len(programs)
        tape.entries = <const fx_entry *>_array(buffers, entries, sizeof(fx_entry), "entries", &tape.entry_count)
        tape.slots = <const fx_slot *>_array(buffers, slots, sizeof(fx_slot), "slots", &tape.slot_count)
        tape.operands = <const uint32_t *>_array(buffers, operands, sizeof(uint32_t), "operands", &tape.operand_count)
        tape.buffer_count, tape.counter_count, tape.looks_ahead = buffer_count, counter_count, looks_ahead
        tape.input_count = input_count
        engine.rest()  # making it waits for the device, and no signal would end that
        engine.busy = True
        try:
            with nogil:
                made = fx_recording_make(opened, &tape, &error)
        finally:
            engine.busy = False
        if made == NULL:
            _err_raise(&error)
        self.engine, self.recording = engine, made
        self.programs = list(programs)
        self.buffer_count, self.input_count = buffer_count, input_count

    def __dealloc__(self):
        self._let_go()

    cdef void _let_go(self):
        if self.recording == NULL or self.engine.engine == NULL:
            return
        if self.engine.busy:
            self.engine.doomed_recordings.append(<size_t>self.recording)
        else:
            fx_recording_free(self.recording)
        self.recording = NULL

    cdef fx_recording *_opened(self) except NULL:
        if self.recording == NULL or self.engine.engine == NULL:
            raise ValueError("the session is closed")
        return self.recording

    @property
    def bytes(self):
        """Bytes outside the arena."""
        return fx_recording_bytes(self._opened())

    @property
    def entry(self):
        """The entry at which the last run failed or stopped."""
        return fx_recording_entry(self._opened())

    def turns(self, uint32_t counter):
        """Turns that a loop took in the last run, by its counter."""
        return fx_recording_counter(self._opened(), counter)

    cdef int _go(self, _Call call, bint goes_on, fx_recording_stats *stats) except -1:
        cdef fx_recording *recording = self._opened()
        cdef fx_interrupt interrupt
        cdef fx_error error
        cdef fx_status status
        self.engine._idle()
        cdef list pending = [self.engine.watch]
        interrupt.is_wanted, interrupt.arg = _watched, <void *>pending
        self.engine.busy = True
        try:
            with nogil:
                status = fx_recording_run(recording, call.pointers, call.sizes, goes_on, &interrupt, stats, &error)
        finally:
            self.engine.busy = False
        if len(pending) > 1:
            raise pending[1]
        if status != FX_OK:
            _err_raise(&error)
        return 0

    def run(self, buffers, bint goes_on=False):
        """One run over contiguous arrays; with ``goes_on``, the rest of a run that stopped. Returns the entry that
        stopped it or -1, ``run_ns``, ``stall_ns`` and ``bytes_read``. Errors as BoundProgram.run."""
        cdef fx_recording_stats stats
        cdef _Call call
        if len(buffers) != self.buffer_count:
            raise ValueError(f"{len(buffers)} buffers, not {self.buffer_count}")
        call = _Call(self.buffer_count)
        call.take_all(buffers, self.input_count)
        self._go(call, goes_on, &stats)
        return stats.stopped, stats.run.run_ns, stats.run.stall_ns, stats.run.bytes_read

    def repeat(self, Signature signature not None, feed, list into=None):
        """One run over the arrays of a feed, which never stops: its outputs (those of ``into``, if given), and ``run_ns``,
        ``stall_ns`` and ``bytes_read``. None, without a run, where the feed is not like the signature. Errors as ``run``."""
        cdef fx_recording_stats stats
        cdef _Call call
        if signature.buffer_count != self.buffer_count:
            raise ValueError(f"{signature.buffer_count} buffers, not {self.buffer_count}")
        call = signature._call(feed, into)
        if call is None:
            return None
        self._go(call, False, &stats)
        return call.outputs, (stats.run.run_ns, stats.run.stall_ns, stats.run.bytes_read)

    def close(self):
        """Free the recording. Closing twice is fine. RuntimeError during a run."""
        if self.engine is not None and self.engine.busy:
            raise RuntimeError("the session is running")
        self._let_go()
