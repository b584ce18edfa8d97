"""Turns: calls of one session, or of all sessions of a pool, come one after the other."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import ClassVar, Protocol, TypeVar

from flexnn._core import Ending as Ending
from flexnn._core import TurnLock

from .engine import SessionError

_T = TypeVar("_T")


class Closes(Protocol):
    """A run, or the arena of a pool: it has an end."""

    def close(self, *, learn: bool = True) -> None:
        """Give everything back."""
        ...


class Turns:
    """Calls that take turns, and none inside another; what is closed meanwhile goes at the end of the call."""

    _forks: ClassVar[int] = 0
    """How often this process, and those that it comes from, were forked."""

    def __init__(self) -> None:
        self._born = Turns._forks
        self.lock = TurnLock()  # also for the thread that has it: a signal handler may call while a run goes on
        self.is_busy = False
        """Whether a call goes on."""
        self.may_leave: Callable[[], bool] = lambda: True
        """Whether closing a run need not wait for a device. A session's engine goes with it, and does not wait."""
        self.leaving: list[Closes] = []
        """Runs of sessions that were closed, or of a pool's that nobody closed; they are closed when no call goes on
        and they may leave.
        """
        self.ending: Ending | None = None
        """Object that closes the engine of a pool that nobody closed, with its last session."""

    @property
    def is_foreign(self) -> bool:
        """Whether this is a process that was forked since; the lock may be held by a thread that it does not have."""
        return self._born != Turns._forks

    @classmethod
    def forked(cls) -> None:
        """Note that this process was forked; asking the system before each run would take a tenth of a short one."""
        cls._forks += 1

    def take(self, call: Callable[..., _T], failed: Callable[[BaseException], None], *arguments: object) -> _T:
        """Return what ``call`` does with ``arguments`` when the calls of other threads are done; ``failed`` is told
        what it raises. Raises SessionError inside another call of this thread.
        """
        with self.lock:
            if self.is_busy:
                raise SessionError(
                    "this thread is in a call of the session already: a signal handler may only close it"
                )
            if self.leaving:  # of sessions that nobody closed
                self._release()
            self.is_busy = True
            try:
                return call(*arguments)
            except BaseException as error:
                failed(error)
                raise
            finally:
                self.is_busy = False
                if self.leaving:
                    self._release()

    def take_if_free(self, call: Callable[[], _T], failed: Callable[[BaseException], None]) -> None:
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
            self._release()

    def _release(self) -> None:
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
