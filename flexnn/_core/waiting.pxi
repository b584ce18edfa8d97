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

    def __enter__(self):
        if not self._take(False):
            while not self._take(True, 0.02):
                PyErr_CheckSignals()
                _bytecode()

    def __exit__(self, *_):
        self._release()

    def if_free(self, call):
        """Do ``call`` under the lock, unless another thread has it."""
        if self._take(False):
            try:
                call()
            finally:
                self._release()
