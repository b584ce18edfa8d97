"""A run whose budget follows the system (flexnn/system): it is looked at before each run, and between runs that are
seldom.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flexnn.artifact import Artifact
from flexnn.graph.ir import Array
from flexnn.graph.ports import Port
from flexnn.planning import BudgetError, Plan
from flexnn.system.asked import find
from flexnn.system.limits import Limits
from flexnn.system.watcher import Watcher

from .fixed import FixedRun
from .protocol import Run


def open_watched(make: Callable[[int], Run], text: str, path: str) -> Run:
    """Return the run that ``make`` opens with the budget that ``text`` asks of the system. Raises what it raises."""
    limits = Limits()
    before = limits.resident()
    try:
        found = find(text)
        run = make(found.memory)
    except BaseException:
        limits.close()
        raise
    if found.reserve is None:
        limits.close()
        return run
    return WatchedRun(run, limits, found.reserve, os.path.basename(path), limits.resident() - before)


def rebudgeted(run: Run, text: str, path: str) -> Run:
    """Give a run the budget that ``text`` asks of the system; return what runs from now on. Raises as it does."""
    inner = run.inner if isinstance(run, WatchedRun) else run
    limits = Limits()  # first: what fails now leaves the old budget
    try:
        found = find(text, inner.session_bytes)
        run.rebudget(found.memory)
    except BaseException:
        limits.close()
        raise
    if found.reserve is None:
        limits.close()
        return inner
    return WatchedRun(inner, limits, found.reserve, os.path.basename(path), 0)


class WatchedRun:
    """A ``Run`` that changes the budget of another one, which it owns, before it runs it."""

    def __init__(self, run: Run, limits: Limits, reserve: int, name: str, owned: int) -> None:
        self.inner = run
        self.watcher: Watcher | None = Watcher(run, limits, reserve, grows=not isinstance(run, FixedRun), name=name)
        """None: the budget does not follow the system any more."""
        self.watcher.opened(owned)
        self.artifact: Artifact = run.artifact
        self.inputs: Sequence[Port] = run.inputs
        self.outputs: Sequence[Port] = run.outputs
        self.threads = run.threads
        self._is_checked = False
        """Whether this run was looked at already: one that could not be repeated."""

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
            outputs = self.inner.run(inputs, into)
        except BudgetError as error:
            if not self.watcher.gives(error.minimum):
                raise
            outputs = self.inner.run(inputs, into)
        self.watcher.ran(time.monotonic_ns() - started)
        return outputs

    def repeat(self, feed: Mapping[str, Any]) -> list[Array] | None:
        """Return all outputs of a run like the last, or None."""
        if self.watcher is None:
            return self.inner.repeat(feed)
        self.watcher.check()
        outputs = self.inner.repeat(feed)
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
            self.watcher.close()
            self.watcher = None

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

    def release(self) -> None:
        """Give back descriptors and arrays only."""
        self._unwatch()
        self.inner.release()
