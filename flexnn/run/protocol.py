"""The protocol between a session and what runs its model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from flexnn.graph.model import Port
from flexnn.planning import Plan

Array = np.ndarray[Any, Any]


class Run(Protocol):
    """A model opened for running inside a budget. Calls come one at a time, none after ``close``, and arrays as
    ``inputs`` describes them.
    """

    @property
    def inputs(self) -> Sequence[Port]:
        """The model's inputs, in its order."""
        ...

    @property
    def outputs(self) -> Sequence[Port]:
        """The model's outputs, in its order."""
        ...

    @property
    def plan(self) -> Plan:
        """The plan, of several the largest one's. Raises SessionError where there is none yet."""
        ...

    @property
    def session_bytes(self) -> int:
        """Bytes that the run owns, as its plans account for them."""
        ...

    @property
    def last_run(self) -> dict[str, int]:
        """``run_ns``, ``stall_ns`` and ``bytes_read`` of the last run that went through."""
        ...

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Return all outputs, in the model's order. Raises SessionError, BudgetError, GraphError."""
        ...

    def rebudget(self, memory: int | None) -> None:
        """Plan for another budget, in place. Raises BudgetError."""
        ...

    def statistics(self) -> dict[str, Any]:
        """Return figures of the run (Session.statistics)."""
        ...

    def trace_events(self) -> dict[str, Any]:
        """Return the last run as trace events. Raises SessionError where it was not traced."""
        ...

    def close(self, *, learn: bool = True) -> None:
        """Give everything back; ``learn``: after keeping what runs told of the machine."""
        ...

    def release(self) -> None:
        """Give back descriptors and arrays only: in a forked process, which has none of the threads."""
        ...
