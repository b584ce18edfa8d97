"""Turns: calls of one session, or of all sessions of a pool, come one after the other."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import ClassVar, Protocol

from flexnn._core import CallTurns
from flexnn._core import Ending as Ending

from .engine import SessionError


class Closes(Protocol):
    """A run, or the arena of a pool: it has an end."""

    def close(self, *, learn: bool = True) -> None:
        """Give everything back."""
        ...


class Turns(CallTurns):
    """Calls that take turns, and none inside another; what is closed meanwhile goes at the end of the call.

    ``is_busy``: whether a call goes on. ``leaving``: runs (``Closes``) of sessions that were closed, or of
    a pool that nobody closed; they go when no call goes on and they may leave.
    """

    _forks: ClassVar[list[int]] = [0]
    """How often this process, and those that it comes from, were forked."""

    def __init__(self) -> None:
        super().__init__(self._forks)
        self.may_leave: Callable[[], bool] = lambda: True
        """Whether closing a run need not wait for a device. A session's engine goes with it, and does not wait."""
        self.ending: Ending | None = None
        """Object that closes the engine of a pool that nobody closed, with its last session."""

    @classmethod
    def forked(cls) -> None:
        """Note that this process was forked; asking the system before each run would take a tenth of a short one."""
        cls._forks[0] += 1

    def refusal(self) -> SessionError:
        """Return the error of a call inside another one of the same thread."""
        return SessionError("this thread is in a call of the session already: a signal handler may only close it")

    def take_if_free(self, call: Callable[[], object], failed: Callable[[BaseException], None]) -> None:
        """Do ``call`` unless another call goes on."""

        def taken() -> None:
            if not self.is_busy:
                self.take(call, failed)

        self.lock.if_free(taken)

    def leave(self, run: Closes | None, *, is_last: bool = False) -> None:
        """Close a run, and those that were to be closed before, after the call that goes on. ``is_last``: then all
        others may leave, too.
        """
        if is_last:
            self.may_leave = lambda: True
        if run is not None:
            self.leaving.insert(0 if is_last else len(self.leaving), run)
        with self.lock:
            self.release()

    def release(self) -> None:
        """Close what is to leave, unless a call goes on."""
        while self.leaving and not self.is_busy:
            self.is_busy = True  # what a signal handler closes meanwhile comes in its turn
            try:
                if not self.may_leave():
                    break
                self.leaving[0].close(learn=not sys.is_finalizing())  # then nothing can be kept for other sessions
                del self.leaving[0]
            finally:
                self.is_busy = False


os.register_at_fork(after_in_child=Turns.forked)
