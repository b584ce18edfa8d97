"""Running a bound graph: one plan, one program, planned again for each budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from flexnn import _core
from flexnn.graph.ir import DTYPES, Array, Graph
from flexnn.graph.ports import Port
from flexnn.planning import MachineProfile, Plan, Planner, Setting
from flexnn.units import Groups

from .engine import BoundProgram, Engine, SessionError
from .model_file import ModelFile
from .options import RunOptions
from .outputs import Outputs
from .statistics import FIGURES, machine_statistics

if TYPE_CHECKING:
    from flexnn.measure import Watch
    from flexnn.measure.parts import Parts
    from flexnn.planning.band_search import Searched

    from .spill_file import SpillFile


class Bound(NamedTuple):
    """A plan, and what runs it."""

    plan: Plan
    program: BoundProgram | None
    """The plan's program; None: it is bound at the next run."""
    watch: Watch | None


class FixedRun:
    """The ``Run`` of a bound graph; it owns ``file`` once it is made."""

    def __init__(self, file: ModelFile, options: RunOptions) -> None:
        self._take(file, options)
        try:
            plan = self._plan_first()
            self._engine = Engine(
                options.switches(direct=file.direct_fd >= 0)._replace(streams_last=True),
                trace=2 if options.trace else int(options.measures),
            )
        except BaseException:
            self._close_spill()
            raise
        self.threads = self._engine.threads
        try:
            self._bound = self._bind(plan)  # one assignment: an interrupt leaves the old plan with the old program
            if options.memory is None:
                self._engine.back()
        except BaseException:
            self._engine.close(self._files)
            self._close_spill()
            raise

    @property
    def _files(self) -> tuple[_core.OpenFile, ...]:
        return self._file.files if self._spill is None else (*self._file.files, *self._spill.files)

    def _close_spill(self) -> None:
        if self._spill is not None:
            self._spill.close()

    def _take(self, file: ModelFile, options: RunOptions) -> None:
        self._file, self.artifact, self._options = file, file.artifact, options
        self._graph = file.artifact.graph
        self.inputs, self.outputs = _ports(self._graph, self._graph.inputs), _ports(self._graph, self._graph.outputs)
        self.last_run: dict[str, int] = {}
        self._signature: _core.Signature | None = None
        """Signature of all runs; None before the first."""
        self._results = Outputs(reuse=options.reuse_outputs)
        self._spill: SpillFile | None = None
        if options.spill is not None:
            from .spill_file import SpillFile  # few sessions spill

            self._spill = SpillFile(options.spill, options.io)
        self._parts: Parts | None = None
        """The profile as far as it is measured; None: times are those of rates."""
        if options.measures:
            from flexnn.measure.parts import Parts  # sessions that take rates do without

            self._parts = Parts(file.artifact, file.direct_fd, options.threads, options.progress, options.throttled)
        self._measuring = self._parts is not None and self._parts.is_new
        """Whether the machine is measured when the session opens, which a budget counts."""

    @property
    def _machine(self) -> MachineProfile:
        """The profile to plan for."""
        return self._parts.machine if self._parts else self._options.throttled(MachineProfile.measure())

    @property
    def plan(self) -> Plan:
        """The plan."""
        return self._bound.plan

    @property
    def memory(self) -> int | None:
        """The budget in bytes; None: no limit."""
        return self._bound.plan.memory

    @property
    def session_bytes(self) -> int:
        """Bytes that the session owns, as its plan accounts for them."""
        return self._bound.plan.session_bytes

    def run(self, inputs: Sequence[Array], into: Sequence[Array | None] | None = None) -> list[Array]:
        """Return all outputs, in the model's order; ``into``: the array of each, None where it is to be made. Raises
        SessionError.
        """
        if self._bound.program is None:
            self._bound = self._bind(self._bound.plan)
        _, program, watch = self._bound
        assert program is not None
        tensors = [self._graph.tensors[i] for i in self._graph.outputs]
        with self._results.writing([t.name for t in tensors], into):
            outputs = [self._results.array(t.name, t.shape, DTYPES[t.dtype], inputs) for t in tensors]
        self.last_run = program.run([*inputs, *outputs], [program]) | self._written(program)
        if watch:
            watch.ran(lambda: program.spans)
        if self._signature is None:
            names = [port.name for port in self.inputs]
            made = [(t.name, t.shape, DTYPES[t.dtype]) for t in tensors]
            self._signature = self._results.signature(dict(zip(names, inputs, strict=True)), names, [], made)
        return outputs

    def repeat(self, feed: Mapping[str, Any]) -> list[Array] | None:
        """Return all outputs of a run like the last, or None where there was none or the feed is not as plain as its
        arrays. Raises SessionError.
        """
        _, program, watch = self._bound
        if program is None or self._signature is None:
            return None
        repeated = program.repeat(self._signature, feed)
        if repeated is None:
            return None
        outputs, figures = repeated
        self.last_run = dict(zip(FIGURES, figures, strict=True)) | self._written(program)
        if watch:
            watch.ran(lambda: program.spans)
        return outputs

    def _written(self, program: BoundProgram) -> dict[str, int]:
        """Return the figure of a run that only sessions with a spill file have."""
        return {} if self._spill is None else {"bytes_written": program.bytes_written}

    def rebudget(self, memory: int | None) -> None:
        """Plan again for another budget, in place. If that fails (BudgetError, SessionError, Ctrl-C), the old plan
        stays. Its program is bound again, at once or, where storage fails or after Ctrl-C, at the next run.
        """
        plan = self._plan_for(memory)
        self._learn()
        before = self._bound
        try:
            self._bound = before._replace(program=None)
            if before.program is not None:
                before.program.close()  # its pinned weights stay where they are for now
            self._bound = self._bind(plan)
        except SessionError:
            self._restore()
            raise
        except BaseException:
            if self._bound.program is None:
                self._engine.give_back()  # Ctrl-C: this is no time to read the weights of the old plan
            raise

    def _restore(self) -> None:
        """Bind the program of the plan again; if that fails, give the arena back, and let the next run say why."""
        try:
            self._bound = self._bind(self._bound.plan)
        except SessionError:
            self._engine.give_back()

    def watch(self, look: Callable[[], None] | None) -> None:
        """Have a function called every 20 ms of runs; what it raises breaks the run off. None: no more."""
        self._engine.core.watch = look

    def give_back(self) -> None:
        """Unbind the program and give back the arena."""
        before = self._bound
        self._bound = before._replace(program=None)
        if before.program is not None:
            before.program.close()
        self._engine.give_back()

    def suspect(self) -> None:
        """Have the program checked before the next run."""
        self._engine.suspect()

    def statistics(self) -> dict[str, Any]:
        """Return figures of the run (Session.statistics)."""
        program = self._bound.program
        return {
            "segments": 1,
            "segments_of_last_run": 1 if self.last_run else 0,
            "kept_nodes": len(self.plan.program.nodes),
            "hosted_operators": {},
            "bytes": {"arena": self.plan.arena_bytes, **self.plan.overhead},
            "engine_bytes": self._engine.nbytes,
            "pinning": dict(program.pinning) if program is not None else {"kept": 0, "moved": 0, "read": 0},
            "machine": machine_statistics(self._machine),
        }

    def trace_events(self) -> dict[str, Any]:
        """Return the last run as trace events. Raises SessionError if it was not traced."""
        from .trace import traced

        return traced(self.plan, self._bound.program if self._options.trace and self.last_run else None)

    def close(self, *, learn: bool = True) -> None:
        """Give everything back. With ``learn``, keep what runs showed about the machine for later sessions."""
        self._engine.close(self._files)
        if learn:
            self._learn(may_measure=True)
        self.release()

    def ending(self) -> _core.Ending:
        """Return what closes engine and files when nobody closed the session."""
        return _core.Ending(self._engine.core, self._files)

    def release(self) -> None:
        """Give back descriptors and arrays."""
        self._results.clear()
        self._close_spill()
        self._file.close()

    def _plan_first(self) -> Plan:
        """Return the first plan. If the machine is to be measured, measure it before that, in an arena of about the
        plan's size. With a budget, nothing is planned for that: planning twice leaves more on the heap than it counts.
        """
        groups, parts, memory = self._options.groups, self._parts, self._options.memory
        if parts is None:
            return self._plan_anew(groups)
        if memory is not None:
            return self._plan_anew(groups, self._measure_in(memory, parts))
        plan = self._plan_anew(None if parts.is_new else groups)
        arena = plan.arena_bytes
        lack = parts.lacks_any(self._graph, arena)
        if lack is None:
            return plan
        del plan
        vars(self).pop("_planner", None)  # what it took is free to be measured in
        parts.measure(self._graph, arena, lack)
        return self._plan_anew(groups)

    def _measure_in(self, memory: int, parts: Parts) -> Searched | None:
        """Measure what the profile lacks for a budget. What that leaves on the heap is counted; where some was measured
        before and the budget has no room for more, it does without. Returns what was searched for that. Raises
        BudgetError.
        """
        if not self._measuring:
            setting = self._setting()
            at_most = memory - sum(setting.overhead(self._graph, 0, 0, setting.threads).values())
            if parts.lacks_any(self._graph, at_most) is None:
                return None
        from flexnn.planning.band_search import Searched  # few sessions measure

        was_new, self._measuring = self._measuring, True
        setting, searched = self._setting(), Searched()
        planner = Planner(self._graph, setting, searched=searched)
        if memory >= planner.minimum:
            arena = memory - sum(setting.overhead(planner.tightest.graph, 0, 0, setting.threads).values())
            lack = parts.lacks_any(self._graph, arena)
            del planner
            if lack is not None:
                parts.measure(self._graph, arena, lack)
                return searched
        elif was_new:
            planner.plan(memory)  # refuses
        self._measuring = was_new
        return searched

    def _setting(self) -> Setting:
        return self._options.setting(self._machine, self._file.io_align, measuring=self._measuring)

    def _plan_anew(self, groups: Groups, searched: Searched | None = None) -> Plan:
        """Make the planner for the machine as it is known now; return its plan, or the one of an earlier session.
        ``searched``: what another planner's searches for bands have found.
        """
        options, parts = self._options, self._parts
        self._planner = Planner(self._graph, self._setting(), groups=groups, searched=searched)
        if options.memory is None or parts is None or groups is not None or options.spill is not None:
            return self._plan_for(options.memory)
        from . import known_plans

        key = f"{parts.key} plan {options.memory} {options.output_sets} {options.deterministic}"
        if self._measuring:
            plan = known_plans.searched(self._planner, options.memory, beside=known_plans.MEASURED_BYTES)
            plan.decisions = None
        else:
            plan = known_plans.plan_known(self._planner, options.memory, key)
        self._planner.rest()
        return plan

    def _plan_for(self, memory: int | None) -> Plan:
        plan = self._planner.plan(memory)
        plan.decisions = None  # few are kept
        self._planner.rest()
        return plan

    def _bind(self, plan: Plan) -> Bound:
        """Bind a plan's program to the engine. Times of groups say nothing about single steps, and those of steps that
        write nothing about kernels, so nothing is learnt from them.
        """
        program = self._program(plan)
        try:
            self._engine.trim()
        except BaseException:
            program.close()
            raise
        return Bound(plan, program, self._watch(plan))

    def _program(self, plan: Plan) -> BoundProgram:
        if self._spill is not None:
            self._spill.reserve(plan.program.spill_bytes)
        return BoundProgram(self._engine, self.artifact, plan, direct_fd=self._file.direct_fd, spill=self._spill)

    def _watch(self, plan: Plan) -> Watch | None:
        learns = self._options.measures and plan.groups is None and not len(plan.program.spills)
        if not learns:
            return None
        from flexnn.measure import Watch  # sessions that take rates do without

        return Watch(plan.program, self._machine)

    def _learn(self, *, may_measure: bool = False) -> None:
        """Keep what the runs of this plan showed about the machine, for later sessions. This session keeps its own
        profile, so that it plans each budget the same way again. With ``may_measure``, nothing uses the arena any more.
        """
        plan, _, watch = self._bound
        if watch is None or self._parts is None:
            return
        if may_measure:
            self._parts.learn(watch, self._graph, None, plan)
        else:
            self._parts.refine(watch)


def _ports(graph: Graph, tensors: Sequence[int]) -> list[Port]:
    return [Port(graph.tensors[i].name, graph.tensors[i].dtype, graph.tensors[i].shape) for i in tensors]
