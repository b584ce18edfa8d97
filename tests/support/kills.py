"""Processes that are killed at a system call: a child made by fork, traced (ptrace) from here."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from typing import Any

_TRACEME, _SYSCALL, _SETOPTIONS = 0, 24, 0x4200
_EXITKILL, _SYSGOOD = 0x100000, 1
_SET_CHILD_SUBREAPER = 36
_STOPPED_AT_CALL = signal.SIGTRAP | 0x80
_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_libc.ptrace.restype = ctypes.c_long


def _ptrace(request: int, pid: int, data: int = 0) -> None:
    if _libc.ptrace(request, pid, None, data) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def adopt() -> None:
    """Become the parent of what killed children leave running, so that ``wait`` waits for it, too."""
    _libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def wait() -> None:
    """Wait for all children."""
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def stops(action: Callable[[], Any], kill_at: int | None = None) -> int:
    """Run ``action`` in a child, which is killed at stop ``kill_at``: each system call of the thread that acts is two
    stops, before and after it. Return how many stops there were. Raises OSError where nothing can be traced, and
    RuntimeError if the action fails.
    """
    pid = os.fork()
    if not pid:
        status = 3
        try:
            _ptrace(_TRACEME, 0)
            os.kill(os.getpid(), signal.SIGSTOP)
            action()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    if not os.WIFSTOPPED(status):
        raise OSError("a child cannot be traced")
    _ptrace(_SETOPTIONS, pid, _EXITKILL | _SYSGOOD)
    count, passed = 0, 0
    while True:
        _ptrace(_SYSCALL, pid, passed)
        _, status = os.waitpid(pid, 0)
        if not os.WIFSTOPPED(status):
            if os.WIFEXITED(status) and os.WEXITSTATUS(status):
                raise RuntimeError(f"the action failed with status {os.WEXITSTATUS(status)}")
            return count
        passed = os.WSTOPSIG(status)
        if passed == _STOPPED_AT_CALL:
            passed = 0
            count += 1
            if count == kill_at:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return count
