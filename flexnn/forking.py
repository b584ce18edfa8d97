"""A copy of this process that makes an artifact: it has numpy and FlexNN, which a new process takes longer to import
than a small model takes to compile.

A copy also has what the program did to this process, and other threads are missing in it. So it is made only where no
other thread of Python's is and the process is small; it closes the program's files, has none of its handlers run, ends
without tidying up, and what fails in it is done again by a new process.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import signal
import sys
import warnings
from collections.abc import Callable
from typing import NoReturn

from flexnn.system.process import resident

FORK = "FLEXNN_FORK"
"""Variable of the environment: "0" has artifacts made by new processes only."""
RESIDENT_MAX = 256 << 20
"""Most bytes of a process that is copied: what it writes to meanwhile is there twice."""
PATCHING = frozenset({"eventlet", "gevent"})
"""Packages that put other threads in the place of Python's."""
POOLS = ("libgomp", "libomp", "libiomp", "libmkl", "libblis")
"""Libraries whose threads a copy would wait for, as they do not notice that they are gone. OpenBLAS's own do."""
_THREADS = "blas_cpu_number"
"""Variable of OpenBLAS: the number of threads that it may take."""
_SINGLE = [f"{begin}openblas_set_num_threads{end}" for begin in ("scipy_", "") for end in ("64_", "")]
"""Names of OpenBLAS's function that sets it. In a copy, it first starts all threads again; they look for work for some
30 ms, on a CPU that the copy and what it asks for want.
"""


def may_copy() -> bool:
    """Return whether a copy of this process can do work of its own."""
    if os.environ.get(FORK) == "0" or len(sys._current_frames()) > 1 or not PATCHING.isdisjoint(sys.modules):
        return False
    return resident()[0] <= RESIDENT_MAX and not any(pool in path for path in _libraries() for pool in POOLS)


def _libraries() -> set[str]:
    """Return the paths of all files that are mapped."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        return {line[at:].rstrip() for line in maps if (at := line.find("/")) >= 0}


def copied(work: Callable[[], int], writes: int, terminal: int | None, kept: tuple[int, ...] = ()) -> int:
    """Have a copy of this process do ``work`` and end with the status that it returns; return its number. All that it
    prints goes to ``writes``; ``terminal``: a descriptor that becomes this process's standard error; ``kept``: others
    that it has. Raises OSError.
    """
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # no handler may run in both
    tracing, profiling = sys.gettrace(), sys.getprofile()
    try:
        sys.settrace(None)
        sys.setprofile(None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # from 3.12 on, one where the system knows of threads, like those of BLAS
            process = os.fork()
        if not process:
            _work(work, writes, terminal, kept)
        return process
    finally:
        sys.setprofile(profiling)
        sys.settrace(tracing)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _work(work: Callable[[], int], writes: int, terminal: int | None, kept: tuple[int, ...]) -> NoReturn:
    """Do the work of the copy, and end it."""
    status = 2
    try:
        gc.freeze()  # no object of the program's is ever collected here
        _leave_files(writes, terminal, kept)
        _leave_handlers()
        _leave_settings()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        status = work()
    finally:
        os._exit(status)


_held: list[object] = []
"""Objects of the program's that must not end here: ending a file writes what is left in it."""


def _leave_files(writes: int, terminal: int | None, others: tuple[int, ...]) -> None:
    """Close all descriptors but those of the copy, and print to ``writes``."""
    signal.set_wakeup_fd(-1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    kept = {0, 1, 2, *others}
    printed = fcntl.fcntl(writes, fcntl.F_DUPFD, 10)  # it may be one of the numbers that follow
    if terminal is not None:
        os.dup2(2, terminal)
        kept.add(terminal)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with contextlib.suppress(OSError):  # that of the list itself
                os.close(int(name))
    _held.extend((sys.stdin, sys.stdout, sys.stderr))
    sys.stdin = None
    sys.stdout = sys.stderr = os.fdopen(1, "w", encoding="utf-8", errors="backslashreplace", closefd=False)


def _leave_handlers() -> None:
    """Take signals as a new process does."""
    for number in signal.valid_signals():
        with contextlib.suppress(OSError, ValueError):  # some cannot be handled
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)


def _leave_settings() -> None:
    """Compute as a new process does: what the program made of warnings and of numpy's errors is its own."""
    warnings.simplefilter("ignore")
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.seterr(divide="warn", over="warn", under="ignore", invalid="warn")
    _leave_threads()


def _leave_threads() -> None:
    """Have OpenBLAS compute in this thread: others would wait for work on CPUs that are wanted."""
    import ctypes  # numpy has imported it

    for path in _libraries():
        if "openblas" in path:
            library = ctypes.CDLL(path)
            with contextlib.suppress(ValueError):
                ctypes.c_int.in_dll(library, _THREADS).value = 1
                continue
            for name in _SINGLE:
                if hasattr(library, name):
                    getattr(library, name)(1)
