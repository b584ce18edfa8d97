# A lock that loses no signal: neither while a thread waits for it, nor between taking it and what is done under it.
from _thread import RLock as _RLock


cdef class TurnLock:
    """A lock that one thread has at a time; the one that has it may take it again. ``with`` waits for it, and sees
    signals and what other threads raise (raise_in) every 20 ms: a signal that comes a moment before the wait, or that
    the system gives to another thread, ends none. From where it is taken, nothing is raised before the block begins,
    which would leave it taken for ever."""

    cdef object _take
    cdef object _release

    def __init__(self):
        lock = _RLock()
        self._take, self._release = lock.acquire, lock.release

    cdef int _wait(self) except -1:
        if not self._take(False):
            while not self._take(True, 0.02):
                PyErr_CheckSignals()
                _bytecode()
        return 0

    def __enter__(self):
        self._wait()

    def __exit__(self, *_):
        self._release()

    def if_free(self, call):
        """Do ``call`` under the lock, unless another thread has it."""
        if self._take(False):
            try:
                call()
            finally:
                self._release()


cdef class CallTurns:
    """Calls that take turns under ``lock``, one inside another never. In C, as most runs are short: in caches that a run
    left cold, each line of Python takes as long as ten. ``forks`` holds how often this process was forked."""

    cdef readonly TurnLock lock
    cdef public bint is_busy
    cdef public list leaving
    cdef list forks
    cdef object born

    def __init__(self, list forks not None):
        self.lock = TurnLock()  # also for the thread that has it: a signal handler may call while a run goes on
        self.is_busy = False
        self.leaving = []
        self.forks, self.born = forks, forks[0]

    @property
    def is_foreign(self):
        """Whether this is a process that was forked since; the lock may be held by a thread that it does not have."""
        return self.forks[0] != self.born

    def take(self, call, failed, *arguments):
        """What ``call`` returns for ``arguments`` when the calls of other threads are done; ``failed`` is told what it
        raises. SessionError inside another call of this thread."""
        self.lock._wait()
        try:
            if self.is_busy:
                raise self.refusal()
            if self.leaving:  # of sessions that nobody closed
                self.release()
            self.is_busy = True
            try:
                return PyObject_Call(call, arguments, NULL)
            except BaseException as error:
                failed(error)
                raise
            finally:
                self.is_busy = False
                if self.leaving:
                    self.release()
        finally:
            self.lock._release()
