"""The budget of this process: ``FLEXNN_MEMORY``, or none. Its sessions are those of one pool."""

from __future__ import annotations

import contextlib
import os
import weakref
from _thread import RLock
from collections.abc import Iterator
from typing import TYPE_CHECKING

from flexnn.session import Session, SessionError
from flexnn.units import parse_bytes

if TYPE_CHECKING:
    from flexnn.pool import Pool


class Account:
    """The budget of a process, in bytes; None: no limit, and sessions of their own."""

    def __init__(self, total: int | None) -> None:
        self.total = total
        self.most_bytes = 0
        """Most bytes that sessions took at the same time, as far as was looked."""
        self._lock = RLock()
        self._pool: Pool | None = None
        self._sessions: list[weakref.ref[Session]] = []

    def open(self, path: str, threads: int | None = None, *, trace: bool = False) -> Session:
        """Return a session. The first one's threads are those of all, where they share a budget. Raises as Pool.open
        does.
        """
        if self.total is None:
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
                self._pool = Pool(self.total, threads, trace=trace)
            return self._pool

    def look(self) -> None:
        """Note how many bytes all sessions take."""
        with contextlib.suppress(SessionError):  # a signal handler asks
            taken = sum(session.session_bytes for session in self._open()) if self._pool is None else 0
            self.most_bytes = max(self.most_bytes, taken if self._pool is None else self._pool.session_bytes)

    def _open(self) -> Iterator[Session]:
        with self._lock:
            opened = [session for found in self._sessions if (session := found()) is not None and not session.closed]
            self._sessions = [weakref.ref(session) for session in opened]
        yield from opened


def _from_environment() -> Account:
    given = os.environ.get("FLEXNN_MEMORY")
    return Account(parse_bytes(given) if given else None)


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
