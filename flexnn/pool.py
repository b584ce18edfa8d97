"""A pool: sessions of many models inside one budget, with one arena."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from flexnn.planning import BudgetError
from flexnn.run.engine import SessionError
from flexnn.run.opening import open_pooled
from flexnn.run.options import GivenGroups, Io, Profile, RunOptions, run_options
from flexnn.run.sharing import SharedArena
from flexnn.run.turns import Ending, Turns
from flexnn.session import Session
from flexnn.units import asks_system, format_bytes, parse_bytes

if TYPE_CHECKING:
    from flexnn.run.protocol import Run

_T = TypeVar("_T")


class Pool:
    """Sessions that share a budget, an arena and threads.

    Opening and running all of them adds at most ``memory`` bytes to the process. Their runs take turns, so activations
    and streamed weights need the memory of the largest model, not the sum of all. Weights stay in the rest, those first
    that save most time for each byte, by how often each model runs: they move when that changes. Outputs count until
    their caller lets them go.

    Args:
        memory: Budget in bytes, or text like ``"48MiB"``, ``"50%"`` or ``"auto"`` (as for Session); None: no limit.
        threads: Compute threads of all sessions; default: the CPUs that this process may use.
        io: As for Session.
        profile: As for Session.
        trace: Whether runs are recorded for ``trace_events``.

    Raises:
        SessionError: Threads do not start.
        ValueError: An option is none of those above.
    """

    def __init__(
        self,
        memory: str | int | None = None,
        threads: int | None = None,
        *,
        io: Io = "buffered",
        profile: Profile | None = None,
        trace: bool = False,
    ) -> None:
        self._begin(run_options(memory, threads, io=io, profile=profile, trace=trace))

    def _begin(self, options: RunOptions) -> None:
        self._options = options._replace(memory=None, asked=None)
        self._turns = Turns()
        self._is_closed = False
        self._shared = SharedArena(options.memory, self._options)
        self._turns.may_leave = self._shared.may_leave
        self._turns.ending = Ending(self._shared.engine.core)
        if options.asked is not None:
            self._ask(options.asked)

    def open(
        self,
        path: str | os.PathLike[str],
        *,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        groups: GivenGroups = None,
        progress: Callable[[str], None] | None = None,
        reuse_outputs: bool = False,
        deterministic: bool = False,
    ) -> Session:
        """Open a model in the pool. Arguments, result and errors are those of Session; what the pool was opened with
        holds for all its sessions.

        The new session gets what is left, and what it needs from the others. A session's ``memory`` is the pool's; set
        the pool's. ``session_bytes`` of sessions have the shared part of the arena in common.

        Raises:
            BudgetError: It does not fit beside the others; ``.minimum`` is the smallest budget of the pool that works.
        """
        own = run_options(
            groups=groups, progress=progress, reuse_outputs=reuse_outputs, deterministic=deterministic, threads=1
        )
        options = self._options._replace(
            groups=own.groups,
            progress=own.progress,
            reuse_outputs=own.reuse_outputs,
            deterministic=own.deterministic,
        )
        session = Session.__new__(Session)
        session._open(os.fsdecode(path), shapes or {}, options, {}, self._opened, self._turns)
        return session

    def _opened(self, path: str, shapes: Mapping[str, tuple[int, ...]], options: RunOptions) -> Run:
        return self._in_turn(lambda: self._open_watched(lambda: open_pooled(path, shapes, options, self._shared)))

    def _open_watched(self, opened: Callable[[], Run]) -> Run:
        watcher = self._shared.watcher
        if watcher is None:
            return opened()
        watcher.check()
        before = watcher.resident()
        run = opened()
        watcher.opened(max(watcher.resident() - before, 0))
        return run

    @property
    def memory(self) -> int | None:
        """The budget in bytes; None: no limit. Assign bytes, text like ``"24MiB"``, ``"50%"`` or ``"auto"``, or None to
        change it, after the run in flight. If that fails, budget and plans are the old ones.

        Raises:
            BudgetError: The new budget is too small; ``.minimum`` is the smallest that works, in bytes.
            ValueError: The new budget is not a size.
            SessionError: The pool is closed or from another process.
        """
        return self._shared.memory

    @memory.setter
    def memory(self, memory: str | int | None) -> None:
        if asks_system(memory):
            self._in_turn(lambda: self._ask(str(memory)))
        else:
            budget = None if memory is None else parse_bytes(memory)
            self._in_turn(lambda: self._rebudget(budget))

    @property
    def session_bytes(self) -> int:
        """Bytes that the sessions own together, as their plans and the outputs that callers hold count; never more than
        ``memory``.
        """
        return self._in_turn(lambda: self._shared.session_bytes)

    @property
    def minimum_memory(self) -> int:
        """Smallest budget of the sessions that are open, in bytes."""
        return self._in_turn(lambda: self._shared.smallest)

    @property
    def threads(self) -> int:
        """Compute threads that run."""
        return self._shared.engine.threads

    @property
    def closed(self) -> bool:
        """Whether the pool was closed."""
        return self._is_closed

    def statistics(self) -> dict[str, Any]:
        """Return figures of the pool: ``sessions``, ``engine_bytes`` (arena, programs and stacks now), ``moves`` (how
        often weights moved as use changed) and ``pinned_bytes`` of each session, in the order in which they came.
        """
        return self._in_turn(self._shared.statistics)

    def close(self) -> None:
        """Close all sessions and give back memory and threads, after the run in flight; closing twice is fine."""
        self._is_closed = True
        if self._turns.is_foreign:
            return
        self._turns.leave(self._shared, is_last=True)

    def _rebudget(self, memory: int | None) -> None:
        self._shared.rebudget(memory)
        self._shared.follow(None)

    def _ask(self, text: str) -> None:
        """Take the budget that ``text`` asks of the system, and follow it where that is asked for."""
        from flexnn.system.asked import take  # most budgets are sizes
        from flexnn.system.idle import watch
        from flexnn.system.watcher import Watcher

        followed = take(text, self._rebudget, self._shared.session_bytes if self._shared.seats else 0)
        if followed is not None:
            self._shared.follow(Watcher(self._shared, followed.limits, followed.reserve, grows=True, name="a pool"))
            watch(self._idle)

    def _idle(self) -> bool:
        """Give back what others need, unless a call is going on; return whether the budget follows the system."""
        watcher = self._shared.watcher
        if self._is_closed or self._turns.is_foreign or watcher is None:
            return False
        self._turns.take_if_free(lambda: None if self._is_closed else watcher.check(may_grow=False), self._failed)
        return True

    def _in_turn(self, call: Callable[[], _T]) -> _T:
        if self._turns.is_foreign:
            raise SessionError("this pool was opened before fork(); open a new one in this process")

        def called() -> _T:
            if self._is_closed:
                raise SessionError("the pool is closed")
            return call()

        return self._turns.take(called, self._failed)

    def _failed(self, error: BaseException) -> None:
        if not isinstance(error, BudgetError):
            self._shared.engine.suspect()

    def __repr__(self) -> str:
        if self._is_closed:
            return "<flexnn.Pool, closed>"
        limit = "no limit" if self._shared.memory is None else format_bytes(self._shared.memory)
        count = len(self._shared.seats)
        return f"<flexnn.Pool of {count} session{'s' if count != 1 else ''}: {limit}, {self.threads} threads>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a pool cannot be copied or pickled; open another one")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_pool_for_tests(memory: str | int | None = None, threads: int | None = None, **switches: Any) -> Pool:
    """Open a pool with switches that only tests have (``RunOptions`` describes them). Not part of the public
    interface.
    """
    pool = Pool.__new__(Pool)
    pool._begin(run_options(memory, threads)._replace(**switches))
    return pool


__all__ = ["Pool"]
