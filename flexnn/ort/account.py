"""The budget of this process: ``FLEXNN_MEMORY`` (a size, "50%" or "auto"), or none. Its sessions are those of one
pool.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from _thread import RLock
from collections.abc import Iterator
from typing import TYPE_CHECKING

from flexnn.run.options import budget
from flexnn.session import Session, SessionError
from flexnn.system.process import resident

if TYPE_CHECKING:
    from flexnn.pool import Pool


class Account:
    """The budget of a process, as Pool takes it; None: no limit, and sessions of their own."""

    def __init__(self, given: int | str | None) -> None:
        self._given = given
        self.most_bytes = 0
        """Most bytes that sessions took at the same time, as far as was looked: as their plans count them, but no more
        than the process grew, as not all of an arena is touched.
        """
        self._before_bytes = -1
        """Bytes that the process had before the first session; -1: there was none."""
        self._lock = RLock()
        self._pool: Pool | None = None
        self._sessions: list[weakref.ref[Session]] = []

    @property
    def total(self) -> int | None:
        """The budget in bytes, as it is now; None: no limit."""
        return self._pool.memory if self._pool is not None else None if self._given is None else budget(self._given)

    def open(self, path: str, threads: int | None = None, *, trace: bool = False) -> Session:
        """Return a session. The first one's threads are those of all, where they share a budget. Raises as Pool.open
        does.
        """
        if self._before_bytes < 0:
            self._before_bytes, _ = resident()
        if self._given is None:
            session = Session(path, None, threads, trace=trace)
        else:
            session = self._shared(threads, trace).open(path)
        with self._lock:
            self._sessions.append(weakref.ref(session))
        self.look()
        return session

    def _shared(self, threads: int | None, trace: bool) -> Pool:
        from flexnn.pool import Pool  # programs without a budget do without

        with self._lock:
            if self._pool is None:
                self._pool = Pool(self._given, threads, trace=trace)
            return self._pool

    def look(self) -> None:
        """Note how many bytes all sessions take: no more than the process grew by."""
        with contextlib.suppress(SessionError):  # a signal handler asks
            pool = self._pool
            taken = sum(session.session_bytes for session in self._open()) if pool is None else pool.session_bytes
            self.most_bytes = max(self.most_bytes, min(taken, resident()[1] - self._before_bytes))

    def _open(self) -> Iterator[Session]:
        with self._lock:
            opened = [session for found in self._sessions if (session := found()) is not None and not session.closed]
            self._sessions = [weakref.ref(session) for session in opened]
        yield from opened


def _from_environment() -> Account:
    given = os.environ.get("FLEXNN_MEMORY")
    if given:
        budget(given)
    return Account(given or None)


class _Process:
    """The account of this process: a forked one has its own, of the same size."""

    def __init__(self) -> None:
        self._pid, self._account = -1, Account(None)

    def account(self) -> Account:
        """Return the account. Raises ValueError where FLEXNN_MEMORY is no size."""
        if self._pid != os.getpid():
            self._account = _from_environment()
            self._pid = os.getpid()
        return self._account


account = _Process().account
