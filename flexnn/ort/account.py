"""The budget of this process, which its sessions share: ``FLEXNN_MEMORY``, or none.

A session is opened with what the others leave, and at least with an equal part: those that hold more give back. A run
that needs more than its session holds gets it from the others, too. Sessions never hold more than the budget together.
``FLEXNN_MEMORY=auto`` is a budget that follows the system (flexnn/system).
"""

from __future__ import annotations

import os
import weakref
from _thread import RLock
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from flexnn.planning import BudgetError
from flexnn.session import Session, SessionError
from flexnn.units import asks_system, format_bytes, parse_bytes

from .errors import OutOfBudget

if TYPE_CHECKING:
    from flexnn.system.watcher import Watcher


class _Share:
    """A session, and the bytes that it may take."""

    def __init__(self, session: Session, nbytes: int) -> None:
        self._session = weakref.ref(session)
        self._is_fixed = "values" not in session.statistics()["bytes"]
        self._set(session, nbytes)

    def _set(self, session: Session, nbytes: int) -> None:
        self.nbytes = session.session_bytes if self._is_fixed else nbytes  # it never takes more than it does now

    @property
    def session(self) -> Session | None:
        """The session; None: nobody has it any more."""
        return self._session()

    def raise_by(self, nbytes: int) -> None:
        """Take so many bytes more, or as many of them as the model makes use of."""
        session = self.session
        if session is not None and nbytes > 0:
            wanted = self.nbytes + nbytes
            with suppress(BudgetError, SessionError):
                session.memory = wanted
                self._set(session, wanted)

    def lower(self, nbytes: int) -> None:
        """Give bytes back, down to ``nbytes`` or the least that the model takes."""
        session, wanted = self.session, nbytes
        while session is not None and wanted < self.nbytes:
            try:
                session.memory = wanted
                self.nbytes = wanted
            except BudgetError as error:
                wanted = max(error.minimum, wanted + 1)
            except SessionError:  # closed, or its device does not answer: it keeps what it has
                return


class Account:
    """The budget of a process, in bytes; None: no limit."""

    def __init__(self, total: int | None) -> None:
        self.total = total
        self.most_bytes = 0
        """Most bytes that sessions took at the same time, as far as was looked."""
        self._lock = RLock()
        self._shares: list[_Share] = []
        self._watcher: Watcher | None = None
        """Follower of the system's memory; None: the budget stays."""

    # ---- a budget that follows the system ----

    def follow(self, reserve: int) -> None:
        """Follow the system from now on, leaving so many bytes to others."""
        from flexnn.system.idle import watch
        from flexnn.system.limits import Limits
        from flexnn.system.watcher import Watcher

        self._watcher = Watcher(self, Limits(), reserve, grows=True, name="the sessions of this process")
        watch(self._idle)

    def check(self) -> None:
        """Look at the system's memory before a run."""
        if self._watcher is not None:
            with self._lock:
                self._watcher.check()

    def ran(self, run_ns: int) -> None:
        """Learn that a run has ended."""
        if self._watcher is not None:
            self._watcher.ran(run_ns)

    def _idle(self) -> bool:
        if self._watcher is not None and self._lock.acquire(blocking=False):
            try:
                self._watcher.check(may_grow=False)
            finally:
                self._lock.release()
        return True

    @property
    def memory(self) -> int | None:
        """The budget in bytes."""
        return self.total

    @property
    def session_bytes(self) -> int:
        """Bytes that all sessions take."""
        return sum(session.session_bytes for share in self._live() if (session := share.session))

    def rebudget(self, memory: int | None) -> None:
        """Give the sessions another budget. Raises BudgetError, with those that can have given back, where they need
        more.
        """
        with self._lock:
            before, self.total = self.total, memory
            if memory is None or before is None:
                return
            self._free(0)
            if self._left() < 0:
                self.total = memory - self._left()
                raise BudgetError(self.total, memory)
            for share in self._live() if memory > before else ():
                share.raise_by(self._left())

    # ---- sessions ----

    def open(self, make: Callable[[int | None], Session]) -> Session:
        """Return the session that ``make`` opens with a budget. Raises OutOfBudget, and what ``make`` raises."""
        with self._lock:
            self.check()
            resident = self._watcher.resident() if self._watcher is not None else 0
            if self.total is None:
                session, left = make(None), 0
            else:
                self._free(self.total // (len(self._live()) + 1), fair=True)
                try:
                    session = make(max(self._left(), 1))
                except BudgetError as error:
                    self._free(error.minimum)
                    if error.minimum > self._left():
                        raise self._refusal(error) from None
                    session = make(self._left())
                left = self._left()
            self._shares.append(_Share(session, left))
            if self._watcher is not None:
                self._watcher.opened(max(self._watcher.resident() - resident, 0))
            self.look()
            return session

    def grow(self, session: Session, error: BudgetError) -> None:
        """Give a session at least the bytes that a refused run needs. Raises OutOfBudget."""
        with self._lock:
            share = next((share for share in self._live() if share.session is session), None)
            if self.total is None or share is None:
                raise error
            held, share.nbytes = share.nbytes, 0
            self._free(error.minimum, but=share)
            left = self._left()
            share.nbytes = held
            if error.minimum > left:
                raise self._refusal(error) from None
            session.memory = left
            share.nbytes = left

    def look(self) -> None:
        """Note how many bytes all sessions take."""
        self.most_bytes = max(self.most_bytes, self.session_bytes)

    def _live(self) -> list[_Share]:
        self._shares = [share for share in self._shares if share.session is not None and not share.session.closed]
        return self._shares

    def _left(self) -> int:
        assert self.total is not None
        return self.total - sum(share.nbytes for share in self._live())

    def _free(self, wanted: int, *, fair: bool = False, but: _Share | None = None) -> None:
        """Have sessions give back until ``wanted`` bytes are left, those that hold most first; ``fair``: none goes
        below that.
        """
        for share in sorted(self._live(), key=lambda share: share.nbytes, reverse=True):
            short = wanted - self._left()
            if short <= 0:
                return
            target = max(share.nbytes - short, wanted if fair else 1)
            if share is not but and target < share.nbytes:
                share.lower(target)

    def _refusal(self, error: BudgetError) -> OutOfBudget:
        assert self.total is not None
        held = self.total - self._left()
        if not self._shares:
            return OutOfBudget(error.minimum, self.total, error.how)
        others = f"the {len(self._shares)} other sessions of this process hold {format_bytes(held)}, their least"
        least = f"this model{error.how} needs {format_bytes(error.minimum)}"
        helps = f"a budget of {format_bytes(error.minimum + held)} would do"
        return OutOfBudget(error.minimum + held, self.total, text=f"{least}, and {others}: {helps}")


def _from_environment() -> Account:
    given = os.environ.get("FLEXNN_MEMORY")
    if given and asks_system(given):
        from flexnn.system.asked import find  # most budgets are sizes

        found = find(given)
        account = Account(found.memory)
        if found.reserve is not None:
            account.follow(found.reserve)
        return account
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
