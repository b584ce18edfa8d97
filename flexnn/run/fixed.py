"""Running a bound graph: one plan, one program, planned again for each budget."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from flexnn import _core
from flexnn.graph.ir import DTYPES, Array, Graph
from flexnn.graph.ports import Port
from flexnn.measure import Watch, keep_refined, measured_machine
from flexnn.planning import MachineProfile, Plan, Planner
from flexnn.units import Groups

from .engine import BoundProgram, Engine, SessionError
from .model_file import ModelFile
from .options import RunOptions
from .outputs import Outputs
from .statistics import machine_statistics


class FixedRun:
    """The ``Run`` of a bound graph; it owns ``file`` once it is made."""

    def __init__(self, file: ModelFile, options: RunOptions) -> None:
        self._file, self._options = file, options
        self._graph = file.artifact.graph
        self.inputs, self.outputs = _ports(self._graph, self._graph.inputs), _ports(self._graph, self._graph.outputs)
        self.last_run: dict[str, int] = {}
        self._results = Outputs(reuse=options.reuse_outputs)
        self._machine = MachineProfile.measure()
        self._plan: Plan
        self._watch: Watch | None = None
        self._plan_first()
        self._engine = Engine(
            file.artifact, options.switches(file.direct_fd), trace=2 if options.trace else int(options.measures)
        )
        try:
            self._bound = self._bind()
        except BaseException:
            self._engine.close()
            raise

    @property
    def plan(self) -> Plan:
        """The plan."""
        return self._plan

    @property
    def session_bytes(self) -> int:
        """Bytes that the session owns, as its plan accounts for them."""
        return self._plan.session_bytes

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Return all outputs, in the model's order. Raises SessionError."""
        bound = self._bound
        tensors = [self._graph.tensors[i] for i in self._graph.outputs]
        outputs = [self._results.array(t.name, t.shape, DTYPES[t.dtype], inputs) for t in tensors]
        self.last_run = bound.run([*inputs, *outputs], [bound])
        if self._watch:
            self._watch.ran(lambda: bound.spans)
        return outputs

    def rebudget(self, memory: int | None) -> None:
        """Plan again for another budget, in place. If that fails (BudgetError, SessionError, Ctrl-C), the old plan
        stays.
        """
        plan = self._planner.plan(memory)
        before = self._plan
        self._learn()
        try:
            self._bound.close()  # its pinned weights stay where they are for now
            self._plan = plan
            self._bound = self._bind()
        except BaseException:
            self._plan = before
            self._bound = self._bind()
            raise

    def statistics(self) -> dict[str, Any]:
        """Return figures of the run (Session.statistics)."""
        return {
            "segments": 1,
            "segments_of_last_run": 1 if self.last_run else 0,
            "kept_nodes": len(self._plan.graph.nodes),
            "hosted_operators": {},
            "bytes": {"arena": self._plan.arena_bytes, **self._plan.overhead},
            "engine_bytes": self._engine.nbytes,
            "pinning": dict(self._bound.pinning),
            "machine": machine_statistics(self._machine),
        }

    def trace_events(self) -> dict[str, Any]:
        """Return the last run as trace events. Raises SessionError if it was not traced."""
        from .trace import trace_events

        bound = self._bound if self._options.trace and self.last_run else None
        trace, lanes, stalls = (bound.trace, bound.lanes, bound.stalls) if bound is not None else (None,) * 3
        if trace is None or lanes is None or stalls is None:
            raise SessionError("there is no trace: open the session with trace=True, and run it")
        return trace_events(self._plan, trace, lanes, stalls)

    def close(self, *, learn: bool = True) -> None:
        """Give everything back. With ``learn``, keep what runs showed about the machine for later sessions."""
        self._engine.close()
        if learn:
            self._learn()
        self.release()

    def release(self) -> None:
        """Give back descriptors and arrays."""
        self._results.clear()
        self._file.close()

    def _plan_first(self) -> None:
        """Make the first plan. If the machine is to be measured, measure it in an arena of that plan's size, and plan
        again with the times.
        """
        if not self._options.measures:
            self._plan_anew(self._options.groups)
            return
        self._plan_anew(None)
        arena = self._plan.arena_bytes
        del self._plan, self._planner
        with contextlib.suppress(_core.EngineError, OSError):  # a damaged file: the first run says what and where
            self._machine = measured_machine(
                self._file.artifact, self._file.direct_fd, self._options.threads, arena, self._options.progress
            )
        self._plan_anew(self._options.groups)

    def _plan_anew(self, groups: Groups) -> None:
        """Make the planner for the machine as it is known now, and its plan."""
        setting = self._options.setting(self._options.throttled(self._machine), self._file.io_align)
        self._planner = Planner(self._graph, setting, groups=groups)
        self._plan = self._planner.plan(self._options.memory)

    def _bind(self) -> BoundProgram:
        """Bind the plan's program to the engine. Times of groups say nothing about single steps, so nothing is learnt
        from them.
        """
        learns = self._options.measures and self._plan.groups is None
        self._watch = Watch(self._plan.program, self._options.throttled(self._machine)) if learns else None
        bound = BoundProgram(self._engine, self._plan)
        self._engine.trim()
        return bound

    def _learn(self) -> None:
        """Keep what the runs of this plan showed about the machine, for later sessions. This session keeps its own
        profile, so that it plans each budget the same way again.
        """
        refined = self._watch.learnt(self._machine) if self._watch else None
        if refined:
            keep_refined(self._file.artifact, self._file.direct_fd, self._options.threads, refined)


def _ports(graph: Graph, tensors: Sequence[int]) -> list[Port]:
    return [Port(graph.tensors[i].name, graph.tensors[i].dtype, graph.tensors[i].shape) for i in tensors]
