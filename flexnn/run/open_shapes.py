"""Running a model whose shapes or path are known only at run time (flexnn/regions), inside the budget.

Each bound segment is a program of its own; all programs run on one engine. Their pinned parts (pinned weights, small
constants) lie side by side in the arena. They share the working part, which is as big as the largest program needs. A
segment is planned for the memory that the others leave; if that is too little, the segments used longest ago are
closed. After a run, only the segments of that run stay open.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flexnn.graph.ir import DTYPES, Array, Tensor
from flexnn.measure import Watch
from flexnn.measure.parts import Parts
from flexnn.planning import BudgetError, MachineProfile, Plan
from flexnn.planning.overhead import BASE_BYTES
from flexnn.planning.relocate import relocated
from flexnn.regions import Segment, Walker

from .engine import AHEAD_MAX, BoundProgram, Engine, SessionError
from .model_file import ModelFile
from .options import RunOptions
from .outputs import Outputs
from .segments import BoundSegment, BoundSegments
from .statistics import machine_statistics


@dataclass(slots=True)
class Totals:
    """Figures of one run, summed over its segments."""

    run_ns: int = 0
    stall_ns: int = 0
    bytes_read: int = 0
    used: dict[BoundSegment, None] = field(default_factory=dict)
    """The segments, in the order in which they ran first."""


class OpenShapesRun:
    """The ``Run`` of a model that is bound to the shapes of each run's inputs, and the walker's ``SegmentRunner``. It
    owns ``file`` once it is made.
    """

    def __init__(self, file: ModelFile, options: RunOptions) -> None:
        stored = file.open_model
        assert stored is not None
        file.refuse_groups(options.groups)
        self._file, self._options = file, options
        self.inputs, self.outputs = stored.model.graph.inputs, stored.model.graph.outputs
        self.last_run: dict[str, int] = {}
        self._parts: Parts | None = None
        if options.measures:
            direct_fd, threads, progress = file.direct_fd, options.threads, options.progress
            self._parts = Parts(file.artifact, direct_fd, threads, progress, options.throttled)
        machine = self._parts.machine if self._parts else options.throttled(MachineProfile.measure())
        setting = options.setting(machine, file.io_align)
        self._segments = BoundSegments(stored, options.memory, setting, options.rewrite)
        self._walker = Walker(stored.model, self)
        self._totals = Totals()
        self._results = Outputs(reuse=options.reuse_outputs)
        self._open: dict[BoundSegment, None] = {}
        """Open segments, the one used last at the end."""
        self._opened_count = 0
        self._last: BoundSegment | None = None
        """The segment that ran last."""
        self._feeds: Sequence[Array] = ()
        """The inputs of the run under way."""
        self._shapes: list[tuple[int, ...]] = []
        """Shapes of the inputs of the last run."""
        self._usual: list[BoundSegment] = []
        """Segments of the last complete run."""
        self._engine = Engine(file.artifact, options.switches(file.direct_fd), trace=int(options.measures))

    # ---- what the session asks for ----

    @property
    def plan(self) -> Plan:
        """The plan of the last run's largest segment. Raises SessionError before the first run."""
        plans = [segment.plan for segment in self._totals.used if segment.plan is not None]
        if not plans:
            raise SessionError("the model has open shapes, so there is no plan before its first run")
        return max(plans, key=lambda plan: plan.arena_bytes)

    @property
    def session_bytes(self) -> int:
        """Bytes of everything that is open, and of the model."""
        return sum(self._bytes().values())

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """Return all outputs, in the model's order. Raises BudgetError, SessionError, GraphError."""
        self._totals = Totals()
        shapes = [array.shape for array in inputs]
        if shapes != self._shapes:
            for segment in list(self._open):  # first: what other shapes needed must not stay beside what these need
                self._close(segment)
            self._results.clear()
            self._engine.trim(keep=True)
            self._shapes = shapes
        self._feeds = inputs
        try:
            with np.errstate(all="ignore"):
                outputs = self._walker.run({port.name: x for port, x in zip(self.inputs, inputs, strict=True)})
        finally:
            self._feeds = ()
        self._usual = list(self._totals.used)
        unused = [segment for segment in self._open if segment not in self._totals.used]
        if unused:
            for segment in unused:
                self._close(segment)
            self._engine.trim()
        totals = self._totals
        self.last_run = {"run_ns": totals.run_ns, "stall_ns": totals.stall_ns, "bytes_read": totals.bytes_read}
        return outputs

    def rebudget(self, memory: int | None) -> None:
        """Plan the segments of the last run again for another budget. Weights that stay pinned stay in the arena. If
        the segments do not fit any more, all of them are closed.
        """
        self._segments.memory = memory
        again = [segment for segment in self._usual if segment in self._open]
        for segment in list(self._open):
            self._close(segment)
        try:
            for segment in again:
                self._planned(segment, segment.live_bytes)
                self._open[segment] = None
            self._arrange()
        except BudgetError:
            self._open.clear()
        self._engine.trim()

    def statistics(self) -> dict[str, Any]:
        """Return figures of the run (Session.statistics)."""
        pinning = {"kept": 0, "moved": 0, "read": 0}
        for segment in self._open:
            assert segment.bound is not None
            for name, size in segment.bound.pinning.items():
                pinning[name] += size
        return {
            "segments": len(self._segments),
            "segments_of_last_run": len(self._totals.used),
            "kept_nodes": self._walker.kept_nodes,
            "hosted_operators": dict(sorted(self._walker.hosted.items())),
            "bytes": self._bytes(),
            "engine_bytes": self._engine.nbytes,
            "pinning": pinning,
            "machine": machine_statistics(self._segments.setting.machine),
        }

    def trace_events(self) -> dict[str, Any]:
        """Raise SessionError: only models of fixed shapes are traced."""
        raise SessionError("there is no trace: open the session with trace=True, and run a model of fixed shapes")

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

    def _bytes(self) -> dict[str, int]:
        """Bytes of the session, by what takes them."""
        plans = [segment.plan for segment in self._open if segment.plan is not None]
        working = max((segment.working_bytes for segment in self._open), default=0)
        return {
            "model": self._segments.model_bytes,
            "base": BASE_BYTES,
            "stacks": max((plan.overhead["stacks"] for plan in plans), default=0),
            "values": max((plan.overhead["values"] + plan.overhead["io"] for plan in plans), default=0),
            "arena": working + sum(segment.pinned_bytes for segment in self._open),
            "programs": sum(segment.program_bytes for segment in self._open),
        }

    def _learn(self) -> None:
        """Keep what runs of the longest segment showed about the machine, for later sessions."""
        if self._parts is not None and self._usual:
            longest = max(self._usual, key=lambda segment: segment.plan.predicted_ms if segment.plan else 0.0)
            if longest.watch is not None:
                self._parts.learn(longest.watch)

    # ---- what the walker asks for ----

    def run_segment(self, segment: Segment, inputs: Sequence[Array], live_bytes: int) -> list[Array]:
        """Run a segment; bind, plan and open it first if needed. Return its outputs."""
        ready = self._segments.of(segment)
        bound = self._opened(ready, live_bytes - sum(array.nbytes for array in inputs))
        graph = ready.graph
        outputs = [
            self._empty(segment, name, graph.tensors[i]) for name, i in zip(segment.makes, graph.outputs, strict=True)
        ]
        arrays = [np.require(array, requirements=["C", "ALIGNED"]) for array in inputs]
        self._follow(ready)
        following = self._following(ready) if self._options.prefetches else []
        spent = bound.run([*arrays, *ready.constants, *outputs], following)
        if ready.watch is not None:
            ready.watch.ran(lambda: bound.spans)
        self._totals.run_ns += spent["run_ns"]
        self._totals.stall_ns += spent["stall_ns"]
        self._totals.bytes_read += spent["bytes_read"]
        self._totals.used[ready] = None
        return outputs

    def lacking(self, segment: Segment) -> set[str]:
        """Return the names of the segment's nodes whose weights it cannot have."""
        return self._segments.lacking(segment)

    def forget(self, segment: Segment) -> None:
        """Close a segment that will not run again."""
        gone = self._segments.pop(segment)
        if gone is not None:
            self._close(gone)
            for other in self._segments:
                if other.successor is gone:
                    other.successor = None
            if self._last is gone:
                self._last = None

    def _empty(self, segment: Segment, name: str, tensor: Tensor) -> Array:
        """Return an array for a segment to fill: an output of the model, or a value between segments."""
        region, dtype = segment.region, DTYPES[tensor.dtype]
        if region is self._walker.region and name in region.outputs:
            return self._results.array(name, tensor.shape, dtype, self._feeds)
        return np.empty(tensor.shape, dtype)

    def _follow(self, segment: BoundSegment) -> None:
        """Note that a segment runs after the last one. A successor is expected once it has followed twice: the code
        after a branch always does, the inside of a branch only while the same branch is taken.
        """
        if self._last is not None:
            self._last.is_followed = self._last.successor is segment
            self._last.successor = segment
        self._last = segment

    def _following(self, segment: BoundSegment) -> list[BoundProgram]:
        """Return the open programs that are expected to run after a segment, in order."""
        found: list[BoundProgram] = []
        while segment.is_followed and segment.successor is not None and len(found) < AHEAD_MAX:
            segment = segment.successor
            if segment.bound is None:
                break
            found.append(segment.bound)
        return found

    # ---- segments ----

    def _opened(self, segment: BoundSegment, live: int) -> BoundProgram:
        """Return the program of a segment, opened beside ``live`` bytes of values. Close others and drop kept segments
        where that is needed to make room; raise BudgetError if it is not enough.
        """
        if segment.bound is not None and live <= segment.live_bytes:
            self._open[segment] = self._open.pop(segment)
            return segment.bound
        self._close(segment)
        if self._parts is not None and not segment.is_measured:
            self._measure(self._parts, segment, live)
        trimmed = False
        while True:
            try:
                self._planned(segment, live)
                break
            except BudgetError:
                if self._open:
                    self._close(next(iter(self._open)))
                elif not trimmed:
                    self._walker.trim(0)
                    trimmed = True
                else:
                    raise
        segment.live_bytes = live
        self._opened_count += 1
        segment.number = self._opened_count
        self._open[segment] = None
        self._arrange()
        assert segment.bound is not None
        return segment.bound

    def _measure(self, parts: Parts, segment: BoundSegment, live: int) -> None:
        """Measure the operators of a new segment that were never measured, in the memory of all open segments."""
        segment.is_measured = True
        if not parts.lacks(segment.planner.tightest.graph, segment.planner.tightest.costs):
            return
        for other in list(self._open):
            self._close(other)
        self._engine.trim()
        with contextlib.suppress(BudgetError):  # planning says it, after all else was tried
            parts.measure(segment.graph, self._planned(segment, live).arena_bytes)
            self._segments.know(parts.machine)

    def _planned(self, segment: BoundSegment, live: int) -> Plan:
        counted = sum(len(other.graph.nodes) for other in {segment, *self._open})
        kept = max(0, self._walker.kept_nodes - counted)
        return self._segments.planned(segment, live, list(self._open), kept, self._quota_bytes(segment))

    def _quota_bytes(self, segment: BoundSegment) -> int | None:
        """Return the bytes that a segment may take beyond its smallest budget, so that no segment of the last run has
        to be closed for another: a part, in proportion to its weights, of what all their smallest budgets leave. None:
        no quota, as when the smallest budgets together are too much.
        """
        memory = self._segments.memory
        if memory is None or segment not in self._usual or len(self._usual) == 1:
            return None
        plans = [other.plan for other in self._usual if other.plan is not None]
        around = max(sum(p.overhead.values()) - p.overhead["program"] - p.overhead["programs"] for p in plans)
        working = [other.planner.least_working_bytes for other in self._usual]
        least = [
            other.planner.minimum - sum(plan.overhead[part] for part in ("io", "stacks", "base"))
            for other, plan in zip(self._usual, plans, strict=True)
        ]
        slack = 2 * self._segments.setting.io_align * len(self._usual)
        spare = memory - around - slack - sum(least) + sum(working) - max(working)
        if spare < 0:
            return None
        weights = [sum(weight.nbytes for weight in other.graph.weights) + 1 for other in self._usual]
        return spare * weights[self._usual.index(segment)] // sum(weights)

    def _arrange(self) -> None:
        """Give every open segment its place, and bind those that are new or move. The order keeps them from overwriting
        weights that another segment will find there: those that move up, highest first; those that move down; new ones.
        """
        segments = sorted(self._open, key=lambda segment: segment.number)
        working = max((segment.working_bytes for segment in segments), default=0)
        at, places = working, {}
        for segment in segments:  # neighbours in the order of runs work at opposite ends, where they leave room
            places[segment] = (at, working - segment.working_bytes if segment.number % 2 else 0)
            at += segment.pinned_bytes
        changed = [segment for segment in segments if segment.bound is None or segment.place != places[segment]]
        up = [segment for segment in changed if segment.place and segment.place[0] < places[segment][0]]
        down = [segment for segment in changed if segment.place and segment not in up]
        new = [segment for segment in changed if not segment.place]
        try:
            for segment in changed:
                self._unbind(segment)
            for segment in (*reversed(up), *down, *new):
                segment.place = places[segment]
                self._bind(segment, *segment.place)
            self._engine.trim()
        except BaseException:
            for segment in list(self._open):
                self._close(segment)
            self._results.clear()
            self._engine.trim()
            raise

    def _bind(self, segment: BoundSegment, pinned_at: int, working_at: int) -> None:
        plan = segment.plan
        assert plan is not None
        split = plan.arena_bytes - plan.working_bytes
        program = relocated(plan.program, split, pinned_at, working_at - split)
        segment.bound = BoundProgram(self._engine, plan, program)
        if self._parts is not None and (segment.watch is None or segment.watch.program is not plan.program):
            segment.watch = Watch(plan.program, self._segments.setting.machine)

    def _unbind(self, segment: BoundSegment) -> None:
        if segment.bound is not None:
            segment.bound.close()
            segment.bound = None

    def _close(self, segment: BoundSegment) -> None:
        self._unbind(segment)
        self._open.pop(segment, None)
