"""Plans: a program with its predicted cost, as JSON and as text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import numpy as np

from flexnn import _core
from flexnn.graph.ir import Graph
from flexnn.graph.operators import OPERATORS
from flexnn.quick_dataclass import quick_dataclass

from .types import Program

if TYPE_CHECKING:
    from .decisions import Decisions
    from .explain import Explanation


Known = TypeVar("Known")


class _WhenAsked(Generic[Known]):
    """A field of a plan that may be given as a function, which is called when the field is first asked for."""

    def __set_name__(self, owner: type[Plan], name: str) -> None:
        self._key = f"_{name}"

    def __get__(self, plan: Plan | None, owner: type[Plan]) -> Known:
        if plan is None:
            raise AttributeError("a plan is made with it")
        found = plan.__dict__[self._key]
        if callable(found):
            found = plan.__dict__[self._key] = found()
        return cast("Known", found)

    def __set__(self, plan: Plan, value: Known | Callable[[], Known]) -> None:
        plan.__dict__[self._key] = value


@quick_dataclass(eq=False)
class Plan:
    """A program with its predicted cost. Times in milliseconds, sizes in bytes."""

    program: Program
    """Program for the engine."""
    memory: int | None
    """Budget in bytes; None: no limit."""
    overhead: dict[str, int]
    """Bytes that the session takes outside the arena, by purpose."""
    predicted_ms: float
    """Predicted time of a run."""
    stall_ms: float
    """Part of ``predicted_ms`` in which computing waits for loads."""
    bound_ms: float
    """Time that no plan of this budget beats (planning/bound.py)."""
    plan_ms: float
    """Time that planning took."""
    activation_bytes: int
    """Most bytes of activations alive at once."""
    working_bytes: int
    """Bytes of the arena's working part: activations, workspaces and streamed weights."""
    graph: _WhenAsked[Graph] = _WhenAsked()
    """Graph that the program runs: the artifact's, perhaps with nodes in bands or in the order of groups. Nodes in
    bands are written out once more when they are asked for: runs do without.
    """
    minimum_memory: _WhenAsked[int] = _WhenAsked()
    """Smallest budget in bytes that has a plan."""
    groups: int | None = None
    """Number of groups per layer of independent nodes; nodes of a group run at the same time. None: steps run one by
    one.
    """
    forecasts_ms: dict[int | None, float] = field(default_factory=dict)
    """Predicted times by number of groups, where that was chosen by them; None: one by one."""
    explanation: Explanation | None = None
    """Explanation of the plan's memory and time, if that was asked for."""
    decisions: Decisions | None = None
    """Decisions that make this plan again without a search, if it was searched for."""

    def but(self, **changes: Any) -> Plan:
        """Return the plan with other fields; its graph and its smallest budget are not computed for that."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        for name, value in changes.items():
            setattr(made, name, value)
        return made

    @property
    def is_streaming(self) -> bool:
        """Whether each run reads weights."""
        return len(self.program.loads) > 0 or len(self.program.tables) > 0

    @property
    def barriers(self) -> int:
        """Number of moments of a run at which all threads wait for the last one: ends of groups, or of steps."""
        return len(self.program.groups) or len(self.program.steps)

    @property
    def steps(self) -> np.ndarray[Any, Any]:
        """Steps in order, as records of node, wait_loads, window and panel_offset (fx_step, engine.h)."""
        return self.program.steps

    @property
    def loads(self) -> np.ndarray[Any, Any]:
        """Loads of each run in order, as records of file_offset, bytes, address, wait_steps, … (fx_load, engine.h)."""
        return self.program.loads

    @property
    def arena_bytes(self) -> int:
        """Bytes of the arena, the one buffer that the engine maps."""
        return self.program.arena_bytes

    @property
    def session_bytes(self) -> int:
        """Bytes of everything that opening and running takes: arena and overhead."""
        return self.arena_bytes + sum(self.overhead.values())

    @property
    def pinned_bytes(self) -> int:
        """Bytes of pinned weights."""
        return int(self.program.pinned["check_bytes"].sum())

    @property
    def bytes_read_per_run(self) -> int:
        """Bytes that the loads of a run read from the file."""
        return int(self.program.loads["bytes"].sum())

    @property
    def bytes_written_per_run(self) -> int:
        """Bytes that a run writes to the spill file."""
        return int(self.program.spills["bytes"].sum())

    @property
    def bytes_fetched_per_run(self) -> int:
        """Bytes of ``bytes_read_per_run`` that come from the spill file."""
        loads = self.program.loads
        return int(loads["bytes"][loads["file_offset"] >= _core.SPILL_FROM].sum())

    def bytes_written_per_day(self, runs_per_day: float) -> int:
        """Bytes that so many runs a day write to the spill file: devices wear."""
        return int(self.bytes_written_per_run * runs_per_day)

    @property
    def gap(self) -> float:
        """Predicted time above the bound, as a fraction of the bound."""
        return self.predicted_ms / self.bound_ms - 1 if self.bound_ms else 0.0

    @property
    def kernels(self) -> dict[str, int]:
        """Number of nodes by convolution kernel, or by operator."""
        counts: dict[str, int] = {}
        for op, kernel in zip(self.program.nodes["op"].tolist(), self.program.nodes["kernel"].tolist(), strict=True):
            name = OPERATORS[_core.OPS[op]].kernel(kernel) or _core.OPS[op]
            counts[name] = counts.get(name, 0) + 1
        return dict(sorted(counts.items()))

    def describe(self) -> dict[str, Any]:
        """Return the plan for ``flexnn plan --json``."""
        from .told import named  # few plans are shown

        return {
            "memory_budget": self.memory,
            "minimum_memory": self.minimum_memory,
            "session_bytes": self.session_bytes,
            "arena_bytes": self.arena_bytes,
            "activation_bytes": self.activation_bytes,
            "working_bytes": self.working_bytes,
            "overhead": dict(self.overhead),
            "predicted_ms": self.predicted_ms,
            "stall_ms": self.stall_ms,
            "bound_ms": self.bound_ms,
            "gap": self.gap,
            "plan_ms": self.plan_ms,
            "steps": len(self.program.steps),
            "groups": self.groups,
            "barriers": self.barriers,
            "forecasts_ms": {named(k): ms for k, ms in self.forecasts_ms.items()},
            "loads": len(self.program.loads),
            "pinned_bytes": self.pinned_bytes,
            "bytes_read_per_run": self.bytes_read_per_run,
            "bytes_fetched_per_run": self.bytes_fetched_per_run,
            "bytes_written_per_run": self.bytes_written_per_run,
            "spill_bytes": self.program.spill_bytes,
            "kernels": self.kernels,
        } | (self.explanation.describe() if self.explanation else {})

    def check(self) -> None:
        """Validate the plan independently of the planner. Raises PlanError."""
        from .check import check_plan

        check_plan(self.graph, self.program)

    def addresses(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return addresses for inspection, as arrays: ``loads`` and ``pinned`` [n, 2] (address, bytes), ``outputs``
        [nodes, 2] (operand base, offset), ``workspace`` [nodes, 2] (address, bytes of one thread).
        """
        p = self.program
        return {
            "loads": np.stack((p.loads["address"], p.loads["bytes"]), axis=1),
            "pinned": np.stack((p.pinned["address"], p.pinned["bytes"]), axis=1),
            "outputs": np.stack((p.nodes["out"]["base"].astype(np.int64), p.nodes["out"]["offset"]), axis=1),
            "workspace": np.stack((p.nodes["workspace_offset"], p.nodes["workspace_bytes"]), axis=1),
        }

    def summary(self) -> str:
        """Return lines for people: memory by purpose, and time."""
        from .told import summary

        return summary(self)

    def __repr__(self) -> str:
        from .told import table

        return table(self)
