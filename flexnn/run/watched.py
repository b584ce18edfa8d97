"""A run whose budget follows the system (flexnn/system): it is looked at before each run, and between runs that are
seldom.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flexnn._core import Ending
from flexnn.artifact import Artifact
from flexnn.graph.ir import Array
from flexnn.graph.ports import Port
from flexnn.planning import BudgetError, Plan
from flexnn.system.asked import Followed, take
from flexnn.system.watcher import BrokenOff, Watcher

from .fixed import FixedRun
from .protocol import Run

BREAKS = 3
"""Most times that a run is broken off; after the last one the budget is the smallest."""


def open_watched(make: Callable[[int], Run], text: str, path: str) -> Run:
    """Return the run that ``make`` opens with the budget that ``text`` asks of the system. Raises what it raises."""
    made: list[Run] = []
    followed = take(text, lambda memory: made.append(make(memory)))
    return made[0] if followed is None else WatchedRun(made[0], followed, os.path.basename(path), followed.taken)


def rebudgeted(run: Run, text: str, path: str) -> Run:
    """Give a run the budget that ``text`` asks of the system; return what runs from now on. Raises as it does."""
    inner = run.inner if isinstance(run, WatchedRun) else run
    followed = take(text, run.rebudget, inner.session_bytes)
    return inner if followed is None else WatchedRun(inner, followed, os.path.basename(path), 0)


class WatchedRun:
    """A ``Run`` that changes the budget of another one, which it owns, before it runs it."""

    def __init__(self, run: Run, followed: Followed, name: str, owned: int) -> None:
        self.inner = run
        grows = not isinstance(run, FixedRun)
        self.watcher: Watcher | None = Watcher(run, followed.limits, followed.reserve, grows=grows, name=name)
        """None: the budget does not follow the system any more."""
        self.watcher.opened(owned)
        self._watch()
        self.artifact: Artifact = run.artifact
        self.inputs: Sequence[Port] = run.inputs
        self.outputs: Sequence[Port] = run.outputs
        self.threads = run.threads
        self._is_checked = False
        """Whether this run was looked at already: one that could not be repeated."""
        self._is_broken = False
        """Whether this run was broken off before."""

    @property
    def memory(self) -> int | None:
        """The budget in bytes, as it is now."""
        return self.inner.memory

    @property
    def plan(self) -> Plan:
        """The plan."""
        return self.inner.plan

    @property
    def session_bytes(self) -> int:
        """Bytes that the run owns."""
        return self.inner.session_bytes

    @property
    def last_run(self) -> dict[str, int]:
        """Figures of the last complete run."""
        return self.inner.last_run

    def run(self, inputs: Sequence[Array], into: Sequence[Array | None] | None = None) -> list[Array]:
        """Return all outputs; ``into``: as for every run. Raises SessionError, BudgetError, GraphError."""
        if self.watcher is None:
            return self.inner.run(inputs, into)
        if not self._is_checked:
            self.watcher.check()
        self._is_checked = False
        started = time.monotonic_ns()
        try:
            outputs = self._unbroken(inputs, into)
        except BudgetError as error:
            if not self.watcher.gives(error.minimum):
                raise
            outputs = self._unbroken(inputs, into)
        finally:
            self._is_broken = False
        self.watcher.ran(time.monotonic_ns() - started)
        return outputs

    def _unbroken(self, inputs: Sequence[Array], into: Sequence[Array | None] | None) -> list[Array]:
        """Return all outputs of a run; one that is broken off runs again from its beginning, in a smaller budget."""
        for tries_left in reversed(range(BREAKS)):
            try:
                return self.inner.run(inputs, into)
            except BrokenOff:
                self._shrink(is_last=not tries_left)
            except BudgetError as error:
                if not self._is_broken or self.watcher is None:
                    raise
                self.watcher.needs(error.minimum)  # the caller's run had begun
                break
        self.inner.watch(None)
        try:
            return self.inner.run(inputs, into)
        finally:
            self._watch()

    def _shrink(self, *, is_last: bool) -> None:
        """Give all back, at once, after a run that was broken off, and shrink the budget."""
        assert self.watcher is not None
        self._is_broken = True
        self.inner.suspect()
        self.inner.give_back()
        self.watcher.broken_off(is_last=is_last)

    def _watch(self) -> None:
        """Have runs broken off where others take the reserve meanwhile."""
        assert self.watcher is not None
        self.inner.watch(self.watcher.look_inside)

    def repeat(self, feed: Mapping[str, Any]) -> list[Array] | None:
        """Return all outputs of a run like the last, or None."""
        if self.watcher is None:
            return self.inner.repeat(feed)
        self.watcher.check()
        try:
            outputs = self.inner.repeat(feed)
        except BrokenOff:
            self._shrink(is_last=False)
            outputs = None
        self._is_checked = outputs is None
        if outputs is not None:
            self.watcher.ran(self.inner.last_run["run_ns"])
        return outputs

    def idle(self) -> None:
        """Give back what others need, between runs."""
        if self.watcher is not None:
            self.watcher.check(may_grow=False)

    def rebudget(self, memory: int | None) -> None:
        """Plan again for another budget, which follows the system no more. Raises BudgetError, SessionError."""
        self.inner.rebudget(memory)
        self._unwatch()

    def _unwatch(self) -> None:
        if self.watcher is not None:
            self.inner.watch(None)
            self.watcher.close()
            self.watcher = None

    def watch(self, look: Callable[[], None] | None) -> None:
        """Have a function called every 20 ms of runs, instead of the watcher's. None: no more."""
        self.inner.watch(look)

    def give_back(self) -> None:
        """Give back all memory that the engine has, between runs."""
        self.inner.give_back()

    def suspect(self) -> None:
        """Learn that a call failed."""
        self.inner.suspect()

    def statistics(self) -> dict[str, Any]:
        """Return figures of the run."""
        return self.inner.statistics()

    def trace_events(self) -> dict[str, Any]:
        """Return the last run as trace events. Raises SessionError."""
        return self.inner.trace_events()

    def close(self, *, learn: bool = True) -> None:
        """Give everything back."""
        self._unwatch()
        self.inner.close(learn=learn)

    def ending(self) -> Ending:
        """Return what closes engine and files when nobody closed the session."""
        return self.inner.ending()

    def release(self) -> None:
        """Give back descriptors and arrays only."""
        self._unwatch()
        self.inner.release()
