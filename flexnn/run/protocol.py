"""The protocol between a session and what runs its model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from flexnn._core import Ending
from flexnn.artifact import Artifact
from flexnn.graph.ir import Array
from flexnn.graph.ports import Port
from flexnn.planning import Plan


class Run(Protocol):
    """A model opened for running inside a budget. The caller makes one call at a time and none after ``close``, and
    passes arrays that match ``inputs``.
    """

    @property
    def artifact(self) -> Artifact:
        """The open artifact."""
        ...

    @property
    def inputs(self) -> Sequence[Port]:
        """The model's inputs, in its order."""
        ...

    @property
    def outputs(self) -> Sequence[Port]:
        """The model's outputs, in its order."""
        ...

    @property
    def memory(self) -> int | None:
        """The budget in bytes; None: no limit."""
        ...

    @property
    def threads(self) -> int:
        """Compute threads that run."""
        ...

    @property
    def plan(self) -> Plan:
        """The plan; of several, that of the largest segment. Raises SessionError if there is none yet."""
        ...

    @property
    def session_bytes(self) -> int:
        """Bytes that the run owns, as its plans account for them."""
        ...

    @property
    def last_run(self) -> dict[str, int]:
        """Figures of the last complete run: ``run_ns``, ``stall_ns``, ``bytes_read``."""
        ...

    def run(self, inputs: Sequence[Array], into: Sequence[Array | None] | None = None) -> list[Array]:
        """Return all outputs, in the model's order; ``into``: the array of each, None where the run makes it. Raises
        SessionError, BudgetError, GraphError, and ValueError where an array does not fit.
        """
        ...

    def repeat(self, feed: Mapping[str, Any]) -> list[Array] | None:
        """Return all outputs of a run like the last; None, without a run, where there was none or the feed is not like
        its. Raises SessionError.
        """
        ...

    def rebudget(self, memory: int | None) -> None:
        """Plan again for another budget, in place. Raises BudgetError, SessionError; the old budget stays then."""
        ...

    def watch(self, look: Callable[[], None] | None) -> None:
        """Have a function called every 20 ms of runs; what it raises breaks the run off. None: no more."""
        ...

    def give_back(self) -> None:
        """Give back all memory that the engine has, between runs: the next run, or budget, takes it again."""
        ...

    def suspect(self) -> None:
        """Learn that a call failed: what lies in memory is checked, or made anew, before it is used again."""
        ...

    def statistics(self) -> dict[str, Any]:
        """Return figures of the run (Session.statistics)."""
        ...

    def trace_events(self) -> dict[str, Any]:
        """Return the last run as trace events. Raises SessionError if it was not traced."""
        ...

    def close(self, *, learn: bool = True) -> None:
        """Give everything back. With ``learn``, keep what runs showed about the machine for later sessions."""
        ...

    def ending(self) -> Ending:
        """Return what closes engine and files when nobody closed the session; neither those of a pool."""
        ...

    def release(self) -> None:
        """Give back descriptors and arrays only: a forked process has none of the threads."""
        ...
